"""Files appear whole or not at all, and nothing but files is ever replaced."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from laddu_dask.errors import OutputError
from laddu_dask.fit.output import make_folder, refuse_existing, write_together, write_whole


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # The address has to be short; tests may run in a deep folder.
        here = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("make", "text", "kind"),
    [
        (os.mkfifo, "it is a named pipe", stat.S_ISFIFO),
        (_socket, "it is a socket", stat.S_ISSOCK),
        (os.mkdir, "it is a folder", stat.S_ISDIR),
    ],
)
def test_what_is_no_file_is_never_replaced(
    make: Callable[[Path], None],
    text: str,
    kind: Callable[[int], bool],
    overwrite: bool,
    tmp_path: Path,
) -> None:
    """Not through a link either."""
    path, link = tmp_path / "special", tmp_path / "link"
    make(path)
    link.symlink_to("special")
    for name in (path, link):
        with pytest.raises(OutputError, match=text) as caught:
            write_whole(name, b"new", overwrite=overwrite)
        assert caught.value.file == str(name)
    assert kind(path.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "special"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_devices_are_refused(overwrite: bool, tmp_path: Path) -> None:
    """Asked only whether, since a mistake here would be one on the machine of the tests."""
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    for name in (Path(os.devnull), link):
        with pytest.raises(OutputError, match="it is a device; choose the name of a file"):
            refuse_existing(name, overwrite=overwrite)


def test_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """The link stays a link; what it points to is written, in the folder where that lies."""
    (tmp_path / "archive").mkdir()
    target, link = tmp_path / "archive" / "fit.json", tmp_path / "fit.json"
    target.write_bytes(b"old")
    link.symlink_to(Path("archive") / "fit.json")
    with pytest.raises(OutputError, match="exists and is left as it is"):
        write_whole(link, b"new")
    assert target.read_bytes() == b"old"
    assert write_whole(link, b"new", overwrite=True) == link
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "archive") == ["fit.json"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("goal", ["nowhere", "link"])
def test_link_to_nowhere(goal: str, overwrite: bool, tmp_path: Path) -> None:
    """Also one that points to itself."""
    link = tmp_path / "link"
    link.symlink_to(goal)
    with pytest.raises(OutputError, match=r"cannot write .*link: ") as caught:
        write_whole(link, b"new", overwrite=overwrite)
    assert caught.value.file == str(link)
    assert os.listdir(tmp_path) == ["link"]


def test_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OutputError, match="the folder .*file is not a folder"):
        write_whole(tmp_path / "file" / "fit.json", b"new")
    with pytest.raises(OutputError, match="does not exist; create it first"):
        write_whole(tmp_path / "none" / "fit.json", b"new")


@pytest.mark.parametrize("name", ["n" * 300, "nul\0"])
def test_impossible_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        write_whole(tmp_path / name, b"new")
    assert os.listdir(tmp_path) == []


def test_longest_name(tmp_path: Path) -> None:
    """The draft does not need a longer one."""
    path = tmp_path / ("n" * 250 + ".json")
    assert write_whole(path, b"new").read_bytes() == b"new"


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the writing somebody else may create the file: it is left alone."""
    path = tmp_path / "fit.json"
    sync = os.fsync

    def slowly(descriptor: int) -> None:
        path.write_bytes(b"somebody else's")
        sync(descriptor)

    def unsupported(*_args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", slowly)
    if not links:
        monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(OutputError, match=r"exists and is left as it is.*overwrite=True"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"somebody else's"
    assert os.listdir(tmp_path) == ["fit.json"]


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    assert write_whole(tmp_path / "fit.json", b"new").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["fit.json"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    """Colleagues may read what they may read of other files."""
    (tmp_path / "other").touch()
    path = write_whole(tmp_path / "fit.json", b"new")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert path.stat().st_nlink == 1


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_all_or_none(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file fails, while it is written or while it is named: no first one is left."""
    real, calls = getattr(os, call), []

    def full(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OutputError, match="cannot write .*b: No space left on device") as caught:
        write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert caught.value.file == str(tmp_path / "b")
    assert os.listdir(tmp_path) == []


def test_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    files = {tmp_path / "a": b"1", tmp_path / "b": b"2"}
    with pytest.raises(OutputError, match="a exists"):
        write_together(files)
    assert os.listdir(tmp_path) == ["a"]
    write_together(files, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_folders(tmp_path: Path) -> None:
    """Created with those above; a file in the way is named with what to do."""
    folder = make_folder(tmp_path / "new" / "folder")
    assert os.listdir(folder) == []
    assert make_folder(folder) == folder
    (tmp_path / "file").touch()
    for unusable in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nul\0"):
        with pytest.raises(OutputError, match="cannot write into the folder .*; choose another"):
            make_folder(unusable)
