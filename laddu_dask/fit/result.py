"""The outcome of a fit, to read, print and keep."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laddu_dask.errors import DataError
from laddu_dask.fit.objective import F64
from laddu_dask.fit.output import write_whole
from laddu_dask.fit.table import result_text

SCHEMA = "laddu-dask fit result"
SCHEMA_VERSION = 1

Bounds = tuple[float | None, float | None] | None


@dataclass(frozen=True, eq=False)
class FitResult:
    """Where a fit ended and what is known there.

    Attributes
    ----------
    parameter_names
        Free parameters, in the order of all arrays.
    values
        Parameter values, shape (n,).
    errors
        Standard deviations, square roots of the covariance's diagonal, shape (n,). NaN where the
        data do not determine a parameter, never zero.
    covariance
        2 H^-1 with H the Hessian of -2 ln L, shape (n, n), symmetric. A parameter held at a limit
        has the variance 2 / H_ii of its own curvature and no covariance; the others' elements are
        those with it held there.
    objective
        -2 ln L at `values`.
    edm
        Estimated vertical distance to the minimum.
    converged
        Whether `values` is a minimum with every parameter determined.
    message
        Why, or why not.
    n_evaluations
        Passes over the data.
    seconds
        Duration of the fit.
    warnings
        What a reader of the numbers should know.
    bounds, units, latex
        From the definitions of the parameters.
    limits
        Per parameter "", "lower" or "upper": the limit on which it ended.
    method
        Name of the minimiser.
    """

    parameter_names: tuple[str, ...]
    values: F64
    errors: F64
    covariance: F64
    objective: float
    edm: float
    converged: bool
    message: str
    n_evaluations: int
    seconds: float
    warnings: tuple[str, ...]
    bounds: tuple[Bounds, ...]
    units: tuple[str | None, ...]
    latex: tuple[str | None, ...]
    limits: tuple[str, ...]
    method: str

    def __post_init__(self) -> None:
        for field in ("values", "errors", "covariance"):
            array = np.array(getattr(self, field), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, field, array)

    def __str__(self) -> str:
        return result_text(self)

    @property
    def evaluations_per_second(self) -> float:
        """Mean rate over the whole fit."""
        return self.n_evaluations / self.seconds if self.seconds > 0 else math.nan

    @property
    def parameters(self) -> dict[str, float]:
        """Values by name; can be given to another fit as its start."""
        return dict(zip(self.parameter_names, self.values.tolist(), strict=True))

    @property
    def correlation(self) -> F64:
        """Correlation matrix, shape (n, n); NaN where there is no error."""
        with np.errstate(invalid="ignore", divide="ignore"):
            matrix = self.covariance / np.outer(self.errors, self.errors)
        known = np.isfinite(self.errors)
        np.fill_diagonal(matrix, np.where(known, 1.0, np.nan))
        return np.asarray(matrix)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types.

        Numbers that JSON lacks become the strings "nan", "inf" and "-inf"; all others survive to
        the last bit.
        """
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "method": self.method,
            "converged": self.converged,
            "message": self.message,
            "objective": _encode(self.objective),
            "edm": _encode(self.edm),
            "n_evaluations": self.n_evaluations,
            "seconds": _encode(self.seconds),
            "evaluations_per_second": _encode(self.evaluations_per_second),
            "warnings": list(self.warnings),
            "parameters": [
                {
                    "name": name,
                    "value": _encode(self.values[i]),
                    "error": _encode(self.errors[i]),
                    "bounds": _bounds_to_list(self.bounds[i]),
                    "limit": self.limits[i],
                    "unit": self.units[i],
                    "latex": self.latex[i],
                }
                for i, name in enumerate(self.parameter_names)
            ],
            "covariance": [[_encode(x) for x in row] for row in self.covariance],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FitResult:
        """Rebuild a result from `to_dict`.

        Raises
        ------
        DataError
            When `data` is not such a dictionary, or of a newer version.
        """
        if data.get("schema") != SCHEMA:
            raise DataError(f"not a fit result: its schema is {data.get('schema')!r}")
        if data.get("schema_version") != SCHEMA_VERSION:
            raise DataError(
                f"fit result of version {data.get('schema_version')!r}, this package reads version "
                f"{SCHEMA_VERSION}; install the release of laddu-dask that wrote it"
            )
        try:
            rows = data["parameters"]
            n = len(rows)
            return cls(
                parameter_names=tuple(row["name"] for row in rows),
                values=np.array([float(row["value"]) for row in rows]),
                errors=np.array([float(row["error"]) for row in rows]),
                covariance=np.array(
                    [[float(x) for x in row] for row in data["covariance"]]
                ).reshape(n, n),
                objective=float(data["objective"]),
                edm=float(data["edm"]),
                converged=bool(data["converged"]),
                message=str(data["message"]),
                n_evaluations=int(data["n_evaluations"]),
                seconds=float(data["seconds"]),
                warnings=tuple(data["warnings"]),
                bounds=tuple(_bounds_from_list(row["bounds"]) for row in rows),
                units=tuple(row["unit"] for row in rows),
                latex=tuple(row["latex"] for row in rows),
                limits=tuple(row["limit"] for row in rows),
                method=str(data["method"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"damaged fit result: {error!r}") from error

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the result as JSON, whole or not at all, and return the path.

        Raises
        ------
        OutputError
            When the file exists and `overwrite` is False, or cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        return write_whole(path, (text + "\n").encode(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FitResult:
        """Read a result written by `save`.

        Raises
        ------
        DataError
            When the file cannot be read or is not a fit result; names the file.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {path}: {error}", file=str(path)) from error
        if not isinstance(data, dict):
            raise DataError(f"{path} is not a fit result", file=str(path))
        try:
            return cls.from_dict(data)
        except DataError as error:
            raise DataError(f"{path}: {error}", file=str(path)) from error


def _encode(number: float | np.float64) -> float | str:
    number = float(number)
    return number if math.isfinite(number) else str(number)


def _bounds_to_list(bounds: Bounds) -> list[float | None] | None:
    return None if bounds is None else [None if b is None else float(b) for b in bounds]


def _bounds_from_list(bounds: list[float | None] | None) -> Bounds:
    if bounds is None:
        return None
    low, high = bounds
    return low, high
