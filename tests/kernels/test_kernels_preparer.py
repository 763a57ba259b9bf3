"""Prepared events, and the answers to questions about them, are those that NumPy finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, KernelOptions, compile_model
from laddu_dask.compiler.assumptions import RANGE, Check
from laddu_dask.compiler.precision import RANGES, Precision
from laddu_dask.compiler.program import Program
from laddu_dask.compiler.questions import KINDS, Kind, Question
from laddu_dask.kernels import get_backend, padded
from laddu_dask.kernels.accumulator import LANES
from laddu_dask.kernels.backend import Preparer, Rows
from laddu_dask.kernels.column_layout import as_rows, empty_columns

SMALL, LARGE = RANGES["f64"]
FLOAT = RANGES["f32"].largest
ODD = [
    *(0.0, -0.0, 5e-324, 1e308, np.inf, -np.inf, np.nan, -np.nan, 1.0),
    *(x for edge in (SMALL, LARGE, FLOAT) for x in (edge, -edge)),
    *(np.nextafter(edge, way) for edge in (SMALL, LARGE, FLOAT) for way in (0.0, np.inf)),
]
NUMBERS = st.sampled_from(ODD) | st.floats()
MODULI = NUMBERS.map(abs).filter(np.isfinite)
BACKENDS = ["cpu", "interpreter"]


def passing_on(columns: int) -> Program:
    """A prepare program whose rows are its columns."""
    total = ld.scalar("c00")
    for k in range(1, columns):
        total = total + ld.parameter(f"p{k}", initial=1.0) * ld.scalar(f"c{k:02d}")
    programs = ld.Model(total).grouped("linear", Assumptions()).programs
    assert programs.prepare.n_outputs == programs.n_cached == columns
    return programs.prepare


PROGRAMS = {n: passing_on(n) for n in (3, 20)}


def rows_of(program: Program, values: Any) -> Any:
    """What the program makes of columns: their order is its own."""
    out = np.empty((program.n_outputs, padded(values.shape[1])))
    given = np.zeros(out.shape)
    given[:, : values.shape[1]] = values
    get_backend("interpreter").compile(program).map(given, np.zeros(0), out)
    return out[:, : values.shape[1]]


def prepared(
    preparer: Preparer, pieces: Sequence[Any], target: Rows, first: int = 0
) -> tuple[Any, list[int]]:
    """All events of the pieces, into a target, and the answers."""
    sources = preparer.sources([(piece.shape[1], list(piece)) for piece in pieces])
    answers = preparer.prepare(sources, 0, sources.events, target, first, np.empty)
    return as_rows(target, first, first + sources.events), answers


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.parametrize("sizes", [(1,), (7, 1, 9), (4096, 5000, 3), (8191, 8193, 8), (30_001,)])
def test_rows_are_put_where_they_stay(
    backend: str, vectors: bool, dtype: Any, columns: int, sizes: tuple[int, ...]
) -> None:
    """Blocks begin anywhere in a piece and in what is kept; nothing else is written to."""
    random = np.random.default_rng(sum(sizes))
    pieces = [random.normal(size=(columns, size)) for size in sizes]
    program, events = PROGRAMS[columns], sum(sizes)
    expected = rows_of(program, np.concatenate(pieces, axis=1)).astype(dtype)
    before, behind = 3 * LANES, 2 * LANES
    target = empty_columns(columns, before + events + behind, vectors=vectors, dtype=dtype)
    target[...] = 77.0
    found, _ = prepared(get_backend(backend).preparer(program, columns, ()), pieces, target, before)
    assert found.tobytes() == expected.tobytes()
    end = before + -(-events // LANES) * LANES
    padding = as_rows(target, before + events - 1 - (before + events - 1) % LANES, end)
    assert (padding[:, (events - 1) % LANES :] == expected[:, -1:]).all()
    assert (as_rows(target, 0, before) == 77.0).all()
    assert (as_rows(target, end, before + events + behind) == 77.0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_window_of_the_events(backend: str) -> None:
    """Some rows are kept; columns of any width, and with gaps between their numbers."""
    program, random = PROGRAMS[3], np.random.default_rng(1)
    wide = random.normal(size=(3, 2 * 700))
    first = [wide[0, ::2], wide[1, :700].astype(np.float32), wide[2, 700:]]
    second = [np.arange(50.0), np.ones(50, dtype=np.float16), np.zeros(50)]
    whole = np.array([np.concatenate(pair) for pair in zip(first, second, strict=True)])
    preparer = get_backend(backend).preparer(program, 2, [Question("sign", 0)])
    sources = preparer.sources([(700, first), (50, second)])
    assert sources.events == 750
    target = empty_columns(2, 123, vectors=False)
    answers = preparer.prepare(sources, 600, 723, target, 0, np.empty)
    expected = rows_of(program, whole)[:, 600:723]
    assert target[:, :123].tobytes() == expected[:2].tobytes()
    assert answers == [Question("sign", 0).answer(expected)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_too_large_for_a_float_is_infinite(backend: str) -> None:
    program = PROGRAMS[3]
    target = empty_columns(3, LANES, vectors=True, dtype=np.float32)
    values = np.array([[1e300, -1e39, 1e-60, np.nan]] * 3)
    with np.errstate(all="raise"):
        found, _ = prepared(get_backend(backend).preparer(program, 3, ()), [values], target)
    assert found[0].tolist()[:3] == [np.inf, -np.inf, 0.0]
    assert np.isnan(found[:, 3]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    values=st.lists(NUMBERS, min_size=33, max_size=33),
    others=st.lists(st.sampled_from([0, 1, 2]), min_size=6, max_size=6),
    limits=st.tuples(MODULI, MODULI),
    cut=st.integers(1, 10),
)
def test_answers_are_those_of_numpy(
    backend: str,
    values: list[float],
    others: list[int],
    limits: tuple[float, float],
    cut: int,
) -> None:
    """Three rows of eleven events in two pieces."""
    program, given = PROGRAMS[3], np.array(values).reshape(3, 11)
    low, high = limits
    questions = [
        Question(kind, row=n % 3, other=others[n], low=low, high=high)
        for n, kind in enumerate(KINDS)
    ]
    questions.append(Question("extreme", 1, low=SMALL, high=LARGE))
    preparer = get_backend(backend).preparer(program, 3, questions)
    target = empty_columns(3, 11, vectors=False)
    _, answers = prepared(preparer, [given[:, :cut], given[:, cut:]], target)
    rows = rows_of(program, given)
    assert answers == [question.answer(rows) for question in questions]


#: Kind, numbers of a row, of another one, and the answer to be expected; limits are 2 and 5.
ANSWERS: list[tuple[Kind, float, float, int]] = [
    ("large", 5.0, 0.0, 0),
    ("large", -5.5, 0.0, 1),
    ("large", np.nan, 0.0, 1),
    ("sign", -0.0, 0.0, 1),
    ("sign", -1e-300, 0.0, 3),
    ("sign", np.nan, 0.0, 1),
    ("differs", 2.0, 0.0, 1),
    ("unequal", 1.0, 1.0, 0),
    ("unequal", np.nan, np.nan, 0),
    ("unequal", np.nan, 1.0, 1),
    ("unopposite", np.nan, np.nan, 1),
    ("unopposite", 1.0, -1.0, 1),
    ("extreme", 1.5, 0.0, 1),
    ("extreme", 0.0, 0.0, 0),
    ("extreme", -6.0, 0.0, 1),
    ("extreme", np.inf, 0.0, 0),
    ("extreme", 3.0, 0.0, 0),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kind", "number", "other", "answer"), ANSWERS)
@pytest.mark.parametrize("events", [LANES, 9000])
def test_one_number_of_many(
    backend: str, kind: Kind, number: float, other: float, answer: int, events: int
) -> None:
    """The last one; all others are 3, in both rows."""
    values = np.full((3, events), 3.0)
    values[:, -1] = number, other, 3.0
    program = PROGRAMS[3]
    order = rows_of(program, np.arange(3.0)[:, np.newaxis])[:, 0].tolist()
    question = Question(kind, order.index(0.0), order.index(1.0), low=2.0, high=5.0)
    preparer = get_backend(backend).preparer(program, 3, [question])
    target = empty_columns(3, events, vectors=False)
    assert prepared(preparer, [values], target)[1] == [answer]


@pytest.mark.parametrize(
    ("property", "answers"),
    [
        ("nonnegative", [None, None, "negative", "open"]),
        ("negative", [None, "open", None, "open"]),
        ("finite", [None, "open"]),
        ("constant", [None, "open"]),
        ("equal", [None, "open"]),
        ("opposite", [None, "open"]),
    ],
)
def test_what_answers_leave_of_assumptions(property: Any, answers: list[Any]) -> None:
    check = Check(0, property, b"d", other=1, number=2.0)
    assert [check.finding(answer, "f64") for answer in range(len(answers))] == answers


def test_a_constant_that_is_extreme_is_none() -> None:
    """It would meet parameters."""
    assert Check(0, "constant", b"d", number=1e-200).finding(0, "f64") == "open"


@pytest.mark.parametrize("backend", BACKENDS)
def test_targets_without_room_are_refused(backend: str) -> None:
    preparer = get_backend(backend).preparer(PROGRAMS[3], 3, ())
    sources = preparer.sources([(20, [np.ones(20)] * 3)])
    for target, first in (
        (np.empty((3, 16)), 0),
        (np.empty((3, 32)), 16),
        (np.empty((3, 32)), 4),
        (np.empty((2, 32)), 0),
        (np.empty((3, 32), dtype=np.int64), 0),
        (np.empty((3, 64))[:, ::2], 0),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            preparer.prepare(sources, 0, 20, target, first, np.empty)


def test_columns_of_other_length_are_refused() -> None:
    preparer = get_backend("cpu").preparer(PROGRAMS[3], 3, ())
    with pytest.raises(ValueError, match="20 events of 3 columns"):
        preparer.sources([(20, [np.ones(20), np.ones(20), np.ones(19)])])
    sources = preparer.sources([(20, [np.ones(20)] * 3)])
    with pytest.raises(ValueError, match="events 5 to 21 of 20"):
        preparer.prepare(sources, 5, 21, np.empty((3, 32)), 0, np.empty)


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize(
    ("number", "extreme"),
    [
        *((0.0, ()), (-1e-30, ()), (1e12, ()), (np.inf, ()), (np.nan, ())),
        *((-2e12, ("f32",)), (1e-300, ("f64",)), (-1e200, ("f64", "f32"))),
    ],
)
def test_extreme_numbers_contradict(
    precision: Precision, number: float, extreme: tuple[str, ...]
) -> None:
    """What regrouped programs ask of all columns: floats have no lower bound."""
    x, y = ld.scalar("x"), ld.scalar("y")
    expr = (ld.parameter("a") * x + ld.parameter("b") * y) ** 2
    programs = compile_model(
        expr, "linear", Assumptions(), KernelOptions(precision=precision)
    ).programs
    rows = np.ones((programs.prepare.n_outputs, 4))
    rows[0, 2] = number
    answers = [question.answer(rows) for question in programs.questions]
    assert (programs.findings(answers).get(RANGE) == "open") == (precision in extreme)
