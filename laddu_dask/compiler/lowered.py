"""A term as a graph of real values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from laddu_dask.compiler.assumptions import Check, Guard
from laddu_dask.compiler.evaluator import ScalarProgram
from laddu_dask.compiler.excerpt import Excerpt
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.modes import Mode
from laddu_dask.compiler.options import KernelOptions
from laddu_dask.compiler.pairs import Pair


@dataclass(frozen=True)
class Lowered:
    """A value, and what must hold for it to be right.

    Attributes
    ----------
    graph
        The graph; what is made of it continues a branch of its own.
    root
        The value.
    checks, guards
        Assumptions about events and about parameters.
    accepted
        Condition without which an event has no value in this form.
    regrouped
        Whether operations stand in an order other than that of the written form. Values are then
        assumed to be moderate, and columns are chosen by what they cost.
    pullbacks
        Ways back to the parameters that have been found, by what they differentiate: the same for
        all transforms.
    drafts
        Event programs that serve two transforms, by mode of differentiation and options; what they
        are is a matter of `laddu_dask.compiler.assembly`.
    """

    graph: Graph
    root: Pair
    checks: tuple[Check, ...] = ()
    guards: tuple[Guard, ...] = ()
    accepted: int | None = None
    regrouped: bool = True
    pullbacks: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[ScalarProgram, Excerpt]] = field(
        default_factory=dict, repr=False, compare=False
    )
    drafts: dict[tuple[Mode, KernelOptions], Any] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def roots(self) -> tuple[int, ...]:
        """Everything that programs compute of it."""
        parts = (*self.root, self.accepted)
        return tuple(part for part in parts if part is not None)

    @property
    def subjects(self) -> tuple[int, ...]:
        """The roots, and what must be right for them."""
        checked = [value for check in self.checks for value in (check.value, check.other)]
        guarded = [guard.value for guard in self.guards]
        return (*self.roots, *(value for value in checked if value is not None), *guarded)
