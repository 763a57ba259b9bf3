"""A term as a graph of real values."""

from __future__ import annotations

from dataclasses import dataclass

from laddu_dask.compiler.assumptions import Check, Guard
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair


@dataclass(frozen=True)
class Lowered:
    """A value, and what must hold for it to be right.

    Attributes
    ----------
    graph
        The graph; later passes append to it.
    root
        The value.
    checks, guards
        Assumptions about events and about parameters.
    accepted
        Condition without which an event has no value in this form.
    """

    graph: Graph
    root: Pair
    checks: tuple[Check, ...] = ()
    guards: tuple[Guard, ...] = ()
    accepted: int | None = None

    @property
    def roots(self) -> tuple[int, ...]:
        """Everything that programs compute of it."""
        parts = (*self.root, self.accepted)
        return tuple(part for part in parts if part is not None)
