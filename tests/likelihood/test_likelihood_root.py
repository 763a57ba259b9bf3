"""The two-wave case read from ROOT files: the same bits as from Parquet and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import uproot
from two_wave_case import as_arrays, bits, table, two_waves

import laddu_dask as ld


def as_root(name: str, folder: Path, form: str, rows: int) -> ld.Dataset:
    """The sample as a tree with blocks of `rows`."""
    columns = {key: table(name)[key].to_numpy() for key in table(name).column_names}
    with uproot.recreate(folder / f"{name}.root") as file:
        tree = None
        for start in range(0, len(columns["weight"]), rows):
            part = {key: values[start : start + rows] for key, values in columns.items()}
            if tree is not None:
                tree.extend(part)
            elif form == "ttree":
                tree = file.mktree("kin", {key: values.dtype for key, values in columns.items()})
                tree.extend(part)
            else:
                tree = file.mkrntuple("kin", part)
    return ld.read_root(folder / f"{name}.root")


@pytest.mark.parametrize(("form", "rows"), [("ttree", 777), ("rntuple", 2500)])
def test_root_gives_the_bits_of_parquet_and_memory(tmp_path: Path, form: str, rows: int) -> None:
    """Value and gradient, prepared or streamed, whatever the blocks and partitions."""
    data, mc = (as_root(name, tmp_path, form, rows) for name in ("data", "mc"))
    point = {"mag": 0.6, "pha": 1.1}
    expected = bits(two_waves(), point)
    assert bits(two_waves(data=as_arrays("data"), accepted_mc=as_arrays("mc")), point) == expected
    for execution in (ld.Execution(), ld.Execution(partitions=3, storage="streaming")):
        assert bits(two_waves(execution, data=data, accepted_mc=mc), point) == expected
