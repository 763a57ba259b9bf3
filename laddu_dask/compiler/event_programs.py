"""The event programs of a compiled model: what workers need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from laddu_dask.compiler.assumptions import RANGE, Check, Property
from laddu_dask.compiler.boundary import columns_below, leaf_rows
from laddu_dask.compiler.excerpt import Curvature, Excerpt, curvature
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.precision import RANGES, Precision
from laddu_dask.compiler.program import Program, cut
from laddu_dask.compiler.questions import Question
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

    @classmethod
    def of(
        cls,
        graph: Graph,
        value: Program,
        gradient: Program,
        cached: Sequence[int],
        checks: Iterable[Check],
        ranged: Sequence[int] | None,
    ) -> EventPrograms:
        """With the program that prepares for these two what they read and what is checked.

        Parameters
        ----------
        graph
            The graph that they were cut out of.
        value, gradient
            The programs.
        cached
            Values that they have as inputs, in order.
        checks
            Values with the property that each must have.
        ranged
            Values that must be moderate; None for the written form, which asks that of none.
        """
        checks = list(dict.fromkeys(checks))
        looked_at = [value for check in checks for value in (check.value, check.other)]
        rows = [value for value in (*cached, *(ranged or ()), *looked_at) if value is not None]
        prepared = list(dict.fromkeys(rows))
        place = {value: row for row, value in enumerate(prepared)}
        columns = columns_below(graph, prepared)
        return cls(
            columns=columns,
            prepare=cut(graph, prepared, leaf_rows(graph, columns), {}),
            value=value,
            gradient=gradient,
            n_cached=len(cached),
            checks=tuple(check.moved(place.__getitem__) for check in checks),
            regrouped=ranged is not None,
            ranged=tuple(place[value] for value in ranged or ()),
            precision=value.precision,
        )

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """What is asked about the rows of `prepare`: `findings` reads the answers."""
        low, high = RANGES[self.precision]
        return (
            *(check.question(self.precision) for check in self.checks),
            *(Question("extreme", row, low=low, high=high) for row in self.ranged),
        )

    def findings(self, answers: Sequence[int]) -> dict[bytes, Property]:
        """What some events leave of assumptions that they contradict, by digest."""
        found: dict[bytes, Property] = {}
        for check, answer in zip(self.checks, answers, strict=False):
            finding = check.finding(answer, self.precision)
            if finding is not None:
                found[check.digest] = finding
        if any(answers[len(self.checks) :]):
            found[RANGE] = "open"
        return found

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
