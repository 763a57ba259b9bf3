"""The parameter-only program: frontier values from parameters, and the way back.

Runs once per evaluation in plain Python floats with IEEE semantics (1/0 is inf, log(-1) is NaN),
always on the client, so that every worker and backend receives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from laddu_dask.compiler.assumptions import Guard, Property, is_moderate
from laddu_dask.compiler.excerpt import Excerpt, scalar_tangents
from laddu_dask.compiler.ir import ARITY, PARAMETER, Graph, Instruction, Region
from laddu_dask.compiler.layout import ParameterLayout, Vector
from laddu_dask.compiler.program import Program, cut
from laddu_dask.compiler.reverse import adjoints


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _cosh(x: float) -> float:
    try:
        return math.cosh(x)
    except OverflowError:
        return math.inf


def _power(x: float, y: float) -> float:
    """``|x|**y``."""
    size = abs(x)
    if size == 0 and y < 0:
        return math.inf
    try:
        return math.pow(size, y)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan


def _circular(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "neg": lambda a: -a,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "sin": _circular(math.sin),
    "cos": _circular(math.cos),
    "tan": _circular(math.tan),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": math.tanh,
    "abs": abs,
    "hypot": math.hypot,
    "pow": _power,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "select": lambda c, a, b: a if c else b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


def run_scalar(
    instructions: Sequence[Instruction], parameters: Sequence[float], outputs: Sequence[int]
) -> list[float]:
    """Evaluate a program without event inputs."""
    values: list[Any] = []  # of a region: its results, or None where they are not needed
    for op, args, payload in instructions:
        if op == "const":
            assert isinstance(payload, float)
            values.append(payload)
        elif op in {"parameter", "input"}:
            values.append(parameters[int(str(payload))])
        elif isinstance(payload, Region):
            operands = [values[arg] for arg in args[1:]]
            wanted = values[args[0]]
            values.append(
                run_scalar(payload.instructions, operands, payload.outputs) if wanted else None
            )
        elif op == "merge":
            slow, value = (values[arg] for arg in args)
            values.append(value if slow is None else slow[int(str(payload))])
        else:
            values.append(_FUNCTIONS[op](*(values[arg] for arg in args)))
    return [values[output] for output in outputs]


@dataclass(frozen=True)
class Invariants:
    """Frontier values and their pull-back to the free parameters.

    Attributes
    ----------
    forward
        Program parameters -> frontier values.
    pullback
        Program (parameters, adjoints of the differentiated frontier values) -> gradient.
    n_parameters
        Free parameters of the model, those without influence included.
    n_adjoints
        Frontier values that are differentiated; they are the first of the frontier.
    excerpts
        `forward` without guards, and `pullback`, before they were cut.
    guards
        Properties that the last outputs of `forward` must have.
    """

    forward: tuple[tuple[Instruction, ...], tuple[int, ...]]
    pullback: tuple[tuple[Instruction, ...], tuple[int, ...]]
    n_parameters: int
    n_adjoints: int
    excerpts: tuple[Excerpt, Excerpt]
    guards: tuple[Property, ...] = ()

    @property
    def operations(self) -> int:
        """Operations of the frontier values and of the way back, once per evaluation."""
        programs = (self.forward[0], self.pullback[0])
        return sum(ARITY.get(op, 0) > 0 for program in programs for op, _, _ in program)

    def frontier(self, parameters: Vector) -> Vector:
        """Frontier values, in the order in which kernels read them."""
        return self._forward(parameters)[0]

    def valid_frontier(self, parameters: Vector) -> Vector | None:
        """The same, or None where regrouped programs are not valid.

        A guard does not hold, or a value is so large or small that a product of factors in another
        order may leave the exponent range.
        """
        values, guarded = self._forward(parameters)
        valid = all(map(holds, self.guards, guarded)) and all(map(is_moderate, values.tolist()))
        return values if valid else None

    def _forward(self, parameters: Vector) -> tuple[Vector, list[float]]:
        values = run_scalar(*_call(self.forward, parameters.tolist()))
        n = len(values) - len(self.guards)
        return np.array(values[:n], dtype=np.float64), values[n:]

    def gradient(self, parameters: Vector, frontier_adjoints: Vector) -> Vector:
        """Gradient with respect to the free parameters."""
        inputs = [*parameters.tolist(), *frontier_adjoints.tolist()]
        return np.array(run_scalar(*_call(self.pullback, inputs)), dtype=np.float64)

    def jacobian(self, parameters: Vector) -> Vector:
        """Derivatives of the differentiated frontier values, shape (n_adjoints, n_parameters)."""
        rows = [
            self.gradient(parameters, unit) for unit in np.eye(self.n_adjoints, dtype=np.float64)
        ]
        return np.array(rows, dtype=np.float64).reshape(self.n_adjoints, self.n_parameters)

    def pushforward(self, parameters: Vector, direction: Vector) -> Vector:
        """Tangents of all frontier values along a direction of the parameters.

        Also of those that have no adjoint of their own: they are made of others that have one.
        """
        return run(self._tangents, [*parameters.tolist(), *direction.tolist()])

    def second_pullback(
        self, parameters: Vector, direction: Vector, adjoints: Vector, tangents: Vector
    ) -> Vector:
        """Derivative of `gradient` along a direction, given the adjoints and their tangents.

        That is a column of the Hessian when the direction is a unit vector: the curvature of the
        frontier counts, and the change of the adjoints.
        """
        parts = (parameters, adjoints, direction, tangents)
        return run(self._second_pullback, [x for part in parts for x in part.tolist()])

    @cached_property
    def _tangents(self) -> Program:
        return scalar_tangents(self.excerpts[0], self.n_parameters, self.n_parameters)

    @cached_property
    def _second_pullback(self) -> Program:
        n = self.n_parameters + self.n_adjoints
        return scalar_tangents(self.excerpts[1], n, n)


def run(program: Program, inputs: list[float]) -> Vector:
    """Outputs of a program without events."""
    return np.array(run_scalar(program.instructions, inputs, program.outputs), dtype=np.float64)


def holds(assumed: Property, value: float) -> bool:
    """Whether a parameter-only value has the property that a guard demands."""
    return value >= 0 if assumed == "nonnegative" else is_moderate(value)


def _call(
    program: tuple[tuple[Instruction, ...], tuple[int, ...]], inputs: list[float]
) -> tuple[tuple[Instruction, ...], list[float], tuple[int, ...]]:
    return program[0], inputs, program[1]


def split_invariants(
    graph: Graph,
    frontier: Sequence[int],
    n_adjoints: int,
    layout: ParameterLayout,
    optional: Collection[int] = (),
    guards: Sequence[Guard] = (),
) -> Invariants:
    """Cut the parameter-only program out of a graph.

    `frontier` lists the parameter-only values that kernels read; adjoints arrive for the first
    `n_adjoints` of them. Those at the positions `optional` are read in branches only: a zero
    adjoint says that no event took the branch.
    """
    position = {name: i for i, name in enumerate(layout.names)}
    leaves = {
        index: position[str(payload)]
        for index, (op, _, payload) in enumerate(graph.ops)
        if op == "parameter"
    }
    forward = cut(graph, [*frontier, *(guard.value for guard in guards)], {}, leaves)

    # The pull-back differentiates sum(adjoint_k frontier_k): one scalar reverse sweep in which the
    # adjoints are inputs.
    scalar, renamed = copy_below(graph, frontier)
    total: int | None = None
    guarded: set[int] = set()
    for k in range(n_adjoints):
        adjoint = scalar.emit("column", payload=f"adjoint{k}")
        if k in optional:
            guarded.add(adjoint)
        term = scalar.mul(adjoint, renamed[frontier[k]])
        total = term if total is None else scalar.add(total, term)
    names = layout.names
    if total is None:
        zero = scalar.const(0.0)
        outputs = [zero for _ in names]
    else:
        found = parameter_gradients(scalar, total, guarded)
        outputs = [found.get(name, scalar.const(0.0)) for name in names]
    inputs = {
        index: (
            len(names) + int(str(payload).removeprefix("adjoint"))
            if op == "column"
            else position[str(payload)]
        )
        for index, (op, _, payload) in enumerate(scalar.ops)
        if op in {"column", "parameter"}
    }
    back = cut(scalar, outputs, {}, inputs)
    return Invariants(
        (forward.instructions, forward.outputs),
        (back.instructions, back.outputs),
        len(names),
        n_adjoints,
        (
            Excerpt.of(graph, frontier, {}, leaves),
            Excerpt.of(scalar, outputs, {}, inputs),
        ),
        tuple(guard.property for guard in guards),
    )


def copy_below(graph: Graph, outputs: Sequence[int]) -> tuple[Graph, dict[int, int]]:
    """Copy the part below `outputs` into a graph of its own; returns also old -> new values."""
    new = Graph()
    return new, new.copy(graph, outputs)


def parameter_gradients(graph: Graph, root: int, guarded: set[int]) -> dict[str, int]:
    """Adjoints of the parameter leaves below `root`, by name; changes the classes of the graph."""
    kinds = graph.kinds
    # Parameters alone form the frontier of this sweep: every other parameter-dependent value is
    # declared mixed so that the sweep passes through it.
    for index, (op, _, _) in enumerate(graph.ops):
        if op != "parameter" and kinds[index] & PARAMETER:
            kinds[index] = PARAMETER | 1
    reached = adjoints(graph, root, graph.const(1.0), guarded)
    return {str(graph.ops[index][2]): adjoint for index, adjoint in reached.items()}
