"""Parameter layout: the order and the meaning of the numbers in a parameter vector."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import ParameterError
from laddu_dask.expr.node import Node, walk
from laddu_dask.expr.parameters import ParameterSpec

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ParameterLayout:
    """Parameters in order of first appearance; vectors hold the free ones only."""

    specs: tuple[ParameterSpec, ...]

    @classmethod
    def of(cls, *roots: Node) -> ParameterLayout:
        """Layout of one graph, or several. Parameters that cancel out keep their place."""
        return cls.merge(
            [node.data] for node in walk(*roots) if isinstance(node.data, ParameterSpec)
        )

    @classmethod
    def merge(cls, groups: Iterable[Iterable[ParameterSpec]]) -> ParameterLayout:
        """Join layouts by name.

        Raises
        ------
        ParameterError
            One name with two definitions.
        """
        known: dict[str, ParameterSpec] = {}
        for group in groups:
            for spec in group:
                other = known.setdefault(spec.name, spec)
                if other != spec:
                    fields = [
                        f"{field}: {getattr(other, field)!r} and {getattr(spec, field)!r}"
                        for field in spec.__dataclass_fields__
                        if getattr(other, field) != getattr(spec, field)
                    ]
                    raise ParameterError(
                        f"parameter {spec.name!r} is defined twice with different "
                        f"{'; '.join(fields)}; a shared parameter needs one definition",
                        name=spec.name,
                    )
        return cls(tuple(known.values()))

    @cached_property
    def free(self) -> tuple[ParameterSpec, ...]:
        """Free parameters in vector order."""
        return tuple(spec for spec in self.specs if not spec.fixed)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the free parameters in vector order."""
        return tuple(spec.name for spec in self.free)

    @property
    def defaults(self) -> Vector:
        """Start values of the free parameters."""
        return np.array([spec.initial for spec in self.free], dtype=np.float64)

    def vector(self, values: Sequence[float] | Vector | Mapping[str, float] | None) -> Vector:
        """Free parameters as a vector of floats.

        Parameters
        ----------
        values
            One number per free parameter in order, or a mapping of names (those left out keep their
            start value), or None for the start values.

        Raises
        ------
        ParameterError
            Unknown or fixed name, wrong length, not numbers. Bounds are not enforced here.
        """
        if values is None:
            return self.defaults
        # Asking a list whether it is a mapping takes as long as making an array of it.
        if not isinstance(values, list | np.ndarray) and isinstance(values, Mapping):
            return self._from_mapping(values)
        vector = _real_numbers(values)
        if vector.shape != (len(self.names),):
            raise ParameterError(
                f"expected {len(self.names)} parameters ({', '.join(self.names)}), "
                f"got an array of shape {vector.shape}",
                expected=len(self.names),
                actual=vector.shape,
            )
        return vector

    def _from_mapping(self, values: Mapping[str, Any]) -> Vector:
        position = {name: i for i, name in enumerate(self.names)}
        vector = self.defaults
        for name, value in values.items():
            if name not in position:
                raise self.unknown(name)
            number = _real_numbers(value)
            if number.shape:
                raise ParameterError(f"parameter {name!r} is one number, got {value!r}", name=name)
            vector[position[name]] = number
        return vector

    def unknown(self, name: str) -> ParameterError:
        """The error for a name that is not a free parameter."""
        if any(spec.name == name for spec in self.specs):
            return ParameterError(f"parameter {name!r} is fixed and takes no value here", name=name)
        near = difflib.get_close_matches(str(name), self.names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return ParameterError(
            f"unknown parameter {name!r}{hint} (free parameters: {', '.join(self.names)})",
            name=name,
        )

    def outside_bounds(self, vector: Vector) -> list[str]:
        """Text for every entry that is NaN or outside its bounds."""
        problems = []
        for spec, value in zip(self.free, vector, strict=True):
            low, high = spec.bounds
            if math.isnan(value):
                problems.append(f"{spec.name} is NaN")
            elif (low is not None and value < low) or (high is not None and value > high):
                problems.append(f"{spec.name} = {value} is outside [{low}, {high}]")
        return problems


def _real_numbers(values: Any) -> Vector:
    """A new float64 array; strings, complex numbers and ragged lists are refused, not converted."""
    try:
        array = np.array(values)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "biuf" and array.size:
        raise ParameterError(f"parameters must be real numbers, got {values!r}")
    return array if array.dtype == np.float64 else array.astype(np.float64)
