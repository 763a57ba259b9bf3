"""Selections: which events pass, what is counted and when, and how they are named afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_source import counting
from hypothesis import given, settings
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.data import Condition, Dataset, Verdict, as_condition
from laddu_dask.data.checks import digest
from laddu_dask.data.judged import Judged, judge
from laddu_dask.data.pieces import read_pieces
from laddu_dask.errors import DataError

x, y = ld.scalar("x"), ld.scalar("y")
NAN = float("nan")


def arrays(**columns: Any) -> Dataset:
    weights = columns.pop("weights", None)
    return Dataset.from_arrays(scalars=columns, weights=weights)


# Which events pass --------------------------------------------------------------------------

CONDITIONS: dict[str, tuple[ld.Predicate, Callable[[float, float], bool]]] = {
    "<": (x < 1.0, lambda x, y: x < 1),
    "<=": (x <= 1.0, lambda x, y: x <= 1),
    ">": (x > y, lambda x, y: x > y),
    "==": (x == y, lambda x, y: x == y),
    "!=": (x != 2.0, lambda x, y: x != 2),
    "not": (~(x < y), lambda x, y: not x < y),
    "and": ((x < 2.0) & (y > 0.0), lambda x, y: x < 2 and y > 0),
    "or": ((x < 2.0) | ~(y == 0.0), lambda x, y: x < 2 or y != 0),
    "between": (ld.Predicate.between(x, low=0.5, high=y), lambda x, y: 0.5 <= x <= y),
    "neither": (~((x < 1.0) | (y < 1.0)), lambda x, y: x >= 1 and y >= 1),
    "functions": ((x * x + y * y).sqrt() < 2.5, lambda x, y: (x * x + y * y) ** 0.5 < 2.5),
}
PLANE = list(product([-1.0, 0.0, 1.0, 2.0, 3.0], repeat=2))


@pytest.mark.parametrize("name", CONDITIONS)
def test_events_that_pass(name: str) -> None:
    """Every operator, against Python."""
    condition, expected = CONDITIONS[name]
    xs, ys = np.array(PLANE).T
    found = arrays(x=xs, y=ys).select(condition)
    chosen = [pair for pair in PLANE if expected(*pair)]
    assert 0 < len(chosen) < len(PLANE)
    assert list(zip(found.column("x").tolist(), found.column("y").tolist(), strict=True)) == chosen


# What is known of a condition when x or y is missing: yes, no, or not decided.
DECIDED = {
    "x alone": (x < 1.0, {(NAN, 0.0): None, (0.0, NAN): True}),
    "not": (~(x < 1.0), {(NAN, 0.0): None}),
    "different": (x != 1.0, {(NAN, 0.0): None}),
    "equal": (x == y, {(NAN, NAN): None, (1.0, NAN): None}),
    "and, one fails": ((x < 1.0) & (y < 1.0), {(2.0, NAN): False, (NAN, 2.0): False}),
    "and, one holds": ((x < 1.0) & (y < 1.0), {(0.0, NAN): None, (NAN, 0.0): None}),
    "or, one holds": ((x < 1.0) | (y < 1.0), {(0.0, NAN): True, (NAN, 0.0): True}),
    "or, one fails": ((x < 1.0) | (y < 1.0), {(2.0, NAN): None, (NAN, 2.0): None}),
    "guarded": ((x != 0.0) & (y / x < 1.0), {(0.0, 0.0): False, (2.0, 0.0): True}),
    "said": (ld.where(x < 1.0, 1.0, 0.0) > 0.5, {(NAN, 0.0): False}),
}


@pytest.mark.parametrize("name", DECIDED)
def test_nan_matters_only_where_it_decides(name: str) -> None:
    """An event is refused if its NaN hides the answer, and only then."""
    condition, expected = DECIDED[name]
    for (a, b), answer in expected.items():
        data = arrays(x=[a], y=[b]).select(condition)
        if answer is None:
            with pytest.raises(DataError, match=r"is not decided at row 0 of the arrays"):
                data.count()
        else:
            assert data.n_events == answer


@settings(max_examples=60)
@given(
    st.lists(st.floats(allow_nan=False, width=64), min_size=0, max_size=300),
    st.floats(allow_nan=False),
    st.integers(1, 50),
)
def test_any_numbers(values: list[float], limit: float, batch_rows: int) -> None:
    """Infinities, denormals and signed zeros compare as in Python; batches do not matter."""
    data = arrays(x=np.array(values)).select(x < limit)
    chosen = [value for value in values if value < limit]
    assert data.n_events == len(chosen)
    found = [v for batch in data.batches(["x"], batch_rows) for v in batch.values[0].tolist()]
    assert list(map(repr, found)) == list(map(repr, chosen))


def test_fixed_parameters_are_numbers() -> None:
    cut = ld.parameter("cut", fixed=2.0)
    assert arrays(x=[1.0, 2.0, 3.0]).select(x < cut).column("x").tolist() == [1.0]


class Even:
    """A condition that is no expression."""

    columns = ("x",)
    text = "x is even"
    fingerprint = "even"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def test(self, values: Any) -> Verdict:
        self.asked.append(values.shape[1])
        return Verdict(values[0] % 2 == 0, np.zeros(values.shape[1], dtype=bool))


def test_any_condition_of_the_protocol() -> None:
    """The room of data asks for columns, a text, a fingerprint and a test."""
    data = arrays(x=np.arange(6)).select(Even())
    assert data.column("x").tolist() == [0.0, 2.0, 4.0]
    assert data.source == "arrays where x is even"


def test_one_event_is_found_in_few_steps() -> None:
    """Errors look at single events; the rows before them are judged many at a time."""
    condition = Even()
    data = arrays(x=np.arange(5000)).select(condition)
    assert data.n_events == 2500
    condition.asked.clear()
    (batch,) = data.fragments[0].cut(2000, 2001).read(["x"], 1)
    assert batch.values.tolist() == [[4000.0]]
    assert condition.asked == [1024, 1024, 1024, 1024]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (x, "needs a condition on event columns"),
        (True, "needs a condition on event columns, .* not True"),
        (ld.parameter("a", initial=1.0) < x, "cannot depend on the free parameters 'a'"),
        (ld.as_expr(1.0) < 2.0, "reads no event column"),
        (ld.scalar("z") < 2.0, "the selection z < 2.0 needs columns .*\n.*column 'z'"),
    ],
)
def test_what_is_no_selection(condition: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        arrays(x=[1.0], y=[1.0]).select(condition)


# Weights, composition, identity ------------------------------------------------------------


def test_weights_go_with_their_events() -> None:
    """Before and after a selection, and in between."""
    data = arrays(x=np.arange(10.0), weights=np.arange(10.0) / 2)
    some = data.select(x >= 4.0)
    assert some.weights().tolist() == [2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
    assert some.sum_weights() == 19.5
    other = data.with_weights(np.arange(10.0)).select(x >= 8.0)
    assert other.weights().tolist() == [8.0, 9.0]
    again = some.with_weights([1, 2, 3, 4, 5, 6]).select(x < 7.0).select(x > 4.0)
    assert again.weights().tolist() == [2.0, 3.0]
    assert again.column("x").tolist() == [5.0, 6.0]
    assert [again.row_label(event) for event in (0, 1)] == [
        "event 0 (row 5 of the arrays)",
        "event 1 (row 6 of the arrays)",
    ]
    with pytest.raises(DataError, match="5 weights were given for the 6 events"):
        some.with_weights(np.ones(5))


def test_nothing_and_everything() -> None:
    """T-43: a selection without events is a data set without events."""
    data = arrays(x=np.arange(5.0))
    nothing = data.select(x > 10.0)
    assert (nothing.n_events, nothing.fragments, nothing.sum_weights()) == (0, (), 0.0)
    assert nothing.column("x").shape == (0,)
    assert nothing.select(x > 0.0).n_events == 0
    assert data.select(x >= 0.0).column("x").tobytes() == data.column("x").tobytes()
    assert arrays(x=np.zeros(0)).select(x > 0.0).n_events == 0


def test_identity_is_known_before_counting() -> None:
    """DA-11: and is another one for other conditions, order included."""
    data = arrays(x=np.arange(5.0), y=np.arange(5.0))
    one = data.select(x > 1.0)
    before = one.fingerprint
    assert not one.is_counted
    assert one.n_events == 3
    assert one.fingerprint == before == data.select(x > 1.0).fingerprint
    different = [
        data,
        one,
        data.select(x > 2.0),
        data.select(y > 1.0),
        one.select(y > 1.0),
        data.select(y > 1.0).select(x > 1.0),
        one.with_weights(np.ones(3)),
    ]
    assert len({item.fingerprint for item in different}) == len(different)
    cuts = [one.fragments[0].cut(0, 2), one.fragments[0].cut(1, 3), one.fragments[0]]
    assert len({cut.fingerprint for cut in cuts}) == 3


# Counting -------------------------------------------------------------------------------------


def test_counted_once_and_only_when_needed() -> None:
    """DA-10, T-52: several selections one after the other share one pass, which is remembered."""
    data, reads = counting(arrays(x=np.arange(100.0), y=np.arange(100.0) % 7))
    chosen = data.select(x >= 50.0).select(y == 3.0)
    assert "not yet counted events from a counting source where 50.0 <= x" in repr(chosen)
    assert chosen.files == ()
    assert reads == []
    assert chosen.n_events == chosen.count() == 7
    assert len(reads) == 1
    copy = pickle.loads(pickle.dumps(chosen))
    assert copy.is_counted
    assert copy.n_events == 7
    assert len(reads) == 1
    assert chosen.column("x").tolist() == [52.0, 59.0, 66.0, 73.0, 80.0, 87.0, 94.0]
    assert len(reads) == 2


def test_counting_asks_for_the_columns_of_the_condition_alone() -> None:
    """And afterwards a pass decodes them beside those that are wanted, each once."""
    data = arrays(x=np.arange(4.0), y=np.arange(4.0), z=np.arange(4.0))
    both = data.select((x > 0.0) & (y < 3.0)).select(x < 5.0)
    assert both.decoded_columns(["x", "z"]) == 3
    assert data.decoded_columns(["x", "z"]) == 2
    assert both.source_bytes_per_event(["z"]) == 24
    assert both.with_weights(np.ones(2)).source_bytes_per_event(["z"]) == 32


def test_selection_of_pieces_of_unknown_length() -> None:
    """Both counts are made, each once."""
    calls: list[int] = []

    def make(piece: int) -> Iterator[dict[str, Any]]:
        calls.append(piece)
        yield {"x": np.arange(10.0 * piece)}

    data = Dataset.from_batches(make, ["x"], rows=None, pieces=3, identity="u", name="toys")
    some = data.select(x >= 8.0)
    assert not some.is_counted
    assert some.n_events == 2 + 12
    assert data.is_counted
    assert sorted(calls) == [0, 1, 1, 2, 2]  # an empty piece is not read a second time
    assert some.row_label(2) == "event 2 (row 8 of toys, piece 2)"


# Files: rows and errors -----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows 0 ... 99 in two files with row groups of 20, x counting and y missing at rows 33, 71."""
    numbers = np.arange(100.0)
    missing = np.where(np.isin(numbers, [33, 71]), np.nan, 1.0)
    table = pa.table({"x": numbers, "y": missing, "weight": numbers})
    pq.write_table(table.slice(0, 60), tmp_path / "a.parquet", row_group_size=20)
    pq.write_table(table.slice(60), tmp_path / "b.parquet", row_group_size=20)
    return tmp_path


def test_events_keep_their_row_of_the_file(folder: Path) -> None:
    """The event is that of the selection, row and row group are those of the file."""
    data = ld.read_parquet(folder).select(x > 35.0)
    assert data.n_events == 64
    assert [fragment.rows for fragment in data.fragments] == [4, 20, 20, 20]
    assert data.row_label(0) == "event 0 (row 36 of a.parquet, row group 1)"
    assert data.row_label(63) == "event 63 (row 39 of b.parquet, row group 1)"
    assert data.files == (str(folder / "a.parquet"), str(folder / "b.parquet"))
    cut = data.fragments[1].cut(5, 9)
    assert (cut.offset, cut.locate(1), cut.file) == (9, 46, str(folder / "a.parquet"))


def test_nan_in_a_condition_names_the_event(folder: Path) -> None:
    """The first one of the data set, whatever thread comes to one first."""
    data = ld.read_parquet(folder).select(y > 0.5)
    with pytest.raises(DataError, match=r"whether 0.5 < y is not decided at row 33 of a") as caught:
        data.count()
    assert (caught.value.event, caught.value.row) == (33, 33)
    assert caught.value.file == str(folder / "a.parquet")
    assert ld.read_parquet(folder).select(x > 40.0).select(x < 71.0).select(y > 0.5).n_events == 30
    late = ld.read_parquet(folder).select(x > 40.0).select(y > 0.5)
    with pytest.raises(DataError, match=r"row 11 of b.parquet, row group 0, file .* \(event 71 "):
        late.count()


def test_a_file_that_changed_after_counting(folder: Path) -> None:
    data = ld.read_parquet(folder).select(x > 35.0)
    assert data.n_events == 64
    pq.write_table(pa.table({"x": np.zeros(60), "weight": np.zeros(60)}), folder / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet is not the file it was"):
        data.column("x")


def test_a_source_that_changed_its_mind() -> None:
    """Rows of the same number, but other ones pass."""
    values = [iter([0.0, 5.0, limit]) for limit in (5.0, 0.0, 5.0)]
    calls = iter(values)
    data = Dataset.from_batches(
        lambda piece: {"x": list(next(calls))}, ["x"], rows=3, identity="m", name="toys"
    ).select(x > 1.0)
    assert data.n_events == 2
    with pytest.raises(DataError, match="1 rows of toys, piece 0 pass the selection where 2"):
        data.column("x")
    assert data.column("x").tolist() == [5.0, 5.0]


def test_conditions_travel() -> None:
    """A pickled fragment selects the same rows elsewhere."""
    data = arrays(x=np.arange(1000.0)).select((x * 0.1).sin() > 0.0)
    copy = pickle.loads(pickle.dumps(data.fragments[0].cut(10, 200)))
    (batch,) = copy.read(["x"], 1000)
    assert batch.values[0].tolist() == data.column("x")[10:200].tolist()
    assert digest(copy.fingerprint) == digest(data.fragments[0].cut(10, 200).fingerprint)


def test_row_groups_are_read_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selected from 200 row groups of a file, some without any event, cut at both ends."""
    numbers = np.arange(2000.0)
    table = pa.table({"x": numbers, "y": np.where(numbers == 1777, np.nan, numbers % 3)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    whole = ld.read_parquet(tmp_path / "a.parquet")
    data = whole.select((x < 300.0) | (x > 500.0)).select(x < 1700.0).select(y > 0.5)
    expected = [v for v in numbers if (v < 300 or v > 500) and v < 1700 and v % 3 > 0.5]
    assert data.n_events == len(expected)
    opened: list[object] = []
    open_file = ld.data.footer.open_parquet

    def counted(stamp: Any, source: Any) -> Any:
        opened.append(stamp)
        return open_file(stamp, source)

    for module in ("parquet_run", "parquet_fragment"):
        monkeypatch.setattr(f"laddu_dask.data.{module}.open_parquet", counted)
    for start, stop in [(0, len(expected)), (3, 900), (150, 400), (7, 8), (250, 251)]:
        opened.clear()
        found: list[float] = []
        for piece in read_pieces(cut_out(data, start, stop), ["x"], 64):
            found += piece.columns[0].tolist()
            assert piece.weights is None
        assert found == expected[start:stop]
        assert len(opened) <= 2  # the gap without events begins another run
    # A condition that was never counted meets the NaN in the middle of a run.
    bases = cut_out(whole, 1500, 2000)
    rows = [item.kept for item in until_error(judge(bases, tuple_of(y > 0.5), ["x"], 64))]
    assert sum(map(len, rows)) == sum(v % 3 > 0.5 for v in range(1500, 1777))
    with pytest.raises(DataError, match="not decided at row 1777 of a.parquet, row group 177"):
        list(judge(bases, tuple_of(y > 0.5), ["x"], 64))


def tuple_of(condition: ld.Predicate) -> tuple[Condition, ...]:
    return (as_condition(condition),)


def until_error(items: Iterator[Judged]) -> Iterator[Judged]:
    with suppress(DataError):
        yield from items


def cut_out(data: Dataset, start: int, stop: int) -> list[Any]:
    """The fragments of some events."""
    parts = []
    for fragment in data.fragments:
        low = max(start - fragment.offset, 0)
        high = min(stop - fragment.offset, fragment.rows)
        if low < high:
            parts.append(fragment.cut(low, high))
    return parts
