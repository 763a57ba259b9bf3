"""Machine code on disk: shared, limited, and never trusted blindly."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from every_operation import program, rows

from laddu_dask.errors import ExecutionError
from laddu_dask.kernels import cpu as cpu_kernels
from laddu_dask.kernels import native, object_cache
from laddu_dask.kernels.object_cache import ObjectCache, default_cache

CODE = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "kernels")


def entries(cache: ObjectCache) -> list[Path]:
    assert cache.folder is not None
    return sorted(cache.folder.iterdir())


def test_what_was_put_is_got(cache: ObjectCache) -> None:
    assert cache.get("a") is None
    cache.put("a", CODE)
    assert cache.get("a") == CODE
    assert cache.get("b") is None
    assert (cache.hits, cache.misses, cache.rejected) == (1, 2, 0)
    assert ObjectCache(cache.folder).get("a") == CODE
    assert len(entries(cache)) == 1  # no temporary file is left


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "longer", "other"])
def test_damaged_entries_are_rejected_and_made_again(
    cache: ObjectCache, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put("a", CODE)
    (path,) = entries(cache)
    content = bytearray(path.read_bytes())
    if damage == "other":  # a good entry under a wrong name
        cache.put("b", CODE)
        (other,) = set(entries(cache)) - {path}
        content = bytearray(other.read_bytes())
    elif damage == "flipped":
        content[-7] ^= 1
    path.write_bytes(
        {"empty": b"", "truncated": bytes(content[:-1]), "longer": bytes(content) + b"\0"}.get(
            damage, bytes(content)
        )
    )
    with caplog.at_level(logging.WARNING):
        assert cache.get("a") is None
    assert "is damaged and will be made again" in caplog.text
    assert cache.rejected == 1
    cache.put("a", CODE)
    assert cache.get("a") == CODE


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, most_bytes=10**9, most_entries=4)
    for n in range(4):
        cache.put(f"key {n}", CODE)
        os.utime(cache._path(f"key {n}"), ns=(n * 10**9, n * 10**9))
    assert cache.get("key 0") == CODE  # that makes it the youngest
    cache.put("key 4", CODE)
    assert [cache.get(f"key {n}") is not None for n in range(5)] == [True, False, False, True, True]
    assert cache.evicted == 2


def test_bytes_are_limited_and_a_giant_stays_alone(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, most_bytes=3 * len(CODE))
    for n in range(20):
        cache.put(f"key {n}", CODE)
        assert sum(path.stat().st_size for path in entries(cache)) <= 3 * len(CODE)
    cache.put("giant", CODE * 5)
    assert cache.get("giant") == CODE * 5
    assert len(entries(cache)) == 1


def _put_and_get(folder: str, rounds: int) -> int:
    cache = ObjectCache(Path(folder), most_entries=3)
    wrong = 0
    for n in range(rounds):
        key = f"key {n % 5}"
        cache.put(key, CODE + key.encode())
        found = cache.get(key)
        wrong += found is not None and found != CODE + key.encode()
    return wrong + cache.rejected


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    """Four processes write, read and evict the same entries: absent at times, wrong never."""
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_put_and_get, [str(tmp_path)] * 4, [200] * 4))
    assert results == [0] * 4
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".new-")]


def test_a_folder_that_cannot_be_written_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = ObjectCache(tmp_path / "file" / "kernels")
    with caplog.at_level(logging.WARNING):
        cache.put("a", CODE)
    assert "nothing more is kept" in caplog.text
    assert cache.get("a") is None


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """`default_cache` reads the environment once; here it reads it anew."""
    monkeypatch.setattr(object_cache, "default_cache", default_cache.__wrapped__)
    return monkeypatch


def test_the_environment_names_the_folder(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    environment.delenv(object_cache.FOLDER_VARIABLE, raising=False)
    environment.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert object_cache.default_cache().folder == tmp_path / "laddu-dask" / "kernels"
    environment.setenv(object_cache.FOLDER_VARIABLE, str(tmp_path / "other"))
    environment.setenv(object_cache.BYTES_VARIABLE, "1000")
    environment.setenv(object_cache.ENTRIES_VARIABLE, "7")
    found = object_cache.default_cache()
    assert (found.folder, found.most_bytes, found.most_entries) == (tmp_path / "other", 1000, 7)
    environment.setenv(object_cache.FOLDER_VARIABLE, "")
    assert object_cache.default_cache().folder is None
    environment.setenv(object_cache.ENTRIES_VARIABLE, "many")
    with pytest.raises(ExecutionError, match="LADDU_DASK_CACHE_ENTRIES='many' is not a positive"):
        object_cache.default_cache()


def test_a_relative_folder_does_not_follow_the_process(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.chdir(tmp_path)
    environment.setenv(object_cache.FOLDER_VARIABLE, "kernels")
    assert object_cache.default_cache().folder == tmp_path / "kernels"
    environment.setenv(object_cache.FOLDER_VARIABLE, "~/kernels")
    environment.setenv("HOME", str(tmp_path))
    assert object_cache.default_cache().folder == tmp_path / "kernels"
    environment.setenv(object_cache.ENTRIES_VARIABLE, "\N{SUPERSCRIPT TWO}")
    with pytest.raises(ExecutionError, match="is not a positive integer"):
        object_cache.default_cache()


def test_a_folder_that_somebody_else_made_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kernels"
    cache = ObjectCache(folder)
    folder.mkdir()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        cache.put("a", CODE)
    assert "it can be written by others" in caplog.text
    assert not list(folder.iterdir())


def test_code_that_others_can_write_is_not_run(
    tmp_path: Path, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv(object_cache.FOLDER_VARIABLE, str(tmp_path))
    tmp_path.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert object_cache.default_cache().folder is None
    assert "can be written by others" in caplog.text


SCRIPT = """
import numpy as np
from every_operation import program, rows
from laddu_dask.kernels import get_backend
from laddu_dask.kernels.object_cache import default_cache
from laddu_dask.kernels.optimizer import optimizer
kernel = get_backend("cpu").compile(program())
out = np.empty((kernel.program.n_outputs, 2048))
kernel.map(rows(kernel.program), np.linspace(0.4, 0.9, kernel.program.n_parameters), out)
optimizer.wait()
cache = default_cache()
print(cache.hits, cache.misses, cache.rejected, hash(out.tobytes()))
"""


def test_another_process_finds_the_kernel_and_mends_a_damaged_one(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        object_cache.FOLDER_VARIABLE: str(tmp_path),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def run() -> list[int]:
        text = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return [int(word) for word in text.split()]

    *counts, expected = run()
    assert counts == [0, 1, 0]
    assert run() == [1, 0, 0, expected]
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert run() == [0, 0, 1, expected]
    assert run() == [1, 0, 0, expected]


def test_the_key_names_processor_and_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    target = cpu_kernels.current_target()
    kernel = cpu_kernels.CpuKernel(program(), target)
    keys = {kernel._key("map"), kernel._key("reduce")}
    monkeypatch.setattr(native, "_generator", lambda: "another")
    keys.add(kernel._key("map"))
    other = cpu_kernels.Target("other", target.triple, "x86-64", "")
    keys.add(cpu_kernels.CpuKernel(program(), other)._key("map"))
    assert len(keys) == 4
    assert rows(program()).shape[0] == program().n_inputs
