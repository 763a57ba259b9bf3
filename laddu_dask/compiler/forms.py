"""The regrouped forms of a term, among which the cost model chooses."""

from __future__ import annotations

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assumptions import Guard
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.packing import LEAST_REMAINDER, Packed, pack
from laddu_dask.compiler.specialize import specialize
from laddu_dask.compiler.terms import Term


def regrouped_forms(algebra: Algebra, term: Term) -> dict[str, Lowered]:
    """Forms that differ, by the way in which their sums are arranged.

    What is known about the values of the events has been put in.
    """
    grouping = Grouping(algebra.copy(), distribute=False)
    kept = _form(grouping, term)
    found = {"factors kept outside sums": kept}
    if grouping.distributable:
        distributed = _form(Grouping(algebra.copy(), distribute=True), term)
        if distributed.root != kept.root or distributed.graph.ops != kept.graph.ops:
            found["factors distributed"] = distributed
    own = algebra.copy()
    packed = pack(own, term)
    if packed is not None:
        found["incoherent sums packed"] = _packed_form(own, packed)
    return {name: specialize(form, algebra.assumptions) for name, form in found.items()}


def _form(grouping: Grouping, term: Term) -> Lowered:
    (root,) = grouping.lower(term)
    return Lowered(grouping.graph, root, tuple(grouping.checks), tuple(grouping.guards))


def _packed_form(algebra: Algebra, packed: Packed) -> Lowered:
    """Lower a packed term, with the condition that its products do not cancel."""
    grouping = Grouping(algebra, distribute=False)
    g = grouping.graph
    scales = grouping.lower(*packed.scales)
    squares, interferences, *rest = grouping.lower(*packed.parts)
    guards = [
        Guard(pairs.re(g, scale), "nonnegative")
        for scale, term in zip(scales, packed.scales, strict=True)
        if term.literal is None
    ]
    total = pairs.add(g, squares, interferences)
    share = g.mul(g.const(LEAST_REMAINDER), pairs.re(g, squares))
    accepted = g.emit("le", share, pairs.re(g, total))
    return Lowered(
        g,
        pairs.add(g, total, rest[0]) if rest else total,
        tuple(grouping.checks),
        (*grouping.guards, *guards),
        accepted,
    )
