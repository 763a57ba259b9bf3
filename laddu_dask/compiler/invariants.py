"""The parameter-only program: frontier values from parameters, and the way back.

Runs once per evaluation, always on the client, so that every worker and backend receives the same
bits (see `laddu_dask.compiler.evaluator`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from laddu_dask.compiler.assumptions import Guard, Property
from laddu_dask.compiler.evaluator import Demands, Evaluator, ScalarProgram
from laddu_dask.compiler.excerpt import Excerpt, scalar_tangents
from laddu_dask.compiler.ir import ARITY, PARAMETER, Graph
from laddu_dask.compiler.layout import ParameterLayout, Vector
from laddu_dask.compiler.precision import Precision
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.reverse import adjoints


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
    precision
        To what kernels round the frontier values. They are doubles here, and so are all sums.
    evaluator
        How programs are run; backends have faster ways.
    """

    forward: ScalarProgram
    pullback: ScalarProgram
    n_parameters: int
    n_adjoints: int
    excerpts: tuple[Excerpt, Excerpt]
    guards: tuple[Property, ...] = ()
    precision: Precision = "f64"
    evaluator: type[Evaluator] = field(default=Evaluator, repr=False, compare=False)

    @property
    def operations(self) -> int:
        """Operations of the frontier values and of the way back, once per evaluation."""
        programs = (self.forward[0], self.pullback[0])
        return sum(ARITY.get(op, 0) > 0 for program in programs for op, _, _ in program)

    def frontier(self, parameters: Vector) -> Vector:
        """Frontier values, in the order in which kernels read them.

        Also those that are NaN, so this is always done in the same way: kernels may look at signs.
        """
        return self._run_written(parameters)[: self._n_frontier]

    def valid_frontier(self, parameters: Vector) -> Vector | None:
        """The same, or None where regrouped programs are not valid.

        A guard does not hold, or a value is so large or small that a product of factors in another
        order may leave the exponent range.
        """
        return self._run_forward.valid(parameters)

    def weighted(self, parameters: Vector, weights: Vector) -> tuple[float, float] | None:
        """Weighted sums of a valid frontier and of its moduli; see `Evaluator.weighted`."""
        return self._run_forward.weighted(weights, parameters)

    def gradient(self, parameters: Vector, frontier_adjoints: Vector) -> Vector:
        """Gradient with respect to the free parameters."""
        return self._run_pullback(parameters, frontier_adjoints)

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
        return self._run_tangents(parameters, direction)

    def second_pullback(
        self, parameters: Vector, direction: Vector, adjoints: Vector, tangents: Vector
    ) -> Vector:
        """Derivative of `gradient` along a direction, given the adjoints and their tangents.

        That is a column of the Hessian when the direction is a unit vector: the curvature of the
        frontier counts, and the change of the adjoints.
        """
        return self._run_second_pullback(parameters, adjoints, direction, tangents)

    @property
    def _n_frontier(self) -> int:
        return len(self.forward[1]) - len(self.guards)

    @cached_property
    def _run_written(self) -> Evaluator:
        return Evaluator(self.forward)

    @cached_property
    def _run_forward(self) -> Evaluator:
        return self.evaluator(self.forward, Demands(self.guards, self.precision))

    @cached_property
    def _run_pullback(self) -> Evaluator:
        return self.evaluator(self.pullback)

    @cached_property
    def _run_tangents(self) -> Evaluator:
        program = scalar_tangents(self.excerpts[0], self.n_parameters, self.n_parameters)
        return self.evaluator((program.instructions, program.outputs))

    @cached_property
    def _run_second_pullback(self) -> Evaluator:
        n = self.n_parameters + self.n_adjoints
        program = scalar_tangents(self.excerpts[1], n, n)
        return self.evaluator((program.instructions, program.outputs))


def forward(
    graph: Graph, frontier: Sequence[int], guards: Sequence[Guard], layout: ParameterLayout
) -> tuple[ScalarProgram, Excerpt]:
    """Program parameters -> `frontier`, the parameter-only values that kernels read, and guards.

    Also what gives tangents of the frontier.
    """
    leaves = _leaf_positions(graph, layout)
    program = cut(graph, [*frontier, *(guard.value for guard in guards)], {}, leaves)
    excerpt = Excerpt.of(graph, frontier, {}, leaves)
    return (program.instructions, program.outputs), excerpt


def pullback(
    graph: Graph,
    differentiated: Sequence[int],
    optional: Collection[int],
    layout: ParameterLayout,
) -> tuple[ScalarProgram, Excerpt]:
    """Program parameters, then adjoints of frontier values -> gradient; and what differentiates it.

    Those at the positions `optional` are read in branches only: a zero adjoint says that no event
    took the branch.
    """
    # It differentiates sum(adjoint_k frontier_k): one scalar reverse sweep in which the adjoints
    # are inputs.
    scalar, renamed = copy_below(graph, differentiated)
    total: int | None = None
    guarded: set[int] = set()
    for k, value in enumerate(differentiated):
        adjoint = scalar.emit("column", payload=f"adjoint{k}")
        if k in optional:
            guarded.add(adjoint)
        term = scalar.mul(adjoint, renamed[value])
        total = term if total is None else scalar.add(total, term)
    names = layout.names
    if total is None:
        zero = scalar.const(0.0)
        outputs = [zero for _ in names]
    else:
        found = parameter_gradients(scalar, total, guarded)
        outputs = [found.get(name, scalar.const(0.0)) for name in names]
    inputs = _leaf_positions(scalar, layout)
    for index, (op, _, payload) in enumerate(scalar.ops):
        if op == "column":
            inputs[index] = len(names) + int(str(payload).removeprefix("adjoint"))
    program = cut(scalar, outputs, {}, inputs)
    excerpt = Excerpt.of(scalar, outputs, {}, inputs)
    return (program.instructions, program.outputs), excerpt


def _leaf_positions(graph: Graph, layout: ParameterLayout) -> dict[int, int]:
    position = {name: i for i, name in enumerate(layout.names)}
    return {
        index: position[str(payload)]
        for index, (op, _, payload) in enumerate(graph.ops)
        if op == "parameter"
    }


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
