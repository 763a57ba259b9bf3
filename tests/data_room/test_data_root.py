"""Trees of ROOT files: what is found, what is converted, what is refused and why."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import awkward as ak
import numpy as np
import pytest
import uproot
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from root_files import N, contents, write

from laddu_dask.data import Dataset, RootFragment, read_root
from laddu_dask.data.root_checksums import check_pages
from laddu_dask.data.root_file import Element, RootTree, opened
from laddu_dask.errors import DataError

FORMS = ("ttree", "rntuple")


@pytest.fixture(scope="module", params=FORMS)
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds of numbers, in three blocks."""
    return write(tmp_path_factory.mktemp("good") / "good.root", contents(), form=request.param)


def expected(name: str) -> np.ndarray:
    branch, bracket, index = name.partition("[")
    values = contents()[branch]
    return (values[:, int(index[:-1])] if bracket else values).astype(np.float64)


def test_every_number_is_read_exactly(good: Path) -> None:
    """float32, float64, integers and elements of arrays, to the last bit."""
    data = read_root(good)
    assert data.n_events == N
    assert set(data.schema.columns) == {"x", "f", "i", "h", "a[0]", "a[1]", "a[2]"}
    assert data.schema.weight == "weight"
    for name in data.schema.columns:
        assert data.column(name).tobytes() == expected(name).tobytes()
    assert data.files == (str(good),)
    assert data.row_label(250) == "event 250 (row 250 of good.root, tree kin;1)"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.tuples(st.integers(0, N), st.integers(0, N)), batch_rows=st.integers(1, 400))
def test_any_range_in_any_batches(good: Path, cut: tuple[int, int], batch_rows: int) -> None:
    """Every cut, read in batches of every size, is that part of the whole; fragments pickle."""
    start, stop = sorted(cut)
    fragment = read_root(good, columns=["x", "i"]).fragments[0].cut(start, stop)
    fragment = pickle.loads(pickle.dumps(fragment))
    batches = list(fragment.read(["i", "x"], batch_rows))
    assert all(len(batch.weights) == batch_rows for batch in batches[:-1])
    for row, name in enumerate(["i", "x"]):
        found = np.concatenate([np.empty(0), *(batch.values[row] for batch in batches)])
        assert found.tobytes() == expected(name)[start:stop].tobytes()


def test_only_needed_branches_are_decoded(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each of their blocks once, however short the batches are."""
    seen: list[tuple[str, int, int]] = []
    original = RootTree.numbers

    def numbers(self: RootTree, branch: str, start: int, stop: int) -> np.ndarray:
        seen.append((branch, start, stop))
        return original(self, branch, start, stop)

    monkeypatch.setattr(RootTree, "numbers", numbers)
    data = read_root(good, weight=None)
    assert not seen
    list(data.batches(["x"], 7))
    assert seen == [("x", 0, 100), ("x", 100, 200), ("x", 200, 300)]


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    for number in (1, 0):
        write(tmp_path / f"run{number}.root", {"x": np.arange(5.0) + 10 * number})
    data = read_root(tmp_path / "run*.root")
    assert data.column("x").tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert data.row_label(7) == "event 7 (row 2 of run1.root, tree kin;1)"
    assert read_root(tmp_path).fingerprint == data.fingerprint
    assert read_root([tmp_path / "run1.root"]).fingerprint != data.fingerprint
    write(tmp_path / "run2.root", {"y": np.arange(5.0)})
    with pytest.raises(DataError, match=r"(?s)run2\.root +x +number +missing.*read_root\("):
        read_root(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \*\.root file"):
        read_root(tmp_path / "empty")


def test_trees_and_cycles(tmp_path: Path) -> None:
    """Several trees are an error that names them; without a cycle the newest is read."""
    path = tmp_path / "a:b.root"
    with uproot.recreate(path) as file:
        for value in (1.0, 2.0):
            file.mktree("kin", {"x": "f8"}).extend({"x": np.array([value])})
        assert read_root(path).column("x").tolist() == [2.0]
        file.mktree("gen/kin", {"x": "f8"}).extend({"x": np.array([3.0])})
        file["note"] = "text"
    with pytest.raises(DataError, match=r"the trees 'kin', 'gen/kin'; name the one that is meant"):
        read_root(path)
    assert read_root(path, "kin").column("x").tolist() == [2.0]
    assert read_root(path, "kin;1").column("x").tolist() == [1.0]
    assert read_root(path, "gen/kin").column("x").tolist() == [3.0]
    with pytest.raises(DataError, match=r"no tree 'kim'; it has the trees 'kin', 'gen/kin'"):
        read_root(path, "kim")
    with pytest.raises(DataError, match=r"'note;1', but that is a TObjString, not a tree"):
        read_root(path, "note;1")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_number_is_refused_by_type(tmp_path: Path, form: str) -> None:
    """Booleans, text and arrays of changing length: file, branch, type."""
    columns = {
        "x": np.arange(3.0),
        "b": np.array([True, False, True]),
        "j": ak.Array([[1.0], [2.0, 3.0], []]),
    }
    path = write(tmp_path / "odd.root", columns, form=form)
    data = read_root(path)
    assert "x" in data.schema
    for name, kind in (("b", "bool"), ("j", "double|vector")):
        with pytest.raises(DataError, match=rf"column '{name}' has type .*({kind})") as error:
            data.require([name], wanted_by="a test")
        assert error.value.file == str(path)
    with pytest.raises(DataError, match=r"branch 'j' of .*odd\.root has 2 numbers in row 1"):
        read_root(path, columns=["j[0]"]).column("j[0]")


@pytest.mark.parametrize("form", FORMS)
def test_rounded_integers_and_weights_that_are_not_finite(tmp_path: Path, form: str) -> None:
    columns = {"i": np.array([1, 2**53 + 1]), "weight": np.array([1.0, np.nan])}
    path = write(tmp_path / "bad.root", columns, form=form)
    with pytest.raises(DataError, match=r"weight of event 1 \(row 1 of bad\.root, tree kin;1\)"):
        read_root(path).weights()
    with pytest.raises(DataError, match=r"column 'i' of .*bad\.root is the integer 90071992") as e:
        read_root(path, weight=None).column("i")
    assert (e.value.event, e.value.value) == (1, 2**53 + 1)


def test_a_tree_without_entries(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "none.root") as file:
        file.mktree("kin", {"x": "f8"})
    data = read_root(tmp_path / "none.root")
    assert (data.n_events, data.column("x").tolist()) == (0, [])


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "run.root", {"x": np.arange(5.0)})
    data = read_root(path)
    write(path, {"x": np.arange(6.0)})
    with pytest.raises(DataError, match=r"run\.root is not the file it was"):
        data.column("x")
    path.unlink()
    with pytest.raises(DataError, match=r"run\.root cannot be found on the machine"):
        data.column("x")


def test_without_uproot_the_error_says_what_to_install(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uproot", None)
    with pytest.raises(DataError, match=r"pip install 'laddu-dask\[root\]'"):
        read_root(good)


@pytest.mark.parametrize("keep", [0, 1, 4, 60, 100, 0.3, 0.7, -200, -9, -1])
def test_a_file_cut_short_is_refused(good: Path, tmp_path: Path, keep: float) -> None:
    whole = good.read_bytes()
    path = tmp_path / "cut.root"
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else int(keep)])
    with pytest.raises(DataError, match=r"cut\.root") as error:
        read_root(path).column("x")
    assert error.value.file == str(path)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3
    )
)
def test_flipped_bytes_give_a_clear_error_or_every_row(
    good: Path, tmp_path: Path, flips: list[tuple[float, int]]
) -> None:
    """Never a crash, a hang, or fewer rows; numbers stored as they are have no checksum."""
    damaged = bytearray(good.read_bytes())
    for place, mask in flips:
        damaged[int(place * len(damaged))] ^= mask
    path = tmp_path / "flipped.root"
    path.write_bytes(damaged)
    refusal = str(path)
    try:
        found = len(read_root(path, columns=["x", "f"], weight=None).column("x"))
    except DataError as error:
        found, refusal = N, str(error)
    assert found == N
    assert str(path) in refusal


def test_fragments_end_where_all_blocks_end(tmp_path: Path) -> None:
    """Short blocks are put together; the last fragment takes the rest."""
    rows = 40_000
    path = write(tmp_path / "long.root", {"x": np.zeros(5 * rows, np.float32)}, rows=rows)
    fragments = read_root(path).fragments
    assert all(isinstance(fragment, RootFragment) for fragment in fragments)
    assert [fragment.rows for fragment in fragments] == [80_000, 80_000, 40_000]
    assert isinstance(read_root(path), Dataset)


def test_pages_with_checksums_are_compared() -> None:
    """uproot writes none, so a page as ROOT writes it: the bytes, then XXH3 of them."""
    content = np.arange(10.0).tobytes()
    stored = bytearray(content + xxhash.xxh3_64_intdigest(content).to_bytes(8, "little"))

    def chunk(start: int, stop: int) -> SimpleNamespace:
        return SimpleNamespace(raw_data=stored[start:stop])

    class Tree:
        column_records: ClassVar = [SimpleNamespace(idx=0, field_id=4)]
        cluster_summaries: ClassVar = [SimpleNamespace(num_first_entry=0, num_entries=10)]
        file = SimpleNamespace(source=SimpleNamespace(chunk=chunk))
        locator = SimpleNamespace(offset=0, num_bytes=80)
        page_link_list: ClassVar = [
            [SimpleNamespace(pages=[SimpleNamespace(has_checksum=True, locator=locator)])]
        ]

        def __getitem__(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(field_id=4, fields=[])

    check_pages(Tree(), "x", 0, 10)
    stored[17] ^= 4
    check_pages(Tree(), "x", 10, 20)
    with pytest.raises(ValueError, match="checksum of a page does not match"):
        check_pages(Tree(), "x", 3, 4)


def test_a_tree_whose_blocks_do_not_make_up_its_rows(tmp_path: Path) -> None:
    """Damage to the number of rows, or a branch that was filled less often."""
    path = write(tmp_path / "odd.root", {"x": np.arange(300.0)})
    with opened(str(path)) as file:
        whole = file["kin"]
        tree = RootTree(str(path), whole, 301, {"x": Element("x")}, {}, frozenset())
        with pytest.raises(DataError, match=r"'x' of .*odd\.root has .* make up the 301 rows"):
            tree.common_ends()
