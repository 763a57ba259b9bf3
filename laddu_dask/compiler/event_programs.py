"""The event programs of a compiled model: what workers need."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from laddu_dask.compiler.assumptions import Check
from laddu_dask.compiler.excerpt import Curvature, Excerpt, curvature
from laddu_dask.compiler.precision import Precision
from laddu_dask.compiler.program import Program
from laddu_dask.errors import LadduError


@dataclass(frozen=True)
class EventPrograms:
    """What workers need; plain data, picklable, the same for every backend.

    Attributes
    ----------
    columns
        Event columns that `prepare` reads, in order.
    prepare
        Event columns -> cached columns.
    value, gradient
        Cached columns, then the weight as last row, and the frontier -> output rows. `value` gives
        the value row (two rows, real and imaginary part, for ``complex``); `gradient` gives the
        same rows followed by the adjoint rows of the frontier.
    n_cached
        Number of cached columns, the weight not counted.
    checks
        Rows of `prepare`, with the property that each must have.
    regrouped
        Whether the order of operations is not the written one, so that event values which meet
        parameters must be moderate (see `laddu_dask.compiler.precision`).
    ranged
        Rows of `prepare` with these values, whether they are cached or computed again.
    excerpt
        `gradient` before it was cut; None where there is nothing to differentiate.
    precision
        That of `value` and `gradient`, and of the columns that they read. `prepare` works in double
        precision whatever it is, and the columns are rounded afterwards.
    """

    columns: tuple[str, ...]
    prepare: Program
    value: Program
    gradient: Program
    n_cached: int
    checks: tuple[Check, ...] = ()
    regrouped: bool = False
    ranged: tuple[int, ...] = ()
    excerpt: Excerpt | None = None
    precision: Precision = "f64"

    @cached_property
    def curvature(self) -> Curvature:
        """Second derivatives along a direction; made when it is first asked for.

        Raises
        ------
        LadduError
            These programs have no derivative.
        """
        if self.excerpt is None:
            raise LadduError("sums without parameters have no second derivatives")
        return curvature(self.excerpt, self.value.n_outputs, self.precision)

    @cached_property
    def digest(self) -> str:
        """Content digest; part of the identity of prepared data."""
        parts = (
            self.prepare.digest,
            self.value.digest,
            self.gradient.digest,
            self.checks,
            self.ranged,
            self.precision,
        )
        return hashlib.blake2b(repr((self.columns, parts)).encode(), digest_size=16).hexdigest()
