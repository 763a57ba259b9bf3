"""Which event values are kept: the cheapest choice, and no result depends on it."""

from __future__ import annotations

import itertools
from typing import Any

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import run_program
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, CompiledModel, KernelOptions, compile_model
from laddu_dask.compiler.columns import choose_columns
from laddu_dask.compiler.cost import OPERATION
from laddu_dask.compiler.flow import UNLIMITED, Network
from laddu_dask.compiler.ir import CONDITIONS, EVENT, Graph, live
from laddu_dask.expr import Expr

Array = NDArray[Any]


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """Small networks; vertex 0 is the source, 1 the sink."""
    size = draw(st.integers(2, 7))
    vertex = st.integers(0, size - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 9)), max_size=16))
    return size, edges


@given(networks())
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_minimum_cut_of_small_networks(network: tuple[int, list[tuple[int, int, int]]]) -> None:
    """The cut is the best of all, and its side the smallest of the best."""
    size, edges = network
    built = Network(size)
    for edge in edges:
        built.connect(*edge)
    capacity, side = built.minimum_cut(0, 1)

    def of(chosen: set[int]) -> int:
        return sum(c for tail, head, c in edges if tail in chosen and head not in chosen)

    others = range(2, size)
    sides = [{0, *some} for n in range(size - 1) for some in itertools.combinations(others, n)]
    best = min(map(of, sides))
    assert capacity == of(side) == best
    assert side == set.intersection(*(chosen for chosen in sides if of(chosen) == best))


def test_long_paths_need_no_recursion() -> None:
    """Ten thousand vertices in a row, the narrowest place far from both ends."""
    n = 10_000
    network = Network(n)
    for vertex in range(n - 1):
        network.connect(vertex, vertex + 1, 3 if vertex == 5_000 else UNLIMITED)
    assert network.minimum_cut(0, n - 1) == (3, set(range(5_001)))


@st.composite
def event_graphs(draw: st.DrawFn) -> tuple[Graph, list[int]]:
    """Graphs of few event values over two columns, and some of them that are needed."""
    graph = Graph()
    values = [graph.emit("column", payload=name) for name in "xy"]
    values.append(graph.const(1.5))
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from(["add", "mul", "neg", "sqrt", "div", "exp", "select"]))
        operand = st.sampled_from(values)
        if op == "select":
            condition = graph.emit("lt", draw(operand), draw(operand))
            values.append(graph.emit("select", condition, draw(operand), draw(operand)))
        else:
            count = 1 if op in {"neg", "sqrt", "exp"} else 2
            values.append(graph.emit(op, *(draw(operand) for _ in range(count))))
    events = [value for value in values if graph.kinds[value] == EVENT]
    needed = draw(st.lists(st.sampled_from(events), min_size=1, max_size=4, unique=True))
    return graph, sorted(needed)


def price(graph: Graph, kept: set[int], needed: list[int], load: float) -> float | None:
    """Cost of a choice; None if something that is needed cannot be had from what is kept."""
    total, stack, seen = load * len(kept), list(needed), set()
    while stack:
        value = stack.pop()
        if value in seen or value in kept or not graph.kinds[value]:
            continue
        seen.add(value)
        op, args, _ = graph.ops[value]
        if op in {"column", "exp"}:
            return None
        known = (graph.kinds[arg] == EVENT or graph.ops[arg][0] == "const" for arg in args)
        if op not in CONDITIONS and not all(known):
            return None
        total += OPERATION[op]
        stack.extend(args)
    return total


@given(event_graphs(), st.sampled_from([0.1, 0.6, 1.2]))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_choice_is_the_cheapest(built: tuple[Graph, list[int]], load: float) -> None:
    """DC-12: no other set of kept values costs less."""
    graph, needed = built
    kept = set(choose_columns(graph, needed, load))
    keepable = [
        value
        for value in live(graph, needed)
        if graph.kinds[value] == EVENT and graph.ops[value][0] not in CONDITIONS
    ]
    prices = [
        price(graph, set(some), needed, load)
        for n in range(len(keepable) + 1)
        for some in itertools.combinations(keepable, n)
    ]
    best = min(found for found in prices if found is not None)
    assert price(graph, kept, needed, load) == pytest.approx(best, abs=1e-9)


def test_long_chains_and_many_values() -> None:
    """A chain of ten thousand operations costs no more time than the part that could pay."""
    graph = Graph()
    value = x = graph.emit("column", payload="x")
    for _ in range(10_000):
        value = graph.add(graph.mul(value, x), graph.const(0.5))
    assert choose_columns(graph, [value]) == [value]
    assert choose_columns(graph, [value, x]) == [x, value]


def rows_of(model: CompiledModel, events: dict[str, Array], backend: str) -> Array:
    """Output rows of the gradient program."""
    programs = model.programs
    source = np.array([events[name] for name in programs.columns])
    rows = run_program(programs.prepare, source, np.zeros(0), backend)
    weights = np.linspace(0.5, 1.5, source.shape[1])
    inputs = np.concatenate([rows[: programs.n_cached], weights[np.newaxis]])
    frontier = model.invariants.frontier(model.layout.defaults)
    return run_program(programs.gradient, inputs, frontier, backend)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "interpreter") for name in ("B", "C-fixed", "C-free", "D")),
        *((name, "cpu") for name in ("B", "D")),
    ],
)
def test_no_bit_depends_on_the_choice(name: str, backend: str) -> None:
    """DK-15: a value computed again has the bits of the value that was kept."""
    expr = benchmark_models.MODELS[name](ld)
    events = benchmark_models.events(name, 64, "data")
    models = [
        compile_model(expr, "log", Assumptions(), KernelOptions(load=load))
        for load in (1e-3, 0.6, 5)
    ]
    counts = [model.programs.n_cached for model in models]
    assert counts == sorted(counts, reverse=True)
    first, *others = (rows_of(model, events, backend) for model in models)
    for other in others:
        assert other.tobytes() == first.tobytes()


S, P = ld.scalar("s"), ld.parameter("p", initial=0.7)


@pytest.mark.parametrize(
    ("expr", "kept"),
    [
        ((P + S) * (P + 1.3 - S) * (P + S * S), 1),
        ((P + S) * (P + S.exp()), 2),
        ((P + S) * (P + 1 / S.sqrt()), 2),
        (P + S.exp() * 2.0, 1),
    ],
    ids=["polynomials of s", "exponential", "reciprocal root", "only the result"],
)
def test_what_is_kept(expr: Expr, kept: int) -> None:
    """Cheap operations are repeated, elementary functions never."""
    programs = compile_model(expr, "linear", Assumptions()).programs
    assert programs.n_cached == kept
    assert not {"exp", "sqrt"} & {op for op, _, _ in programs.gradient.instructions}


def test_values_that_are_not_kept_are_checked_for_their_range() -> None:
    """DC-12: what meets parameters in another order must not leave the exponent range."""
    expr = (P + S) * (P + S * 2.0**300)
    programs = compile_model(expr, "linear", Assumptions()).programs
    assert programs.n_cached == 1
    rows = run_program(programs.prepare, np.array([[2.0**200]]), np.zeros(0), "interpreter")
    assert sorted(float(rows[row, 0]) for row in programs.ranged) == [2.0**200, 2.0**500]
