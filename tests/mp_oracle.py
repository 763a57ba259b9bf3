"""Expression graphs in multiprecision: values, derivatives and how well conditioned they are.

`Exact` follows the graph at one event with 150 digits. All else comes from evaluating it again:
derivatives are central differences with a step of 1e-18, and conditioning is what a relative error
of 1e-25 in every literal, input and intermediate result does to a number, divided by 1e-25. The
digits are enough for what such an error does to a difference of numbers as large as 1e100. A
computation in double precision may be wrong by a few times 1e-16 of the conditioning.

Multiprecision numbers have no signed zero, so a value on a cut with an imaginary part of zero is
taken from above, and only where that zero stems from roots and logarithms of real values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpmath import mp, mpc, mpf

from laddu_dask.expr import Expr, Node, ParameterSpec
from laddu_dask.expr.node import PREDICATES, walk

DIGITS = 150
STEP = 1e-18
NOISE = 1e-25
REPLICAS = 4
#: Values beyond leave the range of doubles in some square or product.
LARGEST, SMALLEST = 1e100, 1e-100

#: Operations whose result is one of the operands or their parts, without rounding.
_EXACT = frozenset(
    {"neg", "conj", "real", "imag", "complex", "vector", "matrix", "element", "named", "tagged"}
) | {"where", "minimum", "maximum"}
#: Real for real operands. The others make an imaginary part that real arguments may lack.
_SETTLED = frozenset({"const", "complex"})


class Irregular(Exception):  # noqa: N818  # a verdict on an event, not an error
    """Nothing can be said at this event: a singular point, a cut, or numbers out of range."""


class Exact:
    """One expression at one event.

    Parameters
    ----------
    expr
        A scalar expression.
    inputs
        Columns and parameters by name; their names must differ.
    noise
        None, or a generator of the relative errors of one replica.
    centre
        The replica at the point from which `inputs` differ by a step, if they do. Operands and
        results then are what they are there plus the difference, with an error of its own in each
        place: every term of a derivative is rounded too.

    Attributes
    ----------
    value
        The number.
    values
        Numbers by node, lists for vectors and matrices.
    history
        Numbers before and after their errors, in the order of the graph.
    margins
        Distances from where the value would jump or be singular, in the order of the graph.
    """

    def __init__(
        self,
        expr: Expr,
        inputs: Mapping[str, Any],
        noise: np.random.Generator | None = None,
        centre: Exact | None = None,
    ) -> None:
        self.margins: list[Any] = []
        self.history: list[tuple[Any, Any]] = []
        self._noise, self._centre = noise, centre
        self._replica = 0 if noise is None else int(noise.integers(2**32))
        self.values: dict[int, Any] = {}
        #: Whether an imaginary part of zero may be no more than a root or logarithm that is real.
        self._soft: dict[int, bool] = {}
        for node in walk(expr.node):
            args = [self._operand(node, arg) for arg in node.args]
            soft = node.op not in _SETTLED and all(self._soft[id(arg)] for arg in node.args)
            self._soft[id(node)] = soft or node.is_real or node.op in PREDICATES
            if node.op in {"column", "parameter"}:
                value = self._leaf(node, inputs)
            else:
                value = _RULES[node.op](self, node, *args)
            self.values[id(node)] = self._finish(node, value)
        self.value = self.values[id(expr.node)]

    def _operand(self, node: Node, arg: Node) -> Any:
        value = self.values[id(arg)]
        if self._noise is None or self._centre is None or node.op in _EXACT or arg.op in PREDICATES:
            return value
        there = self._centre.values[id(arg)]
        many = isinstance(value, list)
        moved = [
            b + _disturbed(a - b, a, self._noise.uniform(-1, 1, size=2))
            for a, b in (zip(value, there, strict=True) if many else [(value, there)])
        ]
        if arg.is_real:
            moved = [number.real for number in moved]
        return moved if many else moved[0]

    def _leaf(self, node: Node, inputs: Mapping[str, Any]) -> Any:
        if isinstance(node.data, ParameterSpec):
            spec = node.data
            return mpf(spec.initial) if spec.fixed else inputs[spec.name]
        return inputs[str(node.data)]

    def _finish(self, node: Node, value: Any) -> Any:
        if node.op in PREDICATES:
            return value
        if node.op in _EXACT:
            return value
        if isinstance(value, list):
            return [self._rounded(node, entry) for entry in value]
        return self._rounded(node, value)

    def _rounded(self, node: Node, value: Any) -> Any:
        if not isinstance(value, mpc):
            value = mpc(value)
        assert value.imag == 0 or not node.is_real, node.op
        if value and not SMALLEST < abs(value) < LARGEST:
            raise Irregular
        if self._noise is not None:
            exact, errors = value, self._noise.uniform(-1, 1, size=4)
            if self._centre is None:
                value = _disturbed(value, value, errors[:2])
            else:
                before, after = self._centre.history[len(self.history)]
                value = after + _disturbed(value - before, value, errors[2:])
            self.history.append((exact, value))
        return value.real if node.is_real else value

    def backward(self, node: Node, entries: list[Any]) -> list[Any]:
        """What elimination solves in truth: each entry is wrong by a share of the largest one."""
        if self._noise is None:
            return entries
        largest = max(abs(entry) for entry in entries)
        # The same errors at all points of a difference, whatever else is drawn in between.
        place = np.frombuffer(node.digest, dtype=np.uint32).tolist()
        rng = np.random.default_rng([*place, len(entries), self._replica])
        plain = all(mpc(entry).imag == 0 for entry in entries)
        moved = []
        for entry in entries:
            r, s = (largest * NOISE * mpf(float(x)) for x in rng.uniform(-1, 1, size=2))
            moved.append(entry + r if plain else entry + mpc(r, s))
        return moved

    def apart(self, distance: Any) -> None:
        """Note how far the event is from a singular point or a jump."""
        self.margins.append(distance)

    def nonzero(self, z: Any) -> None:
        """The operation is singular at zero."""
        if z == 0:
            raise Irregular
        self.apart(abs(z))

    def off_cut(self, node: Node, z: Any) -> None:
        """The operation has a cut along the negative real axis."""
        z = mpc(z)
        if z.real < 0 and z.imag == 0 and not self._soft[id(node)]:
            raise Irregular
        self.apart(z.imag if z.real < 0 and z.imag else abs(z))


def _disturbed(z: Any, scale: Any, errors: Any) -> Any:
    """`z` with relative errors; where a part of `scale` is exactly zero, parts stay apart."""
    r, s = (NOISE * mpf(float(x)) for x in errors)
    if scale.real and scale.imag:
        return z * mpc(1 + r, s)
    return mpc(z.real * (1 + r), z.imag * (1 + s))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, node, *args: function(*args)


def _each(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def rule(_: Exact, node: Node, a: Any) -> Any:
        return [function(x) for x in a] if isinstance(a, list) else function(a)

    return rule


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def rule(_: Exact, node: Node, a: Any, b: Any) -> Any:
        if not isinstance(a, list) and not isinstance(b, list):
            return function(a, b)
        size = len(a) if isinstance(a, list) else len(b)
        left = a if isinstance(a, list) else [a] * size
        right = b if isinstance(b, list) else [b] * size
        return [function(x, y) for x, y in zip(left, right, strict=True)]

    return rule


def _divide(at: Exact, node: Node, a: Any, b: Any) -> Any:
    at.nonzero(b)
    return _elementwise(lambda x, y: x / y)(at, node, a, b)


def _cut(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def rule(at: Exact, node: Node, a: Any) -> Any:
        at.nonzero(a)
        if not node.is_real:
            at.off_cut(node.args[0], a)
        return function(a)

    return rule


def _integer_power(at: Exact, node: Node, a: Any) -> Any:
    if isinstance(node.data, int) and node.data < 0:
        at.nonzero(a)
    result = mpf(1)
    for _ in range(abs(int(str(node.data)))):
        result = result * a
    return 1 / result if int(str(node.data)) < 0 else result


def _power(at: Exact, node: Node, a: Any, b: Any) -> Any:
    at.nonzero(a)
    if not node.args[0].is_real or not node.args[0].is_nonnegative:
        at.off_cut(node.args[0], a)
    return mp.exp(b * mp.log(a))


def _inverse(function: Callable[[Any], Any], turn: complex) -> Callable[..., Any]:
    """asin and atan: singular, and cut outwards, at +-1 and +-i."""

    def rule(at: Exact, node: Node, a: Any) -> Any:
        z = mpc(a) * mpc(turn)
        for side in (1 - z, 1 + z):
            at.nonzero(side)
            if side.imag == 0 and side.real < 0:
                raise Irregular
            at.apart(side.imag if side.real < 0 else mpf(1))
        return function(mpc(a))

    return rule


def _singular(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def rule(at: Exact, node: Node, a: Any) -> Any:
        at.nonzero(a)
        return function(a)

    return rule


def _atan2(at: Exact, node: Node, y: Any, x: Any) -> Any:
    if y == 0 and x <= 0:
        raise Irregular
    at.apart(y if x < 0 else mp.hypot(x, y))
    return mp.atan2(y, x)


def _compare(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def rule(at: Exact, node: Node, a: Any, b: Any) -> bool:
        if node.args[0] is not node.args[1]:
            at.apart(a - b)
        return function(a, b)

    return rule


def _extreme(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def rule(at: Exact, node: Node, a: Any, b: Any) -> Any:
        if node.args[0] is not node.args[1]:
            at.apart(a - b)
        return function(a, b)

    return rule


def _product(at: Exact, node: Node, a: Any, b: Any) -> Any:
    inner = node.args[0].shape[-1]
    columns = node.args[1].shape[1] if len(node.args[1].shape) == 2 else 1
    found = [
        sum((a[row * inner + k] * b[k * columns + column] for k in range(inner)), mpf(0))
        for row in range(len(a) // inner)
        for column in range(columns)
    ]
    return found if node.shape else found[0]


def _solve(at: Exact, node: Node, a: Any, b: Any) -> Any:
    n = len(b)
    a, b = at.backward(node, a), at.backward(node, b)
    rows = [[*a[i * n : (i + 1) * n], b[i]] for i in range(n)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        at.nonzero(rows[k][k])
        for i in range(n):
            if i != k:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [rows[k][n] / rows[k][k] for k in range(n)]


_RULES: dict[str, Callable[..., Any]] = {
    "const": lambda _, node: mpc(node.data),
    "add": _elementwise(lambda a, b: a + b),
    "sub": _elementwise(lambda a, b: a - b),
    "mul": _elementwise(lambda a, b: a * b),
    "div": _divide,
    "neg": _each(lambda a: -a),
    "pow": _integer_power,
    "power": _power,
    "sqrt": _cut(mp.sqrt),
    "log": _cut(mp.log),
    "exp": _plain(mp.exp),
    "sin": _plain(mp.sin),
    "cos": _plain(mp.cos),
    "tan": _plain(mp.tan),
    "sinh": _plain(mp.sinh),
    "cosh": _plain(mp.cosh),
    "tanh": _plain(mp.tanh),
    "asin": _inverse(mp.asin, 1),
    "atan": _inverse(mp.atan, 1j),
    "abs": _singular(abs),
    "norm_sqr": _plain(lambda a: mpc(a).real ** 2 + mpc(a).imag ** 2),
    "minimum": _extreme(min),
    "maximum": _extreme(max),
    "real": _each(lambda a: mpc(a).real),
    "imag": _each(lambda a: mpc(a).imag),
    "conj": _each(mp.conj),
    "complex": _plain(mpc),
    "atan2": _atan2,
    "vector": _plain(lambda *elements: list(elements)),
    "matrix": _plain(lambda *elements: list(elements)),
    "element": lambda _, node, a: a[node.data],
    "dot": _product,
    "matvec": _product,
    "matmul": _product,
    "solve": _solve,
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "eq": _compare(lambda a, b: a == b),
    "ne": _compare(lambda a, b: a != b),
    "and": _plain(lambda a, b: a and b),
    "or": _plain(lambda a, b: a or b),
    "not": _plain(lambda a: not a),
    "where": _plain(lambda condition, a, b: a if condition else b),
    "named": _plain(lambda a: a),
    "tagged": _plain(lambda a: a),
}


class Verdict:
    """What is true at one event, and how far a computation in double precision may be off.

    Attributes
    ----------
    value, gradient
        The value and its derivatives by the parameters, as complex doubles.
    scale, slope_scale
        Conditioning of both: the error may be a few times 1e-16 of it.
    """

    #: A relative error of this size in everything must not reach a jump or a singular point.
    NEAR = 1e-11

    def __init__(
        self, expr: Expr, columns: Mapping[str, float], at: Mapping[str, float], seed: int
    ) -> None:
        """Raise `Irregular` where the event is too close to a jump or a singular point."""
        with mp.workdps(DIGITS):
            inputs = {name: mpf(number) for name, number in (columns | dict(at)).items()}
            runs = [self._run(expr, inputs, tuple(at), seed, r) for r in range(REPLICAS + 1)]
            exact = runs[0]
            for margin, *moved in zip(*(run[2] for run in runs), strict=True):
                reach = max(abs(m - margin) for m in moved) / NOISE
                if abs(margin) <= self.NEAR * reach:
                    raise Irregular
            self.value = complex(exact[0])
            self.gradient = np.array([complex(slope) for slope in exact[1]])
            self.scale = max(float(abs(run[0] - exact[0]) / NOISE) for run in runs)
            spreads = [
                [float(abs(a - b) / NOISE) for a, b in zip(run[1], exact[1], strict=True)]
                for run in runs
            ]
            self.slope_scale = np.array(spreads).max(axis=0)

    def _run(
        self, expr: Expr, inputs: dict[str, Any], names: Sequence[str], seed: int, replica: int
    ) -> tuple[Any, list[Any], list[Any]]:
        def evaluate(moved: Mapping[str, Any], centre: Exact | None = None) -> Exact:
            noise = np.random.default_rng([seed, replica]) if replica else None
            return Exact(expr, moved, noise, centre)

        centre = evaluate(inputs)
        slopes = []
        for name in names:
            up, down = (
                evaluate(inputs | {name: inputs[name] + sign * mpf(STEP)}, centre).value
                for sign in (1, -1)
            )
            slopes.append((up - down) / (2 * mpf(STEP)))
        return centre.value, slopes, centre.margins
