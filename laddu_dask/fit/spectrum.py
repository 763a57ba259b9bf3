"""Curvature in natural units: which directions are steep, flat, or downhill on both sides.

Eigenvalues of a Hessian mean nothing while parameters have different units. Each parameter is
first measured in its own standard deviation; the eigenvalues are then pure numbers around one, and
a direction is flat when its eigenvalue cannot be told from the rounding of the elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laddu_dask.errors import EvaluationError
from laddu_dask.fit.bounds import Mask
from laddu_dask.fit.hessian import Curvature
from laddu_dask.fit.objective import F64

# Elements by fourth-order differences are good to about 1e-9 of their size.
_FLAT = 3e-9
# A parameter whose whole range changes the objective by less than this part of it does nothing.
_NO_INFLUENCE = 1e-11


@dataclass(frozen=True)
class Spectrum:
    """Eigen-decomposition of a Hessian in units of each parameter's own standard deviation.

    Attributes
    ----------
    weight
        Square root of each parameter's own curvature, shape (n,): natural units are
        `weight * x`.
    eigenvalues
        Ascending, shape (n,).
    vectors
        Orthonormal columns in natural units, shape (n, n).
    tolerance
        Eigenvalues of smaller magnitude are zero as far as can be known.
    idle
        Which parameters have no curvature of their own that counts, shape (n,).
    """

    weight: F64
    eigenvalues: F64
    vectors: F64
    tolerance: float
    idle: Mask

    @classmethod
    def of(cls, curvature: Curvature, value: float, widest: F64) -> Spectrum:
        """Decompose `curvature` at a point of objective `value`.

        Parameters
        ----------
        curvature
            Hessian of the parameters to look at, shape (n, n).
        value
            Objective there, which sets the size of its rounding errors.
        widest
            Largest standard deviation that counts as known, shape (n,).

        Raises
        ------
        EvaluationError
            When the elements overflow: the parameters have run away.
        """
        tolerance = max(_FLAT, 10 * curvature.asymmetry)
        tolerance = min(tolerance, 1e-3)
        own = np.abs(np.diag(curvature.matrix))
        with np.errstate(all="ignore"):
            # What overflows is refused below.
            floor = _NO_INFLUENCE * (1 + abs(value)) / widest**2
            # Without influence the own curvature is noise; a weight far above it makes it vanish.
            weight = np.sqrt(np.where(own > floor, own, 10 * floor / tolerance))
            scaled = curvature.matrix / np.outer(weight, weight)
        if not np.isfinite(scaled).all():
            raise EvaluationError(
                "the curvature cannot be represented; the parameters have run away, probably "
                "because the objective falls without end"
            )
        eigenvalues, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        return cls(weight, eigenvalues, vectors, tolerance, own <= floor)

    @property
    def flat(self) -> Mask:
        """Which eigenvalues are zero as far as can be known."""
        return np.asarray(np.abs(self.eigenvalues) <= self.tolerance)

    @property
    def negative(self) -> Mask:
        """Which directions curve downwards."""
        return self.eigenvalues < -self.tolerance

    def descent(self, gradient: F64) -> F64:
        """Return the Newton step, downhill also where curvature is negative, long where flat."""
        return np.asarray(-(self._inverse(self._bounded()) @ gradient))

    def distance(self, gradient: F64) -> float:
        """Return the estimated vertical distance to the minimum, g H^-1 g / 2 (Minuit's EDM).

        A slope along a flat direction counts with the least curvature that could be known.
        """
        return float(gradient @ self._inverse(self._bounded()) @ gradient) / 2

    def covariance(self) -> F64:
        """Return 2 H^-1, NaN in rows and columns of parameters that a flat direction moves."""
        with np.errstate(divide="ignore"):
            inverse = np.where(self.flat, 0.0, 1 / self.eigenvalues)
        covariance = 2 * self._inverse(inverse)
        lost = self.undetermined()
        covariance[lost, :] = np.nan
        covariance[:, lost] = np.nan
        return (covariance + covariance.T) / 2

    def undetermined(self) -> Mask:
        """Return which parameters take part in a flat direction."""
        share = (self.vectors[:, self.flat] ** 2).sum(axis=1)
        return np.asarray(share > 1e-6)

    def directions(self, which: Mask) -> F64:
        """Return the space of the selected eigenvectors in parameter units, one direction a row.

        Rows are reduced so that each has a leading parameter with coefficient one that the others
        lack: the shortest way to write the space.
        """
        rows = (self.vectors[:, which] / self.weight[:, None]).T
        # In natural units a small component is noise; in parameter units it may be large.
        rows = np.where(np.abs(self.vectors[:, which].T) > 1e-4, rows, 0.0)
        return _reduced(rows, self.weight)

    def _bounded(self) -> F64:
        return np.asarray(1 / np.maximum(np.abs(self.eigenvalues), self.tolerance))

    def _inverse(self, eigenvalues: F64) -> F64:
        """Return the matrix of these inverse eigenvalues in parameter units."""
        natural = (self.vectors * eigenvalues) @ self.vectors.T
        return np.asarray(natural / np.outer(self.weight, self.weight))


def _reduced(rows: F64, weight: F64) -> F64:
    """Return the reduced row echelon form, with pivots chosen in natural units."""
    rows = rows.copy()
    free = np.ones(rows.shape[1], dtype=bool)
    for k in range(len(rows)):
        natural = np.where(free, np.abs(rows[k] * weight), 0.0)
        # The first of nearly equal components, so that the text does not depend on rounding.
        pivot = int(np.argmax(natural > 0.99 * natural.max()))
        free[pivot] = False
        rows[k] /= rows[k, pivot]
        for other in range(len(rows)):
            if other != k:
                rows[other] -= rows[other, pivot] * rows[k]
    order = np.argsort([int(np.argmax(np.abs(row) > 1e-3 * np.abs(row).max())) for row in rows])
    return np.asarray(rows[order])


def combination_text(direction: F64, names: tuple[str, ...]) -> str:
    """Return a direction as text, for example "a - b" or "mag + 0.25 phase"."""
    largest = np.abs(direction).max()
    terms = [
        (coefficient, name)
        for coefficient, name in zip(direction.tolist(), names, strict=True)
        if abs(coefficient) > 1e-6 * largest
    ]
    if len(terms) == 1:
        return terms[0][1]
    text = ""
    for coefficient, name in terms:
        size = f"{abs(coefficient):.3g}"
        term = name if size == "1" else f"{size} {name}"
        if not text:
            text = f"-{term}" if coefficient < 0 else term
        else:
            text += f" {'-' if coefficient < 0 else '+'} {term}"
    return text
