"""Data sets from functions: what is declared is checked against what comes, in every pass."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.data import Dataset, row_uniforms
from laddu_dask.errors import DataError, EvaluationError


def one_piece(*batches: Any, rows: int | None = 4, weight: str | None = None) -> Dataset:
    """A data set of columns x and y whose only piece consists of these batches."""
    return Dataset.from_batches(
        lambda piece: iter(batches), ["x", "y"], rows=rows, weight=weight, identity="test"
    )


def xy(*x: float) -> dict[str, Any]:
    return {"x": np.array(x), "y": -np.array(x)}


def read(data: Dataset) -> list[float]:
    return data.column("x").tolist()


# What a batch may be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [
        {"y": [0, 0, 0], "x": [1, 2, 3]},
        {"x": np.array([1, 2, 3], dtype=np.uint8), "y": np.zeros(3, dtype=np.float32)},
        pa.table({"y": [0.0, 0.0, 0.0], "x": pa.chunked_array([[1], [2, 3]])}),
        pa.record_batch({"x": pa.array([1.0, 2.0, 3.0]), "y": pa.array([0, 0, 0])}),
    ],
    ids=["lists", "arrays", "table", "record batch"],
)
def test_forms_of_a_batch(batch: object) -> None:
    """Any order of columns, any width of numbers; alone or among several."""
    for made in (batch, [batch], iter([batch])):
        data = Dataset.from_batches(
            lambda piece, made=made: made, ["x", "y"], rows=[3], identity="forms"
        )
        assert read(data) == [1.0, 2.0, 3.0]


def test_four_momenta() -> None:
    """An array of shape (n, 4) stands for its four columns, in the order of the package."""
    k = np.arange(8.0).reshape(2, 4)
    data = Dataset.from_batches(
        lambda piece: {"k": k, "s": [5.0, 6.0]}, ["s"], p4s=["k"], rows=2, identity="k"
    )
    assert data.schema.p4s == ("k",)
    assert data.schema.columns == ("k_e", "k_px", "k_py", "k_pz", "s")
    assert data.column("k_px").tolist() == [1.0, 5.0]
    assert data.column("s").tolist() == [5.0, 6.0]
    apart = {name: k[:, i] for i, name in enumerate(("k_e", "k_px", "k_py", "k_pz"))}
    same = Dataset.from_batches(lambda piece: apart, p4s=["k"], rows=2, identity="k")
    assert same.column("k_pz").tolist() == [3.0, 7.0]


# What it must be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([xy(1, 2, 3)], r"piece 0 has only 3 rows where 4 were declared"),
        ([xy(1, 2, 3), xy(4, 5)], r"piece 0 has at least 5 rows where 4 were declared"),
        ([xy(1, 2, 3, 4), xy(5)], r"piece 0 has at least 5 rows where 4 were declared"),
        ([{"x": [1.0]}], r"piece 0: a batch must have the columns x, y; 'y' missing"),
        ([{**xy(1), "z": [1.0]}], r"must have the columns x, y; 'z' not declared"),
        ([{"x": [1.0], "q": [1.0]}], r"columns x, y; 'y' missing; 'q' not declared"),
        ([{"x": [1.0], "y": [1.0, 2.0]}], r"equally long, but 'x' has 1, 'y' has 2"),
        ([{"x": [[1.0]], "y": [1.0]}], r"column 'x' has the shape \(1, 1\); \(n,\) is needed"),
        ([{"x": 1.0, "y": [1.0]}], r"column 'x' has the shape \(\); \(n,\) is needed"),
        ([{"x": ["a"], "y": [1.0]}], r"piece 0: column 'x' has the type <U1"),
        ([{"x": [1j], "y": [1.0]}], r"piece 0: column 'x' has the type complex128"),
        ([xy(1), {"x": [0, 2**53 + 1], "y": [1, 2]}], r"integer 9007199254740993,.* \(row 2\)"),
        ([xy(1), pa.table({"x": [1.0, None], "y": [1, 2]})], r"column 'x' is null at row 2;"),
        ([pa.record_batch({"x": [None, 1.0], "y": [1, 2]})], r"column 'x' is null at row 0;"),
        ([pa.record_batch({"x": ["a"], "y": [1]})], r"column 'x' has the type object"),
        ([pa.table({"x": [True], "y": [1]})], r"column 'x' has the type bool"),
        ([[1.0, 2.0]], r"a batch is a mapping .* not a list"),
    ],
)
def test_what_does_not_fit_is_an_error(batches: list[Any], message: str) -> None:
    """D12: wrong lengths are not silent, and neither is anything else."""
    with pytest.raises(DataError, match=message):
        read(one_piece(*batches))


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_named(weight: float) -> None:
    """By piece and row, as the other sources do."""

    def make(piece: int) -> Iterator[dict[str, Any]]:
        yield {"x": [1.0, 2.0], "w": [1.0, 1.0]}
        yield {"x": [3.0, 4.0], "w": [1.0, weight if piece else 1.0]}

    data = Dataset.from_batches(make, ["x"], weight="w", rows=[4, 4], identity="w", name="toys")
    with pytest.raises(
        DataError, match=r"weight of event 7 \(row 3 of toys, piece 1\) is"
    ) as caught:
        data.weights()
    assert (caught.value.event, caught.value.row, caught.value.column) == (7, 3, "w")


def test_rows_before_an_error_are_delivered() -> None:
    """DA-07: good rows come first."""
    data = one_piece(xy(1, 2), {"x": [3.0]})
    batches = data.batches(["x"], 3)
    assert next(batches).values.tolist() == [[1.0, 2.0]]
    with pytest.raises(DataError, match="'y' missing"):
        next(batches)


def test_errors_of_the_function_say_where() -> None:
    """An exception of the user's code becomes a DataError; one of ours stays what it is."""

    def fails(piece: int) -> Iterator[dict[str, Any]]:
        yield xy(1)
        raise KeyError("no such run")

    data = Dataset.from_batches(fails, ["x", "y"], rows=[2], identity="f", name="runs")
    with pytest.raises(
        DataError, match=r"runs, piece 0: .* failed with KeyError: 'no such run'"
    ) as caught:
        read(data)
    assert isinstance(caught.value.__cause__, KeyError)

    def ours(piece: int) -> dict[str, Any]:
        raise EvaluationError("a model inside")

    data = Dataset.from_batches(ours, ["x"], rows=[2], identity="f")
    with pytest.raises(EvaluationError, match="a model inside"):
        read(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factory": iter([])}, "give a function that makes batches, not the batches themselves"),
        ({"columns": "x"}, r"columns='x' is one string; write columns=\['x'\]"),
        ({"columns": ["x", "x"]}, "'x' occurs twice"),
        ({"columns": ["x"], "weight": "x"}, "'x' occurs twice"),
        ({"columns": []}, "at least one column"),
        ({"columns": [""]}, "empty name"),
        ({"rows": [1, -1]}, "negative"),
        ({"rows": 1.5}, "no number of rows or pieces"),
        ({"rows": [1, 2], "pieces": 3}, "rows= is about 2 pieces, pieces= says 3"),
        ({"rows": None}, "the number of pieces must be told: pieces=1"),
        ({"rows": None, "pieces": 0}, "pieces=0 is no number of pieces"),
        ({"rows": None, "pieces": []}, r"pieces=\[\] is no number of pieces"),
        ({"rows": None, "pieces": -1}, "negative"),
        ({"identity": ""}, "identity='' does not tell contents apart"),
        ({"identity": " "}, "identity=' ' does not tell contents apart"),
        ({"identity": None}, "identity=None does not tell contents apart"),
    ],
)
def test_declarations_are_checked_at_once(arguments: dict[str, Any], message: str) -> None:
    """DA-08: one-shot iterators are refused before anything is read."""
    given_: dict[str, Any] = {"factory": xy, "columns": ["x"], "rows": [1], "identity": "i"}
    with pytest.raises(DataError, match=message):
        Dataset.from_batches(**{**given_, **arguments})


# Unknown lengths -----------------------------------------------------------------------------


def test_unknown_lengths_are_counted_once() -> None:
    """DA-10, DP-07, T-52: one pass when the number is first needed; copies remember it."""
    calls: list[int] = []

    def make(piece: int) -> Iterator[dict[str, Any]]:
        calls.append(piece)
        for size in range(piece + 1):
            yield xy(*range(size))

    data = Dataset.from_batches(make, ["x", "y"], rows=None, pieces=4, identity="u", name="toys")
    assert "not yet counted events from toys" in repr(data)
    before = data.fingerprint
    assert not data.is_counted
    assert calls == []
    assert data.n_events == 0 + 1 + 3 + 6
    assert data.fingerprint == before
    assert sorted(calls) == [0, 1, 2, 3]
    assert data.n_events == data.count() == 10
    assert [fragment.rows for fragment in data.fragments] == [1, 3, 6]
    assert len(calls) == 4
    assert repr(data).startswith("<Dataset of 10 events from toys")
    assert data.row_label(4) == "event 4 (row 0 of toys, piece 3)"


def module_level(piece: int) -> dict[str, Any]:
    return xy(*range(piece))


def test_pickles_carry_what_was_counted() -> None:
    """A copy does not count again."""
    data = Dataset.from_batches(module_level, ["x", "y"], rows=None, pieces=3, identity="p")
    assert not pickle.loads(pickle.dumps(data)).is_counted
    assert data.count(lambda jobs: [job() for job in jobs]) == 3
    copy = pickle.loads(pickle.dumps(data))
    assert copy.is_counted
    assert copy.n_events == 3
    assert copy.count(refuse) == 3
    assert read(copy) == read(data) == [0.0, 0.0, 1.0]


def refuse(jobs: object) -> list[int]:
    raise AssertionError("counted twice")


def test_an_error_while_counting_is_that_of_the_first_piece() -> None:
    """T-36: not of the one that failed first; and it is told again, not a wrong number."""

    def make(piece: int) -> dict[str, Any]:
        return xy(1) if piece < 3 else {"x": [1.0]}

    data = Dataset.from_batches(make, ["x", "y"], rows=None, pieces=9, identity="u")
    for _ in range(2):
        with pytest.raises(DataError, match="piece 3: .*'y' missing"):
            data.count()
    assert not data.is_counted


def test_a_function_that_changes_its_mind() -> None:
    """DA-08: rows that were counted must come again."""
    sizes = iter([3, 2, 4])
    data = Dataset.from_batches(
        lambda piece: xy(*range(next(sizes))), ["x", "y"], rows=None, pieces=1, identity="u"
    )
    assert data.n_events == 3
    with pytest.raises(DataError, match="only 2 rows where 3 were declared or counted"):
        read(data)
    with pytest.raises(DataError, match="at least 4 rows where 3 were declared or counted"):
        read(data)


# Ranges ---------------------------------------------------------------------------------------


def generated(rows: int, make: Callable[[int, int], Any] | None = None) -> Dataset:
    return Dataset.from_ranges(
        make or keyed, ["u"], weight="w", rows=rows, identity="seed 7", name="phase space"
    )


def keyed(start: int, stop: int) -> dict[str, Any]:
    u, w = row_uniforms(7, start, stop, 2)
    return {"u": u, "w": w}


def test_nothing_is_made_that_is_not_wanted() -> None:
    """10**8 events without a file: a thousand descriptions, and rows from the middle at once."""
    asked: list[tuple[int, int]] = []

    def make(start: int, stop: int) -> dict[str, Any]:
        asked.append((start, stop))
        return keyed(start, stop)

    data = generated(10**8, make)
    assert data.n_events == 10**8
    assert len(data.fragments) < 1000
    fragment = next(f for f in data.fragments if f.offset + f.rows > 54_321_000)
    first = 54_321_000 - fragment.offset
    batches = list(fragment.cut(first, first + 25).read(["u"], 10))
    assert asked == [
        (54_321_000, 54_321_010),
        (54_321_010, 54_321_020),
        (54_321_020, 54_321_025),
    ]
    found = np.concatenate([batch.values[0] for batch in batches])
    assert found.tobytes() == row_uniforms(7, 54_321_000, 54_321_025, 2)[0].tobytes()
    assert data.row_label(10**8 - 1) == "event 99999999 (row 99999999 of phase space)"


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_range_has_as_many_rows_as_were_asked_for(extra: int) -> None:
    data = generated(50, lambda start, stop: keyed(start, stop + extra))
    with pytest.raises(
        DataError, match=rf"phase space, rows 0 to 50: .* gave {50 + extra} rows where 50 were"
    ):
        data.column("u")


def test_weights_of_ranges_are_checked() -> None:
    def make(start: int, stop: int) -> dict[str, Any]:
        rows = np.arange(float(start), stop)
        return {"u": rows, "w": np.where(rows == 33, np.nan, 1.0)}

    with pytest.raises(DataError, match=r"weight of event 33 \(row 33 of phase space\) is nan"):
        list(generated(40, make).batches([], 10))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_numbers_belong_to_their_row(
    seed: int, start: int, lengths: Iterable[int], count: int
) -> None:
    """DA-05: whatever is generated around it."""
    pieces, position = [], start
    for length in lengths:
        pieces.append(row_uniforms(seed, position, position + length, count))
        position += length
    whole = row_uniforms(seed, start, position, count)
    assert whole.shape == (count, position - start)
    assert np.concatenate(pieces, axis=1).tobytes() == whole.tobytes()
    assert ((whole >= 0) & (whole < 1)).all()


def test_numbers_of_rows_are_uniform() -> None:
    """Mean 1/2, variance 1/12, and nothing in common between the numbers of a row."""
    a, b = row_uniforms(2024, 0, 200_000, 2)
    assert abs(a.mean() - 0.5) < 4 / np.sqrt(12 * a.size)
    assert abs(a.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / a.size)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(a.size)
    # Recorded: they must never change, or samples would.
    assert row_uniforms(7, 0, 2, 1)[0].tolist() == FIRST


FIRST = [0.8720734548204873, 0.0828426870273763]
