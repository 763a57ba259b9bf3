"""The file of a checkpoint: of whatever is left of it, all records are good, or it says so."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest

from laddu_dask.errors import DataError, OutputError
from laddu_dask.fit import journal
from laddu_dask.fit.journal import Journal, create_journal, read_journal

RECORDS = [b"what the fit is of", b"", b"first", b"second" * 9, b"\nLDJ in a payload", b"last"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with all records, some of them there from the beginning."""
    file = tmp_path / "fit.checkpoint"
    create_journal(file, RECORDS[:2])
    opened = Journal(file)
    for record in RECORDS[2:]:
        opened.append(record)
    opened.close()
    return file


def test_records_come_back_in_order(path: Path) -> None:
    found = read_journal(path)
    assert found.records == RECORDS
    assert found.ends[-1] == path.stat().st_size
    assert found.lost == 0


def test_cut_at_every_byte_keeps_all_whole_records(path: Path, tmp_path: Path) -> None:
    """A death in the middle of writing: what was whole is kept, and appending goes on behind it."""
    content, ends = path.read_bytes(), read_journal(path).ends
    cut = tmp_path / "cut"
    for size in range(ends[0], len(content)):
        cut.write_bytes(content[:size])
        whole = sum(end <= size for end in ends)
        opened = Journal(cut)
        assert opened.records == RECORDS[:whole]
        assert cut.stat().st_size == ends[whole - 1]
        opened.append(b"more")
        opened.close()
        assert read_journal(cut).records == [*RECORDS[:whole], b"more"]


def test_cut_within_the_first_record_is_no_journal(path: Path, tmp_path: Path) -> None:
    """The first record came into being with the file, so no death can leave a part of it."""
    content, cut = path.read_bytes(), tmp_path / "cut"
    for size in range(read_journal(path).ends[0]):
        cut.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"is not a checkpoint|is damaged at byte"):
            read_journal(cut)


def test_damage_at_every_byte_is_found(path: Path, tmp_path: Path) -> None:
    """In the last record it is a lost end; anywhere else it is refused, and the place is named."""
    content, ends = path.read_bytes(), read_journal(path).ends
    damaged = tmp_path / "damaged"
    for place in range(len(content)):
        for bits in (0x01, 0xFF):
            changed = bytearray(content)
            changed[place] ^= bits
            damaged.write_bytes(changed)
            if place >= ends[-2]:
                assert read_journal(damaged).records == RECORDS[:-1]
                continue
            with pytest.raises(DataError, match=r"not a checkpoint|damaged at byte") as caught:
                read_journal(damaged)
            assert caught.value.file == str(damaged)


def test_an_end_of_zeros_is_a_lost_end(path: Path) -> None:
    """Some file systems leave them behind when the power is cut."""
    with path.open("ab") as stream:
        stream.write(bytes(100))
    assert read_journal(path).records == RECORDS
    Journal(path).close()
    assert read_journal(path).lost == 0


def test_records_of_another_file_are_not_taken(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    create_journal(other, RECORDS[:2])
    ends = read_journal(path).ends
    mixed = other.read_bytes() + path.read_bytes()[ends[1] :]
    other.write_bytes(mixed)
    assert read_journal(other).records == RECORDS[:2]


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the checkpoint .*absent: No such file"):
        read_journal(tmp_path / "absent")
    (tmp_path / "text").write_text("a table of numbers")
    with pytest.raises(DataError, match="text is not a checkpoint of a fit"):
        read_journal(tmp_path / "text")


def test_create_leaves_an_existing_file_alone(path: Path) -> None:
    with pytest.raises(OutputError, match="exists"):
        create_journal(path, RECORDS)
    assert read_journal(path).records == RECORDS


def open_elsewhere(path: Path) -> str:
    try:
        Journal(path).close()
    except OutputError as error:
        return str(error)
    return ""


def test_only_one_process_writes(path: Path) -> None:
    """A job that was submitted twice does not spoil the file."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        opened = Journal(path)
        assert "in use by a fit that is running" in pool.apply(open_elsewhere, (path,))
        opened.close()
        assert pool.apply(open_elsewhere, (path,)) == ""


def test_a_fork_does_not_keep_the_file_locked(path: Path) -> None:
    """A helper that was forked in the middle of a fit may outlive the fit, and cannot write."""
    opened = Journal(path)
    context = multiprocessing.get_context("fork")
    ends, said = context.Event(), context.SimpleQueue()

    def helper() -> None:
        try:
            opened.append(b"from the wrong process")
            said.put("nothing")
        except OutputError as error:
            said.put(str(error))
        opened.close()
        ends.wait(60)

    child = context.Process(target=helper)
    with warnings.catch_warnings():  # newer Pythons warn of forks of processes with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    try:
        assert "from which this one was forked" in said.get()
        assert "in use by a fit" in open_elsewhere(path)
        opened.append(b"from the right one")
        os.close(opened._file)  # what a death does: no more than that
        opened._file = -1
        assert child.is_alive()
        again = Journal(path)
        assert again.records == [*RECORDS, b"from the right one"]
        again.close()
    finally:
        ends.set()
        child.join()


def test_a_full_disk_costs_no_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Journal(path)
    real = journal.os.write

    def full(descriptor: int, data: memoryview) -> int:
        if len(data) < 60:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:30])

    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(OutputError, match="cannot write the checkpoint .*No space left on device"):
        opened.append(b"x" * 50)
    monkeypatch.undo()
    opened.append(b"after")
    opened.close()
    assert read_journal(path).records == [*RECORDS, b"after"]


def test_keep_removes_the_rest(path: Path) -> None:
    opened = Journal(path)
    opened.keep(3)
    opened.append(b"another")
    opened.close()
    assert read_journal(path).records == [*RECORDS[:3], b"another"]
