"""Columns under other names, in other units, or constant, for every kind of file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from root_files import write

import laddu_dask as ld
from laddu_dask.data import ColumnMap, Dataset, read_parquet, read_root
from laddu_dask.errors import DataError

N = 250
MEV = 1e-3


def stored() -> dict[str, Any]:
    random = np.random.default_rng(3)
    columns: dict[str, Any] = {f"{c}_MeV": 1e3 * random.random(N) for c in ("E", "X", "Y", "Z")}
    return {**columns, "m_f": random.random(N).astype(np.float32), "w": random.random(N)}


MAP: ColumnMap = {
    "beam": tuple(ld.StoredColumn(f"{c}_MeV", MEV) for c in ("E", "X", "Y", "Z")),
    "target": (0.938272, 0.0, 0, 0),
    "mass": "m_f",
    "again": "m_f",
}


def opened(kind: str, folder: Path) -> Dataset:
    if kind == "parquet":
        pq.write_table(pa.table(stored()), folder / "d.parquet", row_group_size=100)
        return read_parquet(folder / "d.parquet", MAP, weight="w")
    path = write(folder / "d.root", stored(), form=kind)
    return read_root(path, columns=MAP, weight="w")


@pytest.mark.parametrize("kind", ["parquet", "ttree", "rntuple"])
def test_names_scales_and_constants(kind: str, tmp_path: Path) -> None:
    """The same bits as the columns of the file times the scale, cut, selected or pickled."""
    data = pickle.loads(pickle.dumps(opened(kind, tmp_path)))
    columns = stored()
    assert data.schema.p4s == ("beam", "target")
    assert data.schema.scalars == ("mass", "again")
    assert data.column("beam_px").tobytes() == (columns["X_MeV"] * MEV).tobytes()
    assert data.column("target_e").tolist() == [0.938272] * N
    widened = columns["m_f"].astype(np.float64)
    assert data.column("again").tobytes() == data.column("mass").tobytes() == widened.tobytes()
    assert data.weights().tobytes() == columns["w"].tobytes()
    part = list(data.fragments[0].cut(5, 60).read(["mass", "target_px", "beam_e"], 50))
    assert [len(batch.weights) for batch in part] == [50, 5]
    assert part[0].values[2].tobytes() == (columns["E_MeV"] * MEV)[5:55].tobytes()
    kept = data.select(ld.scalar("mass") < 0.5)
    assert kept.column("beam_e").tobytes() == (columns["E_MeV"] * MEV)[widened < 0.5].tobytes()
    assert data.with_weights(np.ones(N)).sum_weights() == N


def test_the_map_is_part_of_the_identity(tmp_path: Path) -> None:
    path = write(tmp_path / "d.root", stored())
    maps: list[ColumnMap] = [
        {"m": "m_f"},
        {"m": "w"},
        {"m": ld.StoredColumn("m_f", 2.0)},
        {"m": "m_f", "c": 1.0},
        {"m": "m_f", "c": 2.0},
    ]
    identities = {read_root(path, columns=columns).fingerprint for columns in maps}
    assert len(identities) == len(maps)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"m": "m_g"}, r"column 'm_g' \(did you mean 'm_f'"),
        ({"beam": ("E_MeV", "X_MeV")}, r"2 entries for the four-momentum 'beam'"),
        ({"m": None}, r"gives None for 'm'"),
        ({"m": True}, r"gives True for 'm'"),
        ({"c": 1.0}, r"names no column of the files"),
        ({}, r"names no column of the files"),
        ({"weight": "w"}, r"weight='w'"),
        ({"k": ("E_MeV",) * 4, "k_e": "m_f"}, r"'k_e' occurs twice"),
    ],
)
def test_maps_that_cannot_be_meant(columns: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "d.root", stored())
    with pytest.raises(DataError, match=message):
        read_root(path, columns=columns)


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_scales_are_finite_and_not_zero(scale: float) -> None:
    with pytest.raises(DataError, match=r"the scale of column 'x' is"):
        ld.StoredColumn("x", scale)


# AmpTools ------------------------------------------------------------------------------------


def amptools_tree(counts: list[int], fixed: bool) -> dict[str, Any]:
    events = len(counts)
    columns: dict[str, Any] = {}
    for number, label in enumerate(("E", "Px", "Py", "Pz")):
        columns[f"{label}_Beam"] = np.arange(events, dtype=np.float32) + number
        rows = [[100.0 * number + 10 * k + e for k in range(counts[e])] for e in range(events)]
        columns[f"{label}_FinalState"] = np.array(rows, np.float32) if fixed else ak.Array(rows)
    return {**columns, "Weight": np.linspace(-1, 1, events).astype(np.float32)}


@pytest.mark.parametrize("fixed", [False, True], ids=["counted", "fixed"])
def test_amptools_trees(tmp_path: Path, fixed: bool) -> None:
    """Arrays with a counter, as AmpTools writes them, or of a fixed length."""
    path = write(tmp_path / "tree.root", amptools_tree([3] * 7, fixed), rows=3)
    data = ld.read_amptools(path, ["p", "k1", "k2"])
    assert data.schema.p4s == ("beam", "p", "k1", "k2")
    assert data.column("k2_py").tolist() == [220.0 + e for e in range(7)]
    assert data.column("beam_pz").tolist() == [3.0 + e for e in range(7)]
    assert data.weights().tolist() == np.linspace(-1, 1, 7).astype(np.float32).tolist()
    polarised = ld.read_amptools(path, ["p", "k1"], pol_in_beam=True)
    assert polarised.column("pol_px").tolist() == [1.0 + e for e in range(7)]
    assert polarised.column("pol_py").tolist() == [2.0 + e for e in range(7)]
    assert polarised.column("beam_px").tolist() == [0.0] * 7
    assert polarised.column("beam_pz").tobytes() == polarised.column("beam_e").tobytes()


def test_amptools_events_with_another_number_of_particles(tmp_path: Path) -> None:
    path = write(tmp_path / "tree.root", amptools_tree([2, 2, 3, 2], fixed=False), rows=2)
    data = ld.read_amptools(path, ["p", "k"])
    with pytest.raises(DataError, match=r"'E_FinalState' of .* has 3 numbers in row 2 of tree"):
        data.column("k_e")
    with pytest.raises(DataError, match=r"four-momenta|E_FinalState\[2\]"):
        ld.read_amptools(path, ["p", "k", "l"])
    for names in (["p", "p"], [], ["beam"], "pk"):
        with pytest.raises(DataError, match=r"each once and none called 'beam'"):
            ld.read_amptools(path, names)
