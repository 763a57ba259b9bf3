"""A reader works one item ahead, never more, and is gone when nobody wants its items."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import pytest

from laddu_dask.errors import DataError, ExecutionError
from laddu_dask.runtime.read_ahead import ReadAhead, items_of

#: Seconds that a busy machine may need for what takes none.
PATIENCE = 60.0


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "laddu-reader"]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def _no_reader_is_left() -> Iterator[None]:
    yield
    assert readers() == []


class Numbers:
    """A source that notes which item it has begun to read, and which thread reads."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.begun = 0
        self.closed = False

    def __call__(self) -> Generator[int, None, None]:
        try:
            for number in range(self.count):
                self.begun = number + 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_items_in_their_order(ahead: bool, count: int) -> None:
    source = Numbers(count)
    with items_of(source, ahead=ahead) as items:
        assert list(items) == list(range(count))
        assert next(iter(items), None) is None
    assert source.closed


def test_one_item_is_read_ahead_and_no_more() -> None:
    """DA-13, MP-06: at most two items exist at a time, the one in use and the next."""
    source = Numbers(6)
    with closing(ReadAhead(source)) as items:
        assert source.begun == 0  # nobody asked yet
        for number, item in enumerate(items):
            assert item == number
            ahead = min(number + 2, source.count)
            wait_until(lambda: source.begun == ahead)  # noqa: B023  # called at once
            time.sleep(0.02)
            assert source.begun == ahead


def test_nothing_is_read_ahead_without_a_thread() -> None:
    source = Numbers(3)
    with items_of(source, ahead=False) as items:
        for number, _ in enumerate(items):
            assert source.begun == number + 1
            assert readers() == []


@pytest.mark.parametrize("ahead", [True, False])
def test_items_before_an_error_come_first(ahead: bool) -> None:
    """DA-07: the error keeps its type and its fields."""
    found = []
    source = Numbers(3, DataError("spoiled", row=7))
    with items_of(source, ahead=ahead) as items:
        with pytest.raises(DataError, match="spoiled") as caught:
            found.extend(items)
        assert caught.value.row == 7
        assert next(items, None) is None
    assert found == [0, 1, 2]
    with items_of(Numbers(3, KeyError("k")), ahead=ahead) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(KeyError, match="k"):
            next(items)


def test_a_closed_reader_stops_at_once() -> None:
    source = Numbers(1000)
    items = ReadAhead(source)
    assert next(items) == 0
    items.close()
    assert readers() == []
    assert source.begun <= 2
    assert source.closed
    assert next(items, None) is None
    items.close()


def test_a_forgotten_reader_stops() -> None:
    """Whether it has begun or not, and in a cycle too."""
    source = Numbers(1000)
    items: Any = ReadAhead(source)
    del items
    items = ReadAhead(source)
    assert next(items) == 0
    del items
    assert readers() == []
    holder: list[Any] = [ReadAhead(source)]
    assert next(holder[0]) == 0
    holder.append(holder)
    del holder
    gc.collect()
    wait_until(lambda: readers() == [])


def test_an_interrupted_user_leaves_no_reader() -> None:
    def use() -> None:
        with closing(ReadAhead(Numbers(1000))) as items:
            next(items)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()


def test_a_process_ends_in_the_middle_of_a_pass() -> None:
    """Neither does it wait for the reader for ever, nor does the reader come back too late."""
    code = (
        "import time\n"
        "from laddu_dask.runtime.read_ahead import ReadAhead\n"
        "def source():\n"
        "    for number in range(10**9):\n"
        "        time.sleep(0.001)\n"
        "        yield number\n"
        "items = ReadAhead(source)\n"
        "print(next(items), next(items))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (answer.stdout.strip(), answer.stderr) == ("0 1", "")


def _in_a_fork(check: Callable[[], bool]) -> bool:
    with warnings.catch_warnings():  # newer Pythons warn of forks of processes with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_a_fork_begins_a_pass_of_its_own() -> None:
    """A pass begun before has no reader there, which is said instead of waiting for ever."""
    items = ReadAhead(Numbers(5))
    assert next(items) == 0

    def check() -> bool:
        try:
            next(items)
        except ExecutionError as error:
            refused = "forked in the middle of a pass" in str(error)
        with closing(ReadAhead(Numbers(5))) as fresh:
            return refused and list(fresh) == [0, 1, 2, 3, 4]

    assert _in_a_fork(check)
    assert list(items) == [1, 2, 3, 4]
