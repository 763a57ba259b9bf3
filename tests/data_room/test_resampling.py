"""Samples and bootstrap replicas: DA-05 (keyed by the global row) and DA-06 (rows kept)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.data import Dataset, read_parquet, row_uniforms
from laddu_dask.data.pieces import read_pieces
from laddu_dask.data.resampling import poisson_counts
from laddu_dask.errors import DataError

KNOWN = [1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0]
"""Multiplicities of the rows 0 to 7 with seed 7."""
N = 137


def _rows(start: int, stop: int) -> dict[str, NDArray[np.float64]]:
    x, w = row_uniforms(1, start, stop, 2)
    return {"x": x, "w": w}


def _piece(number: int) -> dict[str, NDArray[np.float64]]:
    return _rows(40 * number, min(40 * number + 40, N))


def _unknown(number: int) -> list[dict[str, NDArray[np.float64]]]:
    return [_piece(number)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """The same events in many ways."""
    folder = tmp_path_factory.mktemp("resampling")
    table = pa.table(_rows(0, N))
    pq.write_table(table.slice(0, 70), folder / "a.parquet", row_group_size=20)
    pq.write_table(table.slice(70), folder / "b.parquet", row_group_size=33)
    made: dict[str, Any] = {"columns": ["x"], "weight": "w", "identity": "t"}
    arrays = _rows(0, N)
    return {
        "arrays": Dataset.from_arrays(scalars={"x": arrays["x"]}, weights=arrays["w"]),
        "parquet": read_parquet(folder, weight="w"),
        "reweighted": read_parquet(folder, weight=None).with_weights(arrays["w"]),
        "ranges": Dataset.from_ranges(_rows, rows=N, **made),
        "batches": Dataset.from_batches(_piece, rows=[40, 40, 40, 17], **made),
        "counted": Dataset.from_batches(_unknown, rows=None, pieces=4, **made),
        "selected": Dataset.from_ranges(_rows, rows=N, **made).select(ld.scalar("x") >= 0.0),
    }


SOURCES = ["arrays", "parquet", "reweighted", "ranges", "batches", "counted", "selected"]


def test_known_multiplicities_wherever_the_range_begins() -> None:
    """DA-05."""
    assert poisson_counts(7, 0, 8).tolist() == KNOWN
    assert poisson_counts(7, 3, 8).tolist() == KNOWN[3:]


def test_moments_of_many_multiplicities() -> None:
    """Mean and variance one within four standard deviations, and exp(-1) zeros."""
    counts = poisson_counts(3, 0, 200_000)
    assert counts.mean() == pytest.approx(1, abs=0.009)
    assert counts.var() == pytest.approx(1, abs=0.016)
    assert np.mean(counts == 0) == pytest.approx(np.exp(-1), abs=0.0044)


def test_known_rows_of_a_sample() -> None:
    """DA-05: seed 7 keeps these of ten rows at one half."""
    sample = Dataset.from_arrays(scalars={"i": np.arange(10)}).subsample(0.5, seed=7)
    assert sample.column("i").tolist() == [0.0, 2.0, 3.0, 4.0, 9.0]
    assert sample.row_label(3) == "event 3 (row 4 of the arrays)"


def test_rows_stay_and_weights_become_explicit() -> None:
    """DA-06."""
    replica = Dataset.from_arrays(scalars={"x": np.arange(8.0)}).bootstrap(7)
    assert replica.schema.has_weight
    assert replica.weights().tolist() == KNOWN
    assert replica.column("x").tolist() == list(range(8))
    assert replica.sum_weights() == 9.0


def _read(data: Dataset, sizes: list[int], batch_rows: int) -> tuple[bytes, bytes]:
    """Column and weights of cut fragments."""
    values, weights = [], []
    fragments = []
    for fragment in data.fragments:
        start = 0
        for size in [*sizes, fragment.rows]:
            stop = min(start + size, fragment.rows)
            if start < stop:
                fragments.append(fragment.cut(start, stop))
            start = stop
    for piece in read_pieces(fragments, ["x"], batch_rows):
        values.append(np.asarray(piece.columns[0], dtype=float))
        weights.append(piece.every_weight())
    return np.concatenate(values).tobytes(), np.concatenate(weights).tobytes()


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sizes=st.lists(st.integers(0, 30), max_size=4), batch_rows=st.integers(1, 200))
def test_nothing_depends_on_how_the_rows_are_cut(
    sources: dict[str, Dataset], name: str, sizes: list[int], batch_rows: int
) -> None:
    """DA-05: nor on the source; replicas of samples and samples of replicas too."""
    data, rows = pickle.loads(pickle.dumps(sources[name])), _rows(0, N)
    counts = poisson_counts(5, 0, N)
    expected = rows["x"].tobytes(), (rows["w"] * counts).tobytes()
    assert _read(data.bootstrap(5), sizes, batch_rows) == expected
    sample = data.subsample(0.4, 11)
    kept = np.isin(rows["x"], sample.column("x"))
    assert 35 < kept.sum() < 75
    assert _read(sample, sizes, batch_rows) == (
        rows["x"][kept].tobytes(),
        rows["w"][kept].tobytes(),
    )
    own = rows["w"][kept] * poisson_counts(5, 0, int(kept.sum()))
    replica = sample.bootstrap(5)
    assert _read(replica, sizes, batch_rows)[1] == own.tobytes()
    drawn = data.bootstrap(5).subsample(0.4, 11)
    assert _read(drawn, sizes, batch_rows)[1] == (rows["w"] * counts)[kept].tobytes()


@pytest.mark.parametrize("name", SOURCES)
def test_samples_are_nested_and_end_at_all_and_nothing(
    sources: dict[str, Dataset], name: str
) -> None:
    data = sources[name]
    small, large = (set(data.subsample(f, 3).column("x")) for f in (0.2, 0.6))
    assert small < large
    assert data.subsample(1.0, 3).column("x").tobytes() == data.column("x").tobytes()
    assert data.subsample(0.0, 3).n_events == 0
    assert set(data.subsample(0.2, 4).column("x")) != small


def test_a_sample_of_a_selection_is_not_a_selection_of_a_sample(
    sources: dict[str, Dataset],
) -> None:
    """Indices are those of the data set that the sample is made of."""
    data, x = sources["parquet"], _rows(0, N)["x"]
    condition = ld.scalar("x") > 0.5
    one = data.subsample(0.5, 1).select(condition).column("x")
    two = data.select(condition).subsample(0.5, 1).column("x")
    drawn = np.isin(x, data.subsample(0.5, 1).column("x"))
    assert one.tolist() == x[drawn & (x > 0.5)].tolist()
    assert one.tolist() != two.tolist()


def test_nothing_is_read_to_make_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted by their indices alone."""

    def unreadable(start: int, stop: int) -> Any:
        raise AssertionError("read")

    data = Dataset.from_ranges(unreadable, ["x"], rows=10**6, identity="none")
    assert data.subsample(0.25, 9).n_events == pytest.approx(250_000, abs=1800)
    assert data.bootstrap(9).n_events == 10**6


def test_identity(sources: dict[str, Dataset]) -> None:
    """DA-11: seed, fraction and kind are part of it; counting is not."""
    data = sources["parquet"]
    made = [data, data.bootstrap(1), data.bootstrap(2), data.subsample(0.5, 1)]
    made += [data.subsample(0.5, 2), data.subsample(0.25, 1), data.subsample(0.5, 1).bootstrap(1)]
    assert len({one.fingerprint for one in made}) == len(made)
    for one in made:
        before = one.fingerprint
        assert one.n_events >= 0
        assert pickle.loads(pickle.dumps(one)).fingerprint == before


@pytest.mark.parametrize("storage", ["resident", "streaming"])
def test_likelihoods_of_replicas(sources: dict[str, Dataset], storage: Any) -> None:
    """The bits of the same weights given as an array, in every storage and cutting."""
    data = sources["parquet"]
    model = ld.Model((ld.parameter("a", initial=0.7) + ld.scalar("x")) ** 2)
    drawn = data.with_weights(_rows(0, N)["w"] * poisson_counts(5, 0, N))
    values = set()
    for events in (data.bootstrap(5), drawn):
        for partitions in (1, 3):
            term = ld.NLL(model, data=events, accepted_mc=data.subsample(0.9, 2))
            execution = ld.Execution(partitions=partitions, storage=storage)
            with ld.Likelihood([term], execution) as used:
                value, gradient = used.value_and_gradient()
                values.add((value, gradient.tobytes()))
    assert len(values) == 1


@pytest.mark.parametrize("seed", [-1, 1 << 64, 0.5, "x"])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    data = Dataset.from_arrays(scalars={"x": np.arange(3.0)})
    for draw in (data.bootstrap, lambda seed: data.subsample(0.5, seed)):
        with pytest.raises(DataError, match=r"a seed is an integer from 0 to 2\*\*64 - 1"):
            draw(seed)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "half", None])
def test_a_fraction_that_is_none_is_refused(fraction: Any) -> None:
    data = Dataset.from_arrays(scalars={"x": np.arange(3.0)})
    with pytest.raises(DataError, match="a fraction of the events is a number from 0 to 1"):
        data.subsample(fraction, 1)


def test_a_weight_that_overflows_is_named(tmp_path: Path) -> None:
    """Event and row, when it is read."""
    weights = np.array([1.0, 1.7e308, 1.0])
    pq.write_table(pa.table({"x": weights, "weight": weights}), tmp_path / "a.parquet")
    replica = read_parquet(tmp_path).bootstrap(7)
    with pytest.raises(DataError, match=r"the weight of event 1 \(row 1 of a\.parquet") as caught:
        replica.weights()
    assert caught.value.event == 1
