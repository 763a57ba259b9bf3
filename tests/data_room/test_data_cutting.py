"""However rows are cut and batched, the same rows come out, bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.data import Batch, Dataset, Fragment, read_parquet
from laddu_dask.data.fetched import fetched
from laddu_dask.errors import DataError

N = 97
COLUMNS = ("x", "y", "i")
KINDS = [
    *("arrays", "parquet", "reweighted", "batches", "counted batches", "ranges"),
    *("selected", "selected, reweighted", "all selected", "fetched"),
]


@pytest.fixture(scope="module")
def table() -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng(5)
    x = random.normal(size=N)
    x[3], x[50] = np.nan, -0.0
    return {
        "i": random.integers(-9, 9, N).astype(np.int16),
        "x": x,
        "weight": random.normal(size=N),
        "y": random.normal(size=N).astype(np.float32),
    }


@pytest.fixture(scope="module")
def datasets(
    table: dict[str, NDArray[np.generic]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("cutting")
    arrow = pa.table(table)
    pq.write_table(arrow.slice(0, 60), folder / "a.parquet", row_group_size=25)
    pq.write_table(arrow.slice(60), folder / "b.parquet", row_group_size=30, data_page_size=64)
    scalars = {name: table[name] for name in COLUMNS}
    arrays = Dataset.from_arrays(scalars=scalars, weights=table["weight"])
    files = read_parquet(folder)
    made: dict[str, Any] = {"columns": COLUMNS, "weight": "weight", "identity": "table"}
    # Of the rows of this one every third is a row of the table, the others do not pass.
    sparse = {name: np.repeat(values, 3) for name, values in table.items() if name != "weight"}
    sparse["keep"] = np.tile([0.5, 2.5, 1.5], N)
    crowd = Dataset.from_arrays(scalars=sparse, weights=np.repeat(table["weight"], 3))
    keep = ld.scalar("keep")
    return {
        "arrays": arrays,
        "parquet": files,
        "reweighted": read_parquet(folder, weight=None).with_weights(table["weight"]),
        "batches": Dataset.from_batches(partial(some_batches, table), rows=[40, 0, 57], **made),
        "counted batches": Dataset.from_batches(
            partial(some_batches, table), rows=None, pieces=3, **made
        ),
        "ranges": Dataset.from_ranges(partial(some_rows, table), rows=N, **made),
        "selected": crowd.select(keep > 1.0).select(keep < 2.0),
        "selected, reweighted": crowd.select((keep > 1.0) & (keep < 2.0)).with_weights(
            table["weight"]
        ),
        "all selected": files.select(ld.scalar("i") > -100.0),
        "fetched": Dataset(
            files.schema, tuple(fetched(part, COLUMNS) for part in files.fragments), "fetched"
        ),
    }


def some_batches(
    table: dict[str, NDArray[np.generic]], piece: int
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Two pieces with rows, in batches of seven, and an empty piece between them."""
    start, stop = [(0, 40), (40, 40), (40, 97)][piece]
    for first in range(start, stop, 7):
        yield some_rows(table, first, min(first + 7, stop))


def some_rows(
    table: dict[str, NDArray[np.generic]], start: int, stop: int
) -> dict[str, NDArray[np.generic]]:
    return {name: values[start:stop] for name, values in table.items()}


def joined(batches: Sequence[Batch]) -> bytes:
    values = np.concatenate([batch.values for batch in batches], axis=1)
    weights = np.concatenate([batch.weights for batch in batches])
    return values.tobytes() + weights.tobytes()


def expected(table: dict[str, NDArray[np.generic]]) -> bytes:
    values = np.stack([table[name].astype(np.float64) for name in COLUMNS])
    return values.tobytes() + table["weight"].tobytes()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(drawn=st.data())
def test_any_cutting_and_batching_yields_the_same_rows(
    drawn: st.DataObject,
    kind: str,
    datasets: dict[str, Dataset],
    table: dict[str, NDArray[np.generic]],
) -> None:
    """DA-07, DA-08, T-43: cuts of cuts, empty cuts, any batch size, through pickles."""
    batches: list[Batch] = []
    for whole in datasets[kind].fragments:
        edges = drawn.draw(st.lists(st.integers(0, whole.rows), max_size=4))
        bounds = [0, *sorted(edges), whole.rows]
        for start, stop in pairwise(bounds):
            middle = drawn.draw(st.integers(0, stop - start))
            cut = whole.cut(start, stop)
            for piece in (cut.cut(0, middle), cut.cut(middle, cut.rows)):
                batch_rows = drawn.draw(st.integers(1, 40) | st.just(2**62))
                check_and_collect(pickle.loads(pickle.dumps(piece)), batch_rows, batches)
    assert joined(batches) == expected(table)


def check_and_collect(piece: Fragment, batch_rows: int, batches: list[Batch]) -> None:
    rows = 0
    for batch in piece.read(COLUMNS, batch_rows):
        n = len(batch.weights)
        assert batch.start == rows
        assert n == min(batch_rows, piece.rows - rows)
        assert batch.values.shape == (len(COLUMNS), n)
        assert batch.values.flags.c_contiguous
        assert batch.values.dtype == batch.weights.dtype == np.float64
        rows += n
        batches.append(batch)
    assert rows == piece.rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_rows", [1, 7, 25, 96, 97, 98, 2**62])
def test_batches_of_a_data_set_ignore_its_fragments(
    kind: str,
    batch_rows: int,
    datasets: dict[str, Dataset],
    table: dict[str, NDArray[np.generic]],
) -> None:
    """DA-07: coalesced and split to the requested size in order."""
    batches = list(datasets[kind].batches(COLUMNS, batch_rows))
    full, rest = divmod(N, min(batch_rows, N))
    sizes = [len(batch.weights) for batch in batches]
    assert sizes == [min(batch_rows, N)] * full + [rest] * bool(rest)
    assert [batch.start for batch in batches] == [sum(sizes[:k]) for k in range(len(sizes))]
    assert joined(batches) == expected(table)


def test_rechunking_example() -> None:
    """AX-52, DA-07: 10 rows, chunk 4 gives 4, 4, 2."""
    data = Dataset.from_arrays(scalars={"x": np.arange(10)})
    assert [len(batch.weights) for batch in data.batches(["x"], 4)] == [4, 4, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_follow_the_cuts(kind: str, datasets: dict[str, Dataset]) -> None:
    """T-56: the global index of an event does not depend on how the rows are cut."""
    data = datasets[kind]
    assert sum(fragment.rows for fragment in data.fragments) == data.n_events == N
    offset = 0
    for fragment in data.fragments:
        assert fragment.offset == offset
        cut = fragment.cut(1, 7).cut(2, 5)
        assert (cut.offset, cut.rows) == (offset + 3, 3)
        assert cut.locate(0) == fragment.locate(3)
        offset += fragment.rows
    with_numpy_bounds = data.fragments[0].cut(np.int64(1), np.int64(3))  # type: ignore[arg-type]
    assert type(with_numpy_bounds.offset) is int


@pytest.mark.parametrize("kind", KINDS)
def test_asking_for_a_column_twice_or_for_none(kind: str, datasets: dict[str, Dataset]) -> None:
    fragment = datasets[kind].fragments[0]
    (batch,) = fragment.read(["y", "x", "y"], 1000)
    assert batch.values[0].tobytes() == batch.values[2].tobytes() != batch.values[1].tobytes()
    (empty,) = fragment.read([], 1000)
    assert empty.values.shape == (0, fragment.rows)
    assert empty.weights.tobytes() == batch.weights.tobytes()
    (plain,) = fragment.unweighted().read([], 1000)
    assert plain.weights.tolist() == [1.0] * fragment.rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 10**6), (5, 4), (10**6, 10**6)])
def test_cuts_outside_are_refused(
    kind: str, start: int, stop: int, datasets: dict[str, Dataset]
) -> None:
    """T-59: slices clip silently, cuts do not."""
    with pytest.raises(DataError, match="cannot cut rows"):
        datasets[kind].fragments[0].cut(start, stop)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_at_least_one_row(kind: str, datasets: dict[str, Dataset]) -> None:
    """DA-04: chunk size zero is an error."""
    with pytest.raises(DataError, match="at least one row"):
        list(datasets[kind].fragments[0].read(COLUMNS, 0))
    with pytest.raises(DataError, match="at least one row"):
        list(datasets[kind].batches(COLUMNS, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fragment_names_a_column_it_lacks(kind: str, datasets: dict[str, Dataset]) -> None:
    with pytest.raises(DataError, match="column 'z'"):
        list(datasets[kind].fragments[0].read(["x", "z"], 10))
