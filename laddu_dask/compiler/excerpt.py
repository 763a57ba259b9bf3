"""A part of a graph cut loose to be differentiated once more.

Like a program it goes from inputs and parameters to outputs, but systems, complex functions and
guards of branches are still whole, so that derivatives stay short. It is plain data; the programs
of second derivatives are made from it when somebody asks for them, here or on a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laddu_dask.compiler.boundary import boundary
from laddu_dask.compiler.forward import tangents
from laddu_dask.compiler.ir import PARAMETER, Graph, Instruction, live
from laddu_dask.compiler.precision import Precision
from laddu_dask.compiler.program import Program, cut


@dataclass(frozen=True)
class Excerpt:
    """Instructions of a graph whose leaves are numbered.

    Attributes
    ----------
    instructions
        In order; ``column`` and ``parameter`` leaves have their number as payload.
    outputs
        Values in it.
    n_inputs, n_parameters
        Input rows, the weight not counted, and scalar parameters.
    """

    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    n_inputs: int
    n_parameters: int

    @classmethod
    def of(
        cls,
        graph: Graph,
        outputs: Sequence[int],
        inputs: Mapping[int, int],
        parameters: Mapping[int, int],
    ) -> Excerpt:
        """The part between leaves and outputs; arguments as for `laddu_dask.compiler.program.cut`.

        A parameter that no value leads to may be left out.
        """
        g = Graph()
        done = {value: _leaf(g, "column", row) for value, row in inputs.items()}
        done |= {value: _leaf(g, "parameter", index) for value, index in parameters.items()}
        for index in live(graph, outputs, done):
            op, args, payload = graph.ops[index]
            done[index] = g.emit(op, *(done[arg] for arg in args), payload=payload)
        return cls(
            tuple(g.ops),
            tuple(done[output] for output in outputs),
            max(inputs.values(), default=-1) + 1,
            max(parameters.values(), default=-1) + 1,
        )

    def graph(self) -> Graph:
        """A graph to append to, with the same numbering."""
        g = Graph()
        for op, args, payload in self.instructions:
            g.emit(op, *args, payload=payload)
        return g


def _leaf(g: Graph, op: str, index: int) -> int:
    return g.emit(op, payload=str(index))


def scalar_tangents(excerpt: Excerpt, n_parameters: int, n_seeds: int) -> Program:
    """Tangents of the outputs of an excerpt without events.

    The program takes the `n_parameters` numbers of the excerpt, then tangents of the first
    `n_seeds` of them.
    """
    g = excerpt.graph()
    leaves = {_leaf(g, "parameter", k): k for k in range(n_parameters)}
    seeds = {
        _leaf(g, "parameter", k): _leaf(g, "parameter", n_parameters + k) for k in range(n_seeds)
    }
    leaves |= {tangent: n_parameters + k for k, tangent in enumerate(seeds.values())}
    found = tangents(g, seeds, excerpt.outputs)
    zero = g.const(0.0)
    return cut(g, [found.get(output, zero) for output in excerpt.outputs], {}, leaves)


@dataclass(frozen=True)
class Curvature:
    """Second derivatives of a sum over events, along one direction of the frontier.

    Attributes
    ----------
    scalars
        Frontier values, then their tangents -> parameters of `events`.
    events
        Cached columns and weight -> the rows of the gradient program, then the tangents of its
        adjoint rows.
    """

    scalars: Program
    events: Program


def curvature(excerpt: Excerpt, n_values: int, precision: Precision = "f64") -> Curvature:
    """Differentiate the adjoint rows of a gradient program.

    Parameters
    ----------
    excerpt
        The gradient program before it was cut.
    n_values
        Its first outputs are values, not adjoints.
    precision
        That of the event program; the scalars are doubles.
    """
    g = excerpt.graph()
    n = excerpt.n_parameters
    leaves = [_leaf(g, "parameter", k) for k in range(n)]
    moved = [_leaf(g, "parameter", n + k) for k in range(n)]
    adjoints = excerpt.outputs[n_values:]
    found = tangents(g, dict(zip(leaves, moved, strict=True)), adjoints)
    zero = g.const(0.0)
    rows = [*excerpt.outputs, *(found.get(adjoint, zero) for adjoint in adjoints)]
    # What only parameters and their tangents enter is worked out once, not for every event.
    scalars = boundary(g, rows, PARAMETER)
    inputs = {_leaf(g, "column", row): row for row in range(excerpt.n_inputs)}
    events = cut(
        g,
        rows,
        inputs,
        {value: k for k, value in enumerate(scalars)},
        weighted=True,
        precision=precision,
    )
    numbered = {value: k for k, value in enumerate((*leaves, *moved))}
    return Curvature(cut(g, scalars, {}, numbered), events)
