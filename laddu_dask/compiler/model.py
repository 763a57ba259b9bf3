"""Compiling an expression: the written form, or the cheapest of several regrouped ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra, Term
from laddu_dask.compiler.assembly import CompiledModel, Transform, assemble
from laddu_dask.compiler.assumptions import Assumptions, Guard
from laddu_dask.compiler.cost import LOAD, cost
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.packing import LEAST_REMAINDER, Packed, pack
from laddu_dask.compiler.pairs import Pair
from laddu_dask.errors import ExpressionError
from laddu_dask.expr.expression import Expr


@dataclass(frozen=True)
class Candidate:
    """A regrouped form.

    Attributes
    ----------
    name
        How its sums are arranged.
    model
        The form, compiled.
    cost
        Estimate that decides, in nanoseconds per event; see `laddu_dask.compiler.cost`.
    """

    name: str
    model: CompiledModel
    cost: float


def compile_model(
    expr: Expr,
    transform: Transform,
    assumptions: Assumptions | None = None,
    *,
    load: float = LOAD,
) -> CompiledModel:
    """Compile a scalar expression.

    Parameters
    ----------
    expr
        The expression.
    transform
        What a pass computes.
    assumptions
        None: operations are those of the written form, in its order. Otherwise they are regrouped
        so that little is left inside the event loop, and event values are taken to have the
        assumed properties; the cheapest of several forms is chosen.
    load
        Cost of a cached column in nanoseconds per event. A larger one saves memory: more values are
        computed again from fewer columns. No result depends on it.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """
    if expr.shape:
        raise ExpressionError(
            f"a model must be a scalar, got shape {expr.shape}; pick an element or use norm_sqr()",
            operation="model",
            shapes=[expr.shape],
        )
    layout = ParameterLayout.of(expr.node)
    if assumptions is None:
        graph, (root,) = lower(expr.node)
        return assemble(graph, root, transform, layout)
    algebra, term = normalize(expr.node, assumptions)
    return compile_term(algebra, term, transform, layout, load=load)


def compile_term(
    algebra: Algebra,
    term: Term,
    transform: Transform,
    layout: ParameterLayout,
    *,
    load: float = LOAD,
) -> CompiledModel:
    """The cheapest form of a term in normal form.

    The choice does not depend on `load`, or bits would.
    """
    forms = _forms(algebra, term)
    candidates = _ranked(forms, transform, layout)
    best = min(candidates, key=lambda candidate: candidate.cost)
    if load == LOAD:
        return best.model
    return forms[candidates.index(best)][1].assemble(transform, layout, load)


def compile_candidates(
    expr: Expr, transform: Transform, assumptions: Assumptions
) -> list[Candidate]:
    """Every form that was considered, to explain the choice; `compile_model` takes the cheapest."""
    layout = ParameterLayout.of(expr.node)
    return _ranked(_forms(*normalize(expr.node, assumptions)), transform, layout)


def _forms(algebra: Algebra, term: Term) -> list[tuple[str, _Form]]:
    """Lowered forms that differ."""
    found = {
        "factors kept outside sums": _Form.of(algebra, term, distribute=False),
        "factors distributed": _Form.of(algebra, term, distribute=True),
    }
    kept, distributed = found.values()
    if kept.equals(distributed):
        del found["factors distributed"]
    packed = pack(algebra, term)
    if packed is not None:
        found["incoherent sums packed"] = _Form.packed(algebra, packed)
    return list(found.items())


@dataclass(frozen=True)
class _Form:
    grouping: Grouping
    root: Pair
    accepted: int | None = None

    @classmethod
    def of(cls, algebra: Algebra, term: Term, *, distribute: bool) -> _Form:
        """Lower a term."""
        grouping = Grouping(algebra, distribute=distribute)
        (root,) = grouping.lower(term)
        return cls(grouping, root)

    @classmethod
    def packed(cls, algebra: Algebra, packed: Packed) -> _Form:
        """Lower a packed term, with the condition that its products do not cancel."""
        grouping = Grouping(algebra, distribute=False)
        g = grouping.graph
        scales = grouping.lower(*packed.scales)
        squares, interferences, *rest = grouping.lower(*packed.parts)
        grouping.guards += [
            Guard(pairs.re(g, scale), "nonnegative")
            for scale, term in zip(scales, packed.scales, strict=True)
            if term.literal is None
        ]
        total = pairs.add(g, squares, interferences)
        share = g.mul(g.const(LEAST_REMAINDER), pairs.re(g, squares))
        accepted = g.emit("le", share, pairs.re(g, total))
        return cls(grouping, pairs.add(g, total, rest[0]) if rest else total, accepted)

    def equals(self, other: _Form) -> bool:
        """Whether both are the same operations."""
        ours, theirs = self.grouping, other.grouping
        return self.root == other.root and ours.graph.ops == theirs.graph.ops

    def assemble(self, transform: Transform, layout: ParameterLayout, load: float) -> CompiledModel:
        """Differentiate and cut."""
        lowered = self.grouping
        return assemble(
            lowered.graph,
            self.root,
            transform,
            layout,
            lowered.checks,
            lowered.guards,
            load=load,
            accepted=self.accepted,
        )


def _ranked(
    forms: Iterable[tuple[str, _Form]], transform: Transform, layout: ParameterLayout
) -> list[Candidate]:
    candidates = []
    for name, form in forms:
        model = form.assemble(transform, layout, LOAD)
        candidates.append(Candidate(name, model, cost(model.programs)))
    return candidates
