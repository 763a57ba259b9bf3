"""Both backends through one protocol: bits that no cut of the work changes, checks before it."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Program, compile_model
from laddu_dask.kernels import Accumulator, cpu, get_backend, padded
from laddu_dask.kernels.accumulator import TILE, TILE_LIMIT
from laddu_dask.kernels.native import assemble
from laddu_dask.kernels.target import current_target

Array = NDArray[Any]
BACKENDS = ["interpreter", "cpu"]
EVENTS = 3700


def program() -> Program:
    """All functions, divisions, roots and branches; two parameters, two outputs at least."""
    x, y, a, b = ld.scalar("x"), ld.scalar("y"), ld.parameter("a"), ld.parameter("b")
    amplitude = ld.polar_complex(a, x * b) / (ld.complex(x - a, b * y).sqrt() + y.exp() * b)
    angle = ld.atan2(a * y.sin(), (x * b).cos())
    model = ld.where(y < a, amplitude.norm_sqr(), angle + 2 + (x**2 + b**2).log())
    return compile_model(model, "linear").programs.gradient


PROGRAM = program()
PARAMETERS = np.random.default_rng(5).uniform(0.4, 0.9, PROGRAM.n_parameters)


def inputs(events: int = EVENTS, seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(PROGRAM.n_inputs, events)) * 3
    rows[:, ::97] *= 1e7  # the far reduction of sine and cosine, in some lanes only
    return rows


def mapped(rows: Array, backend: str, which: Program = PROGRAM) -> Array:
    """Output rows; the padding holds garbage that must not matter."""
    events = rows.shape[1]
    filled = np.full((rows.shape[0], padded(events)), np.nan)
    filled[:, :events] = rows
    out = np.full((which.n_outputs, filled.shape[1]), -1.0)
    get_backend(backend).compile(which).map(filled, PARAMETERS, out)
    return out[:, :events]


def reduced(rows: Array, backend: str, first_event: int = 0) -> Accumulator:
    """The padding repeats the last event with weight zero, the last row."""
    events = rows.shape[1]
    filled = np.empty((rows.shape[0], padded(events)))
    filled[:, :events] = rows
    filled[:-1, events:] = rows[:-1, -1:]
    filled[-1, events:] = 0.0
    state = Accumulator(PROGRAM.n_outputs)
    get_backend(backend).compile(PROGRAM).bind(filled, events, first_event)(PARAMETERS, state)
    return state


@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_do_not_depend_on_position_chunk_or_tail(backend: str) -> None:
    """An event has one result: alone, at any place, in any lane, with any neighbours."""
    rows = inputs()
    whole = mapped(rows, backend)
    for start, stop in ((0, 1), (1, 2), (3, 20), (5, 1030), (1024, 2049), (3699, 3700)):
        np.testing.assert_array_equal(mapped(rows[:, start:stop], backend), whole[:, start:stop])
    for size in (1, 7, 8, 9, 255, 256, 257, 1000):
        pieces = [mapped(rows[:, i : i + size], backend) for i in range(0, 40 * size, size)]
        np.testing.assert_array_equal(
            np.concatenate(pieces, axis=1), whole[:, : 40 * size], err_msg=str(size)
        )
    order = np.random.default_rng(2).permutation(EVENTS)
    np.testing.assert_array_equal(mapped(rows[:, order], backend), whole[:, order])


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduction_is_the_sum_of_the_mapped_rows(backend: str) -> None:
    """The state is that of `add_tiles`, to the bit, at every length of the tail."""
    rows = inputs()
    for events in (1, 7, 8, 9, 255, 256, 257, 511, 513, 1024, 1025, EVENTS):
        expected = Accumulator(PROGRAM.n_outputs)
        expected.add_tiles(mapped(rows[:, :events], backend), 0)
        assert reduced(rows[:, :events], backend) == expected
    assert EVENTS / 2 < expected.count < EVENTS  # some of these inputs have no finite result
    assert expected.first_bad is not None
    nothing = reduced(rows[:, :0], backend)
    assert nothing == Accumulator(PROGRAM.n_outputs)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    cuts=st.lists(st.integers(0, EVENTS // TILE).map(lambda i: i * TILE), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_reduction_does_not_depend_on_the_cuts(backend: str, cuts: list[int], order: Any) -> None:
    rows = inputs()
    edges = [0, *sorted(cuts), EVENTS]
    pieces = list(itertools.pairwise(edges))
    order.shuffle(pieces)
    total = Accumulator(PROGRAM.n_outputs)
    for start, stop in pieces:
        total.merge(reduced(rows[:, start:stop], backend, start))
    assert total == reduced(rows, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**999, -1.7e308])
@pytest.mark.parametrize("events", [[700], [0], [EVENTS - 1], [255, 256, 1500], [1500, 8, 9]])
def test_bad_events_are_left_out_whole_and_located(
    backend: str, bad: float, events: list[int]
) -> None:
    """T-06, T-08: the first one by its global index; no other quantity of them counts."""
    product = Program(
        (("input", (), "0"), ("input", (), "1"), ("mul", (0, 0), None)), 2, 0, (0, 1, 2)
    )
    rows = inputs()[:2].copy()
    rows[:, ::97] /= 1e7
    good = rows.copy()
    good[:, events] = 0.0
    rows[1, events] = bad
    rows[0, events] = 1e140  # a good value of a bad event must not even raise a level
    state, expected = Accumulator(3), Accumulator(3)
    filled = np.zeros((2, padded(EVENTS)))
    filled[:, :EVENTS] = rows
    get_backend(backend).compile(product).bind(filled, EVENTS, 10_000)(np.empty(0), state)
    expected.add_tiles(np.vstack([good, good[:1] ** 2]), 0)
    assert state.first_bad == 10_000 + min(events)
    assert state.count == EVENTS - len(events)
    np.testing.assert_array_equal(state.levels, expected.levels)
    np.testing.assert_array_equal(state.round(), expected.round())


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_but_bad_events(backend: str) -> None:
    identity = Program((("input", (), "0"),), 1, 0, (0,))
    state = Accumulator(1)
    rows = np.full((1, 16), np.nan)
    rows[:, 11:] = 0.0
    get_backend(backend).compile(identity).bind(rows, 11, 5)(np.empty(0), state)
    assert (state.count, state.first_bad, state.round()[0]) == (0, 5, 0.0)


def test_padding_with_weight_is_refused() -> None:
    """Compiled code runs over whole vectors, so what fills them up must weigh nothing."""
    identity = Program((("input", (), "0"),), 1, 0, (0,))
    rows = np.array([[1.0, 2.0, 0, 0, 0, 1e-300, 0, 0]])
    kernel, state = get_backend("cpu").compile(identity, "reduce"), Accumulator(1)
    with pytest.raises(ValueError, match="weight must be zero in the padding"):
        kernel.bind(rows, 2, 0)(np.empty(0), state)
    rows[0, 5] = 0.0
    kernel.bind(rows, 2, 0)(np.empty(0), state)
    assert (state.count, state.first_bad, state.round()[0]) == (2, None, 3.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_huge_values_are_bad_before_their_sum_overflows(backend: str) -> None:
    """The bound leaves room for every event of a tile."""
    identity = Program((("input", (), "0"),), 1, 0, (0,))
    rows = np.full((1, TILE), 0.99 * TILE_LIMIT)
    state = Accumulator(1)
    get_backend(backend).compile(identity, "reduce").bind(rows, TILE, 0)(np.empty(0), state)
    assert (state.count, state.first_bad) == (TILE, None)
    assert state.round()[0] == pytest.approx(0.99 * TILE_LIMIT * TILE, rel=1e-13)
    rows[0, 77] = TILE_LIMIT
    get_backend(backend).compile(identity, "reduce").bind(rows, TILE, TILE)(np.empty(0), state)
    assert (state.count, state.first_bad) == (2 * TILE - 1, TILE + 77)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_without_inputs(backend: str) -> None:
    constant = Program((("parameter", (), "1"), ("const", (), 0.5)), 0, 2, (0, 1, 0))
    out = np.empty((3, 16))
    get_backend(backend).compile(constant).map(np.empty((0, 16)), np.array([1.0, 7.0]), out)
    np.testing.assert_array_equal(out, [[7.0] * 16, [0.5] * 16, [7.0] * 16])


def test_extra_rows_are_not_read() -> None:
    rows = np.vstack([inputs(64), np.full((2, 64), np.nan)])
    np.testing.assert_array_equal(mapped(rows, "cpu"), mapped(rows[:-2], "cpu"))


def test_programs_are_compiled_once() -> None:
    backend = get_backend("cpu")
    assert backend.name == "cpu"
    assert backend.compile(PROGRAM) is get_backend("cpu").compile(program())


def test_compiling_from_many_threads() -> None:
    fresh = Program((("input", (), "0"), ("const", (), 0.123), ("add", (0, 1), None)), 1, 0, (2,))
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(get_backend("cpu").compile(fresh)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({id(kernel) for kernel in found}) == 1


def test_unknown_backend() -> None:
    with pytest.raises(ld.ExecutionError, match="unknown backend 'gpu'") as caught:
        get_backend("gpu")
    assert caught.value.option == "backend"


ROWS = np.zeros((PROGRAM.n_inputs, 16))
OUT = np.zeros((PROGRAM.n_outputs, 16))


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("rows", "parameters", "out", "message"),
    [
        (ROWS.astype(np.float32), PARAMETERS, OUT, "float64 rows, got float32"),
        (np.zeros(ROWS.shape, dtype=int), PARAMETERS, OUT, "float64 rows"),
        (np.zeros((16, PROGRAM.n_inputs)).T, PARAMETERS, OUT, "C-contiguous"),
        (np.zeros((PROGRAM.n_inputs, 32))[:, ::2], PARAMETERS, OUT, "C-contiguous"),
        (np.zeros(16), PARAMETERS, OUT, "rows, got float64"),
        (ROWS[:-1], PARAMETERS, OUT, f"needs {PROGRAM.n_inputs} padded input rows"),
        (np.zeros((PROGRAM.n_inputs, 15)), PARAMETERS, OUT[:, :15].copy(), "padded input rows"),
        (ROWS, PARAMETERS[:-1], OUT, f"needs {PARAMETERS.size} contiguous float64 parameters"),
        (ROWS, PARAMETERS.astype(np.float32), OUT, "float64 parameters"),
        (ROWS, np.repeat(PARAMETERS, 2)[::2], OUT, "contiguous"),
        (ROWS, np.float64(1.0), OUT, "parameters"),
        (ROWS, PARAMETERS[np.newaxis].copy(), OUT, "parameters"),
        (ROWS, PARAMETERS, OUT[:-1], "padded output rows"),
        (ROWS, PARAMETERS, np.zeros((PROGRAM.n_outputs, 8)), "match"),
        (ROWS, PARAMETERS, np.zeros((PROGRAM.n_outputs + 1, 16)), "match"),
        (ROWS, PARAMETERS, OUT.astype(np.float32), "float64 rows"),
        (ROWS, PARAMETERS, np.zeros((PROGRAM.n_outputs, 32))[:, ::2], "C-contiguous"),
        (ROWS, PARAMETERS, read_only(OUT), "writeable"),
    ],
)
def test_wrong_arguments_never_reach_compiled_code(
    rows: Array, parameters: Array, out: Array, message: str
) -> None:
    kernel = get_backend("cpu").compile(PROGRAM)
    with pytest.raises(ValueError, match=message):
        kernel.map(rows, parameters, out)
    if out is OUT:
        state = Accumulator(PROGRAM.n_outputs)
        with pytest.raises(ValueError, match=message):
            kernel.bind(rows, 8, 0)(parameters, state)
        assert state == Accumulator(PROGRAM.n_outputs)


@pytest.mark.parametrize(("events", "sums"), [(17, 0), (-1, 0), (8, 1), (8, -1)])
def test_wrong_reductions_never_reach_compiled_code(events: int, sums: int) -> None:
    kernel = get_backend("cpu").compile(PROGRAM)
    with pytest.raises(ValueError, match="bind: |reduce: "):
        kernel.bind(ROWS, events, 0)(PARAMETERS, Accumulator(PROGRAM.n_outputs + sums))


def test_read_only_inputs_are_fine() -> None:
    """Memory-mapped and shared columns."""
    rows = read_only(inputs(64))
    np.testing.assert_array_equal(mapped(rows, "cpu"), mapped(inputs(64), "cpu"))
    out = np.empty((PROGRAM.n_outputs, 64))
    get_backend("cpu").compile(PROGRAM).map(rows, read_only(PARAMETERS), out)
    np.testing.assert_array_equal(out, mapped(inputs(64), "cpu"))
    state = Accumulator(PROGRAM.n_outputs)
    get_backend("cpu").compile(PROGRAM).bind(rows, 64, 0)(read_only(PARAMETERS), state)
    assert state == reduced(inputs(64), "cpu")


def test_kernels_used_least_recently_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that compiles many models keeps the last; one given up is made again."""
    monkeypatch.setattr(cpu, "MOST_KERNELS", 3)
    programs = [
        Program((("const", (), float(n)), ("input", (), "0"), ("mul", (0, 1), None)), 1, 0, (2,))
        for n in range(4)
    ]
    backend = cpu.CpuBackend()
    kernels = [backend.compile(each) for each in programs[:3]]
    assert backend.compile(programs[0]) is kernels[0]
    backend.compile(programs[3])  # in the place of the second
    assert backend.compile(programs[0]) is kernels[0]
    assert backend.compile(programs[1]) is not kernels[1]
    out = np.empty((1, 8))
    kernels[1].map(np.full((1, 8), 7.0), np.empty(0), out)  # who has it may still use it
    assert out.tolist() == [[7.0] * 8]


@pytest.mark.parametrize(("start", "stop"), [(1, 16), (-TILE, 16), (0, 8), (0, 24)])
def test_parts_of_a_reduction_are_whole_tiles(start: int, stop: int) -> None:
    reduction = get_backend("cpu").compile(PROGRAM).bind(ROWS, 16, 0)
    with pytest.raises(ValueError, match="are no tiles"):
        reduction(PARAMETERS, Accumulator(PROGRAM.n_outputs), start, stop)


def test_a_reduction_runs_in_many_threads_while_its_code_is_replaced() -> None:
    """Events are bound once; the code is the newest one, and stays while it runs."""
    kernel = cpu.CpuKernel(PROGRAM, current_target())
    rows = np.zeros((PROGRAM.n_inputs, padded(EVENTS)))
    rows[:, :EVENTS] = inputs()
    reduction = kernel.bind(rows, EVENTS, 0)
    made = assemble(kernel.assembly("reduce"), kernel.target, 2)
    found: list[Accumulator] = []

    def work() -> None:
        for _ in range(20):
            found.append(Accumulator(PROGRAM.n_outputs))
            reduction(PARAMETERS, found[-1])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        kernel._install("reduce", made, optimized=True)
    for thread in threads:
        thread.join()
    assert len(found) == 60
    assert all(total == reduced(inputs(), "cpu") for total in found)
