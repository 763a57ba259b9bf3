"""Messages between a worker and the planner in any order: late, lost, overtaking one another.

Both ends are the real ones, on stand-ins for the worker and the scheduler; the test decides when a
message arrives and when its answer does. Covers DK-07, T-48, T-54.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory.worker_limits import WorkerLimits
from laddu_dask.runtime import scheduler_planner, worker_memory
from laddu_dask.runtime.scheduler_planner import MemoryPlanner
from laddu_dask.runtime.worker_memory import SessionMemory, WorkerMemory

HERE = "tcp://here:1"
CAPACITY = 100
MEMORY = SessionMemory("s", "client")
KEYS = [f"laddu-prep:s:{number}:0" for number in range(4)]


class Network:
    """What is under way from the worker to the planner, and back."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], asyncio.Future[Any]]] = []
        self.answered: list[tuple[asyncio.Future[Any], Any]] = []

    async def ask(self, message: dict[str, Any]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((message, answer))
        return await answer


class Both:
    """A worker and the planner of its scheduler."""

    def __init__(self) -> None:
        self.network = Network()
        self.worker = SimpleNamespace(
            address=HERE, data={}, handlers={}, plugins={}, network=self.network
        )
        self.scheduler = SimpleNamespace(
            workers={HERE: None},
            tasks={},
            clients={"client": None},
            handlers={},
            plugins={},
            worker_plugins={worker_memory.NAME: b""},
        )
        self.asking: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.account = WorkerMemory()
        self.account.setup(self.worker)
        self.planner = MemoryPlanner()
        await self.planner.start(self.scheduler)

    # what may happen ----------------------------------------------------------------------

    def claim(self, key: str, nbytes: int) -> None:
        """A task begins, or begins again, and asks."""
        self.scheduler.tasks.setdefault(key, None)
        self.asking.add(asyncio.ensure_future(self._claim(key, nbytes)))

    async def _claim(self, key: str, nbytes: int) -> None:
        try:
            await self.account.claim(MEMORY, key, "host", nbytes, key)
        except (MemoryBudgetError, ExecutionError):
            self.account.drop(key)  # the task failed
            return
        self.worker.data[key] = nbytes
        self.account.transition(key, "executing", "memory")

    def forget(self, key: str) -> None:
        """Nobody wants it any more; the worker hears of it."""
        self.scheduler.tasks.pop(key, None)
        self.planner.transition(key, "memory", "forgotten", stimulus_id="test")
        self.worker.data.pop(key, None)
        self.account.transition(key, "memory", "released")

    def report(self) -> None:
        """The worker tells, whether or not it is heard."""
        message = self.account.report()
        self.network.sent.append((message, asyncio.get_running_loop().create_future()))

    def deliver(self, place: int) -> None:
        """A message arrives, not always the first that was sent."""
        if self.network.sent:
            message, answer = self.network.sent.pop(place % len(self.network.sent))
            self.network.answered.append((answer, self.planner.handle(message)))

    def answer(self, place: int) -> None:
        """An answer arrives."""
        if self.network.answered:
            answer, told = self.network.answered.pop(place % len(self.network.answered))
            answer.set_result(told)

    def lose(self, place: int) -> None:
        """A message or its answer is lost, and the worker notices."""
        waiting = self.network.answered or self.network.sent
        if waiting:
            item = waiting.pop(place % len(waiting))
            answer = item[0] if isinstance(item[0], asyncio.Future) else item[1]
            answer.set_exception(OSError("lost"))
            answer.exception()

    def check(self) -> None:
        """What is held is what was granted, to somebody who wants it, within what there is."""
        granted = {claim.owner: claim.nbytes for claim in self.planner.book.leases()}
        assert sum(granted.values()) <= CAPACITY
        assert granted.keys() <= self.scheduler.tasks.keys()
        for owner, held in self.account.table.items():
            assert granted.get(owner) == held.nbytes["host"]

    async def quiet(self) -> None:
        """Everything arrives, and the worker tells once more."""
        while self.network.sent or self.network.answered:
            self.deliver(0)
            self.answer(0)
            await settle()
        await asyncio.gather(*self.asking)
        self.report()
        self.deliver(0)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from(KEYS), st.integers(30, 70)),
        st.tuples(st.just("forget"), st.sampled_from(KEYS)),
        st.tuples(st.just("report")),
        st.tuples(st.sampled_from(["deliver", "answer", "lose"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["deliver", "answer"]), st.integers(0, 5)),
    ),
    max_size=40,
)


def play(steps: list[tuple[Any, ...]]) -> None:
    """Take the steps; never above what there is, and book and table are equal when all is quiet."""

    async def run() -> None:
        both = Both()
        await both.start()
        busy: set[str] = set()
        for name, *arguments in steps:
            if name in ("claim", "forget"):
                key = arguments[0]
                # Dask runs a task once at a time, and frees what it has when that is over.
                runs = key in both.account.unanswered
                if runs or (name == "claim" and key in both.account.table):
                    continue
                busy.add(key)
            getattr(both, name)(*arguments)
            await settle()
            both.check()
        await both.quiet()
        both.check()
        book = {claim.owner: claim.nbytes for claim in both.planner.book.leases()}
        table = {owner: held.nbytes["host"] for owner, held in both.account.table.items()}
        assert book == table
        for key in busy:
            both.forget(key)
        both.report()
        both.deliver(0)
        assert both.planner.book.leases() == ()
        assert both.account.table == {}

    with pytest.MonkeyPatch.context() as patch:
        limits = WorkerLimits(memory_limit=CAPACITY)
        patch.setattr(worker_memory, "limits_of", lambda worker, held: limits)
        patch.setattr(WorkerMemory, "_keep_reporting", lambda self: settle())
        patch.setattr(scheduler_planner, "ask_workers", _nobody_answers)
        patch.setattr(worker_memory, "ask_planner", through_its_network)
        asyncio.run(run())


A, B, C, D = KEYS
FIRST, LAST = 0, -1


@pytest.mark.parametrize(
    "steps",
    [
        # The report is made while the answer is under way, and knows nothing of the grant.
        [("claim", A, 70), ("deliver", FIRST), ("report",), ("deliver", FIRST), ("claim", B, 70)],
        # The report is made before the request, and arrives after it was answered.
        [("report",), ("claim", A, 70), ("deliver", LAST), ("answer", FIRST), ("deliver", FIRST),
         ("claim", B, 70)],
        # The report arrives when nobody wants the partition any more.
        [("claim", A, 70), ("deliver", FIRST), ("answer", FIRST), ("report",), ("forget", A),
         ("deliver", FIRST), ("claim", B, 70), ("deliver", FIRST)],
        # The answer is lost; the task fails, and the next report says that nothing is held.
        [("claim", A, 70), ("deliver", FIRST), ("lose", FIRST), ("report",), ("deliver", FIRST),
         ("claim", B, 70), ("deliver", FIRST)],
    ],
)  # fmt: skip
def test_messages_that_overtake_one_another(steps: list[tuple[Any, ...]]) -> None:
    """T-48: the second partition gets what is really left, neither more nor less."""
    play(steps)


@given(STEPS)
@settings(max_examples=300)
def test_messages_in_any_order(steps: list[tuple[Any, ...]]) -> None:
    """DK-07: late, lost, overtaking."""
    play(steps)


def test_a_report_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a closing worker raises ends its reports; anything else is logged, and the next made."""
    status = SimpleNamespace(name="running")
    reports: list[Any] = []

    async def broken(worker: Any, message: dict[str, Any]) -> None:
        reports.append(message)
        if len(reports) == 3:
            status.name = "closing"
        raise RuntimeError("ConnectionPool is closed")

    async def run() -> None:
        account = WorkerMemory()
        account.setup(SimpleNamespace(address=HERE, handlers={}, plugins={}, status=status))
        await asyncio.wait_for(account._reporting, 30)

    monkeypatch.setattr(worker_memory, "limits_of", lambda worker, held: WorkerLimits())
    monkeypatch.setattr(worker_memory, "REPORT_SECONDS", 0.001)
    monkeypatch.setattr(worker_memory, "ask_planner", broken)
    asyncio.run(run())
    assert len(reports) == 3
    told = [record for record in caplog.records if "could not report" in record.message]
    assert len(told) == 2


async def through_its_network(worker: Any, message: dict[str, Any]) -> Any:
    return await worker.network.ask(message)


async def _nobody_answers(scheduler: Any, workers: Any, seconds: float) -> dict[str, Any]:
    return {}
