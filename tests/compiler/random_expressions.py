"""Random expressions for property tests, and how well conditioned they are at given events."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import Expr, Node, ParameterSpec, build
from laddu_dask.expr.node import PREDICATES, walk

Array = NDArray[Any]
EVENTS = 48
PARAMETERS = ("a", "b", "c")
COLUMNS = ("x", "y", "z", "k_pz")
DEPTH = 5
#: Relative distance from a discontinuity that counts as on it.
NEAR = 1e-12

_LITERALS = [0.5, -0.75, 1.0, -1.0, 2.0, 3, 0.1, 1j, 0.5 - 0.25j, -2 + 1j]
_EXPONENTS = [0.25, -0.5, 1.5, 2.75, 0.5 + 0.25j, -0.1j]
_BASES = [2.0, 0.3, -1.5, 1 + 2j]
_UNARY = [
    Expr.sqrt,
    Expr.log,
    Expr.exp,
    Expr.sin,
    Expr.cos,
    Expr.tan,
    Expr.asin,
    Expr.atan,
    Expr.sinh,
    Expr.cosh,
    Expr.tanh,
    abs,
    Expr.conj,
    Expr.real,
    Expr.imag,
    Expr.norm_sqr,
    Expr.__neg__,
    lambda e: e.named("part"),
    lambda e: e.tagged("wave"),
]
#: What goes with vectors and matrices, element by element.
_ANY_SHAPE = [Expr.conj, Expr.real, Expr.imag, Expr.__neg__, lambda e: e.named("many")]


@st.composite
def scalars(draw: st.DrawFn, depth: int = DEPTH) -> Expr:
    """A scalar expression with every operation of the language, at most `depth` levels deep."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(_leaves())
    kind = draw(st.sampled_from("uuuuubbbbbbbpPPewcaAvvdmtn"))
    below = scalars(depth - 1)
    if kind == "u":
        return draw(st.sampled_from(_UNARY))(draw(below))
    if kind == "b":
        a, b, operation = draw(below), draw(below), draw(st.sampled_from("+-*/"))
        return {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operation]
    if kind == "p":
        return draw(below) ** draw(st.integers(-3, 4))
    if kind == "P":
        base = draw(below)
        form = draw(st.sampled_from("lend"))
        if form == "l":
            return draw(st.sampled_from(_BASES)) ** base
        if form == "d":
            return base ** draw(scalars(min(depth - 1, 2)))
        return base ** (draw(st.sampled_from(_EXPONENTS)) if form == "n" else draw(_leaves()))
    if kind == "e":
        extreme = draw(st.sampled_from([ld.minimum, ld.maximum]))
        return extreme(draw(below).real(), draw(scalars(min(depth - 1, 2))).real())
    if kind == "w":
        return ld.where(draw(conditions(depth - 1)), draw(below), draw(below))
    if kind == "c":
        return ld.complex(draw(below), draw(below))
    if kind == "a":
        return ld.atan2(draw(below), draw(below))
    if kind == "A":
        return ld.acos(draw(below))
    if kind == "t":
        phase = draw(below)
        return ld.cis(phase) if draw(st.booleans()) else ld.polar_complex(draw(below), phase)
    if kind == "n":
        return draw(st.sampled_from([ld.sum, ld.prod]))(
            draw(st.lists(below, max_size=3, min_size=1))
        )
    size = draw(st.integers(1, 3))
    if kind == "d":
        return ld.dot(draw(vectors(size, depth - 1)), draw(vectors(size, min(depth - 1, 1))))
    if kind == "m":
        columns = draw(st.integers(1, 2))
        place = draw(st.integers(-size, size - 1)), draw(st.integers(0, columns - 1))
        return draw(matrices(size, columns, depth - 1))[place]
    return draw(vectors(size, depth - 1))[draw(st.integers(-size, size - 1))]


@st.composite
def vectors(draw: st.DrawFn, size: int, depth: int) -> Expr:
    """A vector from every operation that makes one; at most one element is deep."""
    kind = draw(st.sampled_from("eeo+*ups" if depth > 1 else "e"))
    if kind == "e":
        rest = [draw(_leaves()) for _ in range(size - 1)]
        return ld.vector([draw(scalars(max(depth - 1, 0))), *rest])
    if kind == "o":
        return draw(matrices(2, size, depth - 1))[draw(st.integers(-2, 1))]
    if kind == "p":
        inner = draw(st.integers(1, 3))
        return draw(matrices(size, inner, depth - 1)) @ draw(vectors(inner, depth - 2))
    if kind == "s":
        return ld.solve(
            draw(matrices(size, size, min(depth - 1, 2))), draw(vectors(size, depth - 1))
        )
    first = draw(vectors(size, depth - 1))
    if kind == "u":
        return draw(st.sampled_from(_ANY_SHAPE))(first)
    if kind == "+":
        other = draw(st.one_of(vectors(size, depth - 2), _leaves()))
        return first + other if draw(st.booleans()) else other - first
    scale = draw(scalars(min(depth - 1, 1)))
    return first / scale if draw(st.booleans()) else scale * first


@st.composite
def matrices(draw: st.DrawFn, rows: int, columns: int, depth: int) -> Expr:
    """A matrix of leaves, with one deep element, or from operations on such."""
    kind = draw(st.sampled_from("eerp+*u" if depth > 1 else "e"))
    if kind == "e":
        elements = [draw(_leaves()) for _ in range(rows * columns)]
        place = draw(st.integers(0, rows * columns - 1))
        elements[place] = draw(scalars(max(depth - 1, 0)))
        return ld.matrix(elements, (rows, columns))
    if kind == "r":
        return ld.matrix([draw(vectors(columns, min(depth - 1, 1))) for _ in range(rows)])
    first = draw(matrices(rows, columns, depth - 1))
    if kind == "p":
        return first @ draw(matrices(columns, columns, 0))
    if kind == "+":
        return first + draw(matrices(rows, columns, 0))
    return draw(st.sampled_from(_ANY_SHAPE))(first) if kind == "u" else first * draw(_leaves())


def _leaves() -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.sampled_from(PARAMETERS).map(ld.parameter),
        st.sampled_from(COLUMNS[:3]).map(ld.scalar),
        st.just(ld.p4_component("k", "pz")),
        st.sampled_from(_LITERALS).map(Expr),
        st.just(ld.parameter("held", fixed=0.375)),
    )


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> ld.Predicate:
    """Comparisons of real scalars and their combinations."""
    kind = draw(st.sampled_from("<<>=!B&|~" if depth > 1 else "<<>B"))
    if kind == "~":
        return ~draw(conditions(depth - 1))
    if kind in "&|":
        a, b = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return a & b if kind == "&" else a | b
    left, right = draw(scalars(min(depth, 2))).real(), draw(_leaves()).real()
    if kind == "B":
        closed = draw(st.sampled_from(["both", "neither", "left", "right"]))
        return ld.Predicate.between(left, low=right, high=draw(_leaves()).real(), closed=closed)
    return {"<": left < right, ">": left >= right, "=": left == right, "!": left != right}[kind]


def columns(seed: int) -> dict[str, Array]:
    """Events of both signs, most of order one."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=EVENTS) * [1, 1, 3, 0.5][i] for i, name in enumerate(COLUMNS)}


def point(seed: int) -> dict[str, float]:
    """Parameter values of order one."""
    rng = np.random.default_rng([seed, 1])
    return {name: float(value) for name, value in zip(PARAMETERS, rng.normal(size=3), strict=True)}


class Truth:
    """What the oracle says about an expression: values, gradients and how far to trust them.

    Parameters
    ----------
    expr
        The expression.
    seed
        Of the parameter values.
    events
        The events; those of the seed if none are given.

    Attributes
    ----------
    values
        Shape (n,).
    spread
        How far the value moves when each operand and each intermediate result is wrong in its last
        bit: the error that any evaluation in double precision may make.
    gradient
        Central differences extrapolated to fourth order, shape (3, n), zero for parameters that do
        not occur.
    gradient_error
        Distance between two step sizes plus what rounding of the values does to differences: what
        these themselves are wrong by.
    regular
        No intermediate overflows, no root, logarithm, angle or quotient sits on its singular point
        or on its cut, and no comparison on equality.
    """

    REPLICAS = 6
    STEP = 2.0**-10

    def __init__(self, expr: Expr, seed: int, events: dict[str, Array] | None = None) -> None:
        events, at = columns(seed) if events is None else events, point(seed)
        free = {name: ld.scalar(f"parameter {name}").node for name in PARAMETERS}
        plain = _replace(expr.node, free, noise=None)
        inputs = events | {f"parameter {n}": np.full(EVENTS, v) for n, v in at.items()}
        self.values = _broadcast(evaluate(plain, inputs))
        self.regular = _regular(plain, inputs)
        self.spread = self._spread(expr.node, free, inputs, seed)
        self.gradient, self.gradient_error = self._differences(plain, inputs)

    def _spread(
        self, root: Node, free: dict[str, Node], inputs: dict[str, Array], seed: int
    ) -> Array:
        names: list[str] = []
        noisy = _replace(root, free, names)
        rng = np.random.default_rng([seed, 2])
        repeated = {name: np.tile(column, self.REPLICAS) for name, column in inputs.items()}
        size = EVENTS * self.REPLICAS
        for name in names:
            centre = 0.0 if name.endswith("i") else 1.0
            repeated[name] = centre + rng.choice([-1.0, 1.0], size=size) * 2.0**-52
        moved = _broadcast(evaluate(noisy, repeated), size).reshape(self.REPLICAS, EVENTS)
        with np.errstate(all="ignore"):
            return np.abs(moved - self.values).max(axis=0)

    def _differences(self, expr: Expr, inputs: dict[str, Array]) -> tuple[Array, Array]:
        steps = [k * self.STEP * scale for scale in (1, 0.5) for k in (-2, -1, 1, 2)]
        gradient = np.zeros((len(PARAMETERS), EVENTS), dtype=complex)
        error = np.zeros((len(PARAMETERS), EVENTS))
        for row, name in enumerate(PARAMETERS):
            repeated = {key: np.tile(column, len(steps)) for key, column in inputs.items()}
            key = f"parameter {name}"
            repeated[key] = np.concatenate([inputs[key] + step for step in steps])
            moved = evaluate(expr, repeated)
            if moved.size == 1:
                continue
            far = moved.reshape(2, 4, EVENTS)
            with np.errstate(all="ignore"):
                both = (far[:, 0] - 8 * far[:, 1] + 8 * far[:, 2] - far[:, 3]) / 12
                coarse, fine = both[0] / self.STEP, both[1] / (self.STEP / 2)
                gradient[row] = fine
                error[row] = np.abs(fine - coarse) + 2 * self.spread / self.STEP
        return gradient, error


def _broadcast(values: Array, size: int = EVENTS) -> Array:
    return np.broadcast_to(values, (size,))


def _replace(root: Node, free: dict[str, Node], noise: list[str] | None) -> Expr:
    """Parameters become columns, and each value is multiplied by noise columns of its own."""
    done: dict[int, Node] = {}
    for node in walk(root):
        if isinstance(node.data, ParameterSpec) and not node.data.fixed:
            new = free[node.data.name]
        else:
            new = build.rebuild(node, tuple(done[id(arg)] for arg in node.args))
        if node.is_real and not new.is_real:  # a root that noise might have made imaginary
            new = build.part("real", new)
        if noise is not None and new.op not in PREDICATES and new.op != "const":
            name = f"noise {len(noise)}"
            factor = ld.scalar(name + "r")
            noise.append(name + "r")
            if not new.is_real:
                factor = ld.complex(factor, ld.scalar(name + "i"))
                noise.append(name + "i")
            new = build.mul(new, factor.node)
        done[id(node)] = new
    return Expr.of(done[id(root)])


@np.errstate(all="ignore")
def _regular(expr: Expr, inputs: dict[str, Array]) -> Array:
    regular = np.ones(EVENTS, dtype=bool)

    def value(node: Node) -> Array:
        return evaluate(Expr.of(node), inputs)

    for node in walk(expr.node):
        if node.op in {"lt", "le", "eq", "ne", "minimum", "maximum"}:
            a, b = (value(arg).real for arg in node.args)
            regular &= _broadcast(~(np.abs(a - b) <= NEAR * (np.abs(a) + np.abs(b))))
        if node.op in PREDICATES:
            continue
        size = np.abs(value(node))
        regular &= _broadcast((size < 1e60).reshape(-1, size.shape[-1]).all(axis=0))
        if node.op == "solve":
            # Rounding of a literal matrix is not among the noise, and equal entries share theirs.
            systems = np.moveaxis(value(node.args[0]), -1, 0)
            sound = np.isfinite(systems).all(axis=(1, 2))
            condition = np.full(len(systems), np.inf)
            condition[sound] = np.linalg.cond(systems[sound])
            regular &= _broadcast(condition < 1e3)
        singular: list[Array] = []
        if node.op in {"sqrt", "log"} and not node.args[0].is_real:
            singular = [value(node.args[0])]
            regular &= _broadcast(~_on_cut(singular[0]))
        elif node.op == "power":
            singular = [value(node.args[0])]
            if not node.args[0].is_real:
                regular &= _broadcast(~_on_cut(singular[0]))
        elif node.op in {"asin", "atan"}:
            z = value(node.args[0]) * (1j if node.op == "atan" else 1)
            singular = [1 - z, 1 + z]
            regular &= _broadcast(~(_on_cut(1 - z) | _on_cut(1 + z)))
        elif node.op == "atan2":
            y, x = (value(arg).real for arg in node.args)
            singular = [x + 1j * y]
            regular &= _broadcast(~_on_cut(singular[0]))
        elif node.op in {"sqrt", "log", "abs"}:
            singular = [value(node.args[0])]
        elif node.op == "div":
            singular = [value(node.args[1])]
        elif node.op == "pow" and isinstance(node.data, int) and node.data < 0:
            singular = [value(node.args[0])]
        for z in singular:
            regular &= _broadcast(np.abs(z) > 1e-60)
    return regular


def _on_cut(z: Array) -> Array:
    """Whether rounding, or a zero imaginary part that one may or may not carry, picks the side."""
    return np.asarray((z.real < 0) & (np.abs(z.imag) <= NEAR * np.abs(z)))
