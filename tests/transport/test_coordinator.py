"""The coordinator of one evaluation: each rule by itself.

Covers DK-15, DK-16 and DK-17: results do not depend on workers, retries or duplicates; errors of
the model are final, those of links and processes are not.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from laddu_dask.runtime.cluster_view import ClusterView, Limits
from laddu_dask.runtime.coordinator import (
    Abandon,
    AskOwners,
    Evaluation,
    FailCluster,
    FailDeaths,
    FailModel,
    Finish,
    Instruction,
    LinkFailed,
    ModelFailed,
    Owners,
    Rebuild,
    Reply,
    Send,
    Start,
    Tick,
    WorkerGone,
)

EPOCH = 7
FIXED = Limits(ask_after=1.0, adaptive=False, patience=20.0)


def machine(
    owners: dict[int, tuple[str, ...]], limits: Limits = FIXED, view: ClusterView | None = None
) -> Evaluation:
    """An evaluation of the partitions in `owners`."""
    view = view or ClusterView()
    view.owners.update(owners)
    return Evaluation(EPOCH, owners, view, limits)


def only(instructions: list[Instruction], kind: type) -> list:
    return [i for i in instructions if isinstance(i, kind)]


# ------------------------------------------------------------------------------------ calm


def test_calm_evaluation_sends_one_message_per_worker_and_finishes_in_order() -> None:
    """DK-11: one message per worker, whatever the number of partitions."""
    m = machine({0: ("b",), 1: ("a",), 2: ("b",), 3: ("a",)})
    assert m.handle(Start(0.0)) == [Send(1, "a", EPOCH, (1, 3)), Send(2, "b", EPOCH, (0, 2))]
    assert m.handle(Reply(0.1, 2, EPOCH, {2: b"two", 0: b"zero"})) == []
    (end,) = m.handle(Reply(0.2, 1, EPOCH, {3: b"three", 1: b"one"}))
    assert end == Finish({0: b"zero", 1: b"one", 2: b"two", 3: b"three"})
    assert list(end.records) == [0, 1, 2, 3]


def test_nothing_is_sent_before_the_start() -> None:
    m = machine({0: ("a",)})
    assert m.handle(WorkerGone(0.0, "z")) == []
    assert m.handle(Tick(0.0)) == []
    assert only(m.handle(Start(0.1)), Send)


def test_after_the_end_every_event_is_ignored() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(Reply(0.1, 1, EPOCH, {0: b"x"}))
    assert m.over
    for late in (Reply(0.2, 1, EPOCH, {0: b"y"}), ModelFailed(0.2, EPOCH, "e"), Tick(99.0)):
        assert m.handle(late) == []


def test_one_partition_open_is_not_the_end() -> None:
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(0.0))
    assert m.handle(Reply(0.1, 1, EPOCH, {0: b"x"})) == []
    assert not m.over


# ------------------------------------------------------------------------ epochs, duplicates


def test_reply_and_error_of_another_epoch_are_ignored() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(Reply(0.1, 1, EPOCH - 1, {0: b"old"})) == []
    assert m.handle(ModelFailed(0.1, EPOCH - 1, "old error")) == []
    assert m.handle(Reply(0.2, 1, EPOCH, {0: b"new"})) == [Finish({0: b"new"})]


def test_the_first_record_counts_and_never_changes() -> None:
    """DK-16: a duplicate is dropped even when its bytes differ, so any merge is safe."""
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(0.0))
    m.handle(Reply(0.1, 1, EPOCH, {0: b"first"}))
    m.handle(Reply(0.2, 1, EPOCH, {0: b"second"}))
    assert m.handle(Reply(0.3, 2, EPOCH, {1: b"x"})) == [Finish({0: b"first", 1: b"x"})]


def test_records_of_foreign_partitions_are_not_counted() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(Reply(0.1, 1, EPOCH, {0: b"x", 5: b"y"})) == [Finish({0: b"x"})]


def test_foreign_partitions_are_no_progress() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(Reply(15.0, 1, EPOCH, {5: b"y"}))
    assert only(m.handle(Tick(20.1)), FailCluster) == [FailCluster((0,), 20.1)]


# ----------------------------------------------------------------------------------- missing


def test_missing_partition_corrects_the_table_and_asks_dask() -> None:
    m = machine({0: ("a", "b"), 1: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(Reply(0.1, 1, EPOCH, {1: b"x"})) == [AskOwners((0,))]
    assert m.view.owners[0] == ("b",)
    # The entry is known to be wrong: not even its other worker is asked before Dask answered.
    assert m.handle(Tick(0.11)) == []
    assert m.handle(Owners(0.12, {0: ("c",)})) == [Send(2, "c", EPOCH, (0,))]


def test_a_table_does_not_outrank_a_reply_for_ever() -> None:
    """Dask insists on the owner that says no: asked again at the pace of the questions only."""
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    sends, now, request = 0, 0.0, 1
    while now < 3.0:
        now += 0.001
        out = m.handle(Reply(now, request, EPOCH, {}))
        out += m.handle(Owners(now, {0: ("a",)})) if only(out, AskOwners) else []
        for send in only(out, Send):
            sends, request = sends + 1, send.request
    assert 5 <= sends <= 15


# ------------------------------------------------------------------------------ model errors


def test_model_error_ends_everything_and_is_never_retried() -> None:
    """DK-17, T-11, T-53."""
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(0.0))
    error = ValueError("negative intensity")
    assert m.handle(ModelFailed(0.1, EPOCH, error)) == [Abandon(1), Abandon(2), FailModel(error)]
    assert m.handle(Tick(5.0)) == []


# ------------------------------------------------------------------------------ link failures


def test_link_failure_asks_dask_then_may_use_the_same_worker() -> None:
    """DK-17: worker loss is retried."""
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(LinkFailed(0.1, 1, "reset")) == [AskOwners((0,))]
    assert m.handle(Owners(0.2, {0: ("a",)})) == [Send(2, "a", EPOCH, (0,))]


def test_second_failure_in_a_row_bans_and_the_ban_ends() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(LinkFailed(0.1, 1))
    m.handle(Owners(0.2, {0: ("a",)}))
    m.handle(LinkFailed(0.3, 2))
    out = m.handle(Owners(0.4, {0: ("a",)}))
    assert only(out, Send) == []
    assert only(out, Rebuild) == [Rebuild((0,), frozenset({"a"}))]
    assert only(m.handle(Tick(1.2)), Send) == []
    assert only(m.handle(Tick(1.31)), Send) == [Send(3, "a", EPOCH, (0,))]


def test_a_reply_clears_the_strikes() -> None:
    m = machine({0: ("a",), 1: ("a",)})
    m.handle(Start(0.0))
    m.handle(LinkFailed(0.1, 1))
    m.handle(Owners(0.2, {0: ("a",), 1: ("a",)}))
    m.handle(Reply(0.3, 2, EPOCH, {0: b"x"}))
    (send,) = only(m.handle(Owners(0.4, {1: ("a",)})), Send)
    m.handle(LinkFailed(0.5, send.request))
    assert only(m.handle(Owners(0.6, {1: ("a",)})), Send)


def test_failure_of_a_request_given_up_is_ignored() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(LinkFailed(0.1, 99)) == []
    assert m.handle(Reply(0.2, 1, EPOCH, {0: b"x"})) == [Finish({0: b"x"})]


# --------------------------------------------------------------------------------- departures


def test_departure_gives_up_its_requests_and_corrects_the_table_for_later() -> None:
    m = machine({0: ("a", "b"), 1: ("a",), 2: ("b",)})
    m.handle(Start(0.0))
    m.view.remember_pace("a", 1.0, 1)
    m.view.remember_pace("b", 1.0, 1)
    out = m.handle(WorkerGone(0.1, "a"))
    assert out == [Abandon(1), AskOwners((0, 1))]
    assert m.view.owners == {0: ("b",), 1: (), 2: ("b",)}
    assert [*m.view.paces] == ["b"]


def test_a_stale_table_does_not_revive_a_departed_worker_at_once() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(WorkerGone(0.1, "a"))
    assert only(m.handle(Owners(0.2, {0: ("a",)})), Send) == []
    assert only(m.handle(Tick(1.2)), Send)  # the hint may have been wrong


def test_departure_told_before_the_start_spares_the_first_message() -> None:
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(WorkerGone(0.0, "a"))
    assert m.handle(Start(0.0)) == [Send(1, "b", EPOCH, (1,)), AskOwners((0,))]


# ------------------------------------------------------------------------------------ lateness


def test_late_request_is_asked_elsewhere_but_still_listened_to() -> None:
    m = machine({0: ("a", "b")})
    assert only(m.handle(Start(0.0)), Send) == [Send(1, "a", EPOCH, (0,))]
    assert m.handle(Tick(1.0)) == []
    assert m.handle(Tick(1.01)) == [Send(2, "b", EPOCH, (0,))]
    assert m.handle(Reply(1.1, 1, EPOCH, {0: b"x"})) == [Abandon(2), Finish({0: b"x"})]
    assert m.view.slow_until == {"a": 1.01 + 30.0}  # a late reply is no proof of health


def test_slow_worker_is_asked_last_in_the_next_evaluation_until_a_reply_in_time() -> None:
    view = ClusterView(slow_until={"a": 50.0})
    assert machine({0: ("a", "b")}, view=view).handle(Start(0.0)) == [Send(1, "b", EPOCH, (0,))]
    assert machine({0: ("a", "b")}, view=view).handle(Start(60.0)) == [Send(1, "a", EPOCH, (0,))]
    m = machine({0: ("a",)}, view=view)
    m.handle(Start(1.0))
    m.handle(Reply(1.1, 1, EPOCH, {0: b"x"}))
    assert view.slow_until == {}


def test_very_late_request_is_written_off_and_the_worker_asked_again() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    assert m.handle(Tick(1.5)) == [AskOwners((0,))]
    assert m.handle(Tick(2.0)) == [AskOwners((0,))]
    assert m.handle(Tick(2.01)) == [Abandon(1)]
    (send,) = only(m.handle(Owners(2.05, {0: ("a",)})), Send)
    # Each write-off doubles the patience with this worker.
    m.handle(Tick(3.5))
    assert only(m.handle(Tick(6.04)), Abandon) == []
    assert only(m.handle(Tick(6.06)), Abandon) == [Abandon(send.request)]


def test_write_off_time_is_capped_by_a_quarter_of_the_patience() -> None:
    m = machine({0: ("a",)}, Limits(ask_after=1.0, adaptive=False, patience=6.0))
    m.handle(Start(0.0))
    m.handle(Tick(1.2))
    assert only(m.handle(Tick(1.51)), Abandon) == [Abandon(1)]


def test_record_of_a_written_off_request_still_counts() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(Tick(1.5))
    m.handle(Tick(2.5))
    assert m.handle(Reply(2.6, 1, EPOCH, {0: b"x"})) == [Finish({0: b"x"})]


def test_a_worker_has_no_two_open_requests_for_one_partition() -> None:
    m = machine({0: ("a",)})
    m.handle(Start(0.0))
    m.handle(Tick(1.5))
    assert only(m.handle(Owners(1.6, {0: ("a",)})), Send) == []


def test_slowness_is_remembered_for_a_minute_at_most() -> None:
    m = machine({0: ("a", "b")}, Limits(ask_after=10.0, adaptive=False))
    m.handle(Start(0.0))
    m.handle(Tick(11.0))
    assert m.view.slow_until == {"a": 71.0}


# -------------------------------------------------------------------------------- second copies


def test_partition_of_a_late_owner_gets_a_second_copy_elsewhere() -> None:
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(0.0))
    m.handle(Reply(0.1, 2, EPOCH, {1: b"x"}))
    m.handle(Tick(1.1))
    assert m.handle(Owners(1.2, {0: ("a",)})) == [Rebuild((0,), frozenset({"a"})), AskOwners((0,))]
    # At most once per `rebuild_every`.
    assert only(m.handle(Owners(1.3, {0: ("a",)})), Rebuild) == []
    assert only(m.handle(Owners(2.25, {0: ("a",)})), Rebuild)
    assert only(m.handle(Owners(2.3, {0: ("a", "b")})), Send) == [Send(3, "b", EPOCH, (0,))]


def test_no_second_copy_while_a_healthy_owner_exists_or_the_partition_is_counted() -> None:
    m = machine({0: ("a",), 1: ("b",)}, view=ClusterView(slow_until={"a": 9.0}))
    m.handle(Start(0.0))
    m.handle(Reply(0.1, 1, EPOCH, {0: b"x"}))
    m.view.slow_until["a"] = 9.0
    assert only(m.handle(Owners(0.2, {0: ("a",), 1: ("a", "b")})), Rebuild) == []


def test_partition_that_nobody_holds_is_rebuilt_when_a_worker_is_suspect() -> None:
    """Dask may be recomputing it on exactly the worker that no longer answers."""
    limits = Limits(ask_after=1.0, adaptive=False, patience=100.0)
    m = machine({0: (), 1: ("a",)}, limits)
    m.handle(Start(0.0))
    m.handle(Owners(0.1, {0: ()}))
    assert only(m.handle(Owners(6.0, {0: ()})), Rebuild) == []  # "a" became late just now
    assert only(m.handle(Owners(6.1, {0: ()})), Rebuild) == [Rebuild((0,), frozenset({"a"}))]


def test_partition_that_nobody_holds_waits_for_dask_when_nobody_is_suspect() -> None:
    limits = Limits(ask_after=1.0, adaptive=False, patience=100.0)
    m = machine({0: ()}, limits)
    m.handle(Start(0.0))
    m.handle(Owners(0.1, {0: ()}))
    assert only(m.handle(Owners(25.0, {0: ()})), Rebuild) == []
    assert only(m.handle(Owners(25.2, {0: ()})), Rebuild) == [Rebuild((0,), frozenset())]


def test_clock_of_a_lost_partition_starts_anew_when_it_had_an_owner_meanwhile() -> None:
    limits = Limits(ask_after=1.0, adaptive=False, patience=100.0)
    m = machine({0: ()}, limits)
    m.handle(Start(0.0))
    m.handle(Owners(0.1, {0: ()}))
    m.handle(Owners(20.0, {0: ("a",)}))
    m.handle(Owners(20.1, {0: ()}))
    assert only(m.handle(Owners(30.0, {0: ()})), Rebuild) == []


def test_worker_that_owes_a_late_answer_is_avoided_even_when_it_answers_others() -> None:
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(0.0))
    m.handle(LinkFailed(0.9, 2))
    (send,) = only(m.handle(Owners(0.95, {1: ("a",)})), Send)
    m.handle(Tick(1.1))
    m.handle(Reply(1.2, send.request, EPOCH, {1: b"x"}))
    assert m.view.slow_until == {}
    assert only(m.handle(Owners(1.3, {0: ("a",)})), Rebuild) == [Rebuild((0,), frozenset("a"))]


def test_copies_are_grouped_by_what_they_avoid() -> None:
    m = machine({p: (w,) for p, w in enumerate("aabb")})
    m.handle(Start(0.0))
    m.handle(Tick(1.1))
    table = {p: (w,) for p, w in enumerate("aabb")}
    assert only(m.handle(Owners(1.2, table)), Rebuild) == [
        Rebuild((0, 1, 2, 3), frozenset({"a", "b"}))
    ]


# ---------------------------------------------------------------------------- questions, patience


def test_questions_keep_their_distance_and_back_off_until_there_is_progress() -> None:
    m = machine({0: (), 1: ("a",)})
    asked = []
    for k in range(2000):
        now = k / 1000
        out = m.handle(Start(now) if k == 0 else Tick(now))
        asked += [now] * len(only(out, AskOwners))
    pauses = [b - a for a, b in itertools.pairwise(asked)]
    assert pauses == pytest.approx([0.03, 0.06, 0.12, 0.24, 0.48, 0.48, 0.48], abs=0.002)
    assert only(m.handle(Reply(2.0, 1, EPOCH, {1: b"x"})), AskOwners)


def test_without_progress_for_the_patience_the_cluster_is_given_up() -> None:
    m = machine({0: ("a",), 1: ("b",)})
    m.handle(Start(100.0))
    m.handle(Reply(105.0, 2, EPOCH, {1: b"x"}))
    m.handle(WorkerGone(106.0, "a"))
    assert only(m.handle(Tick(125.0)), FailCluster) == []
    (failure,) = only(m.handle(Tick(125.5)), FailCluster)
    assert failure == FailCluster((0,), 20.5)
    assert m.over


# ------------------------------------------------------------------------------------- deadlines


def test_deadline_is_generous_first_then_follows_the_worker() -> None:
    view, limits = ClusterView(), Limits()
    assert view.deadline("a", 10, limits) == 60.0
    m = machine({0: ("a",), 1: ("a",)}, limits, view)
    m.handle(Start(0.0))
    m.handle(Reply(4.0, 1, EPOCH, {0: b"x", 1: b"y"}))
    assert view.deadline("a", 2, limits) == 3 * 4.0
    assert view.deadline("a", 4, limits) == 3 * 8.0  # twice the work, twice the time
    assert view.deadline("b", 2, limits) == 60.0
    view.remember_pace("a", 0.002, 2)
    view.remember_pace("a", 0.002, 2)
    assert view.deadline("a", 2, limits) == 0.2  # the median, and never less than `least`


def test_deadline_leaves_time_to_recover_and_can_be_fixed() -> None:
    view = ClusterView()
    view.remember_pace("a", 50.0, 1)
    assert view.deadline("a", 1, Limits(patience=90.0)) == 30.0
    assert view.deadline("b", 1, Limits(patience=90.0)) == 30.0
    assert view.deadline("a", 1, Limits(ask_after=2.0, adaptive=False)) == 2.0


def test_deadlines_of_a_request_of_many_parameter_sets() -> None:
    """They grow with the work and leave time to compile; no pace is learned from it."""
    view, usual = ClusterView(), Limits()
    assert usual.stretched(1.0) is usual
    limits = usual.stretched(40.0)
    assert view.deadline("a", 1, limits) == 40.0 * 60.0
    view.remember_pace("a", 0.01, 1)
    assert view.deadline("a", 1, limits) == 60.0
    assert view.deadline("a", 100, limits) == 3.0 * 40.0 * 0.01 * 100
    assert view.deadline("a", 10**6, limits) == 40.0 * 300.0 / 3
    m = machine({0: ("a",)}, limits, view)
    m.handle(Start(0.0))
    m.handle(Reply(50.0, 1, EPOCH, {0: b"x"}))
    assert [*view.paces["a"]] == [0.01]
    fixed = Limits(ask_after=2.0, adaptive=False).stretched(8.0)
    assert view.deadline("a", 1, fixed) == 16.0


def test_deadline_counts_what_the_worker_has_to_answer_already() -> None:
    """A survivor that inherits the partitions of others is not late for it."""
    m = machine({0: ("a",), 1: ("b",)}, Limits())
    m.view.remember_pace("a", 1.0, 1)
    m.handle(Start(0.0))
    m.handle(LinkFailed(2.9, 2))
    assert only(m.handle(Owners(2.95, {1: ("a",)})), Send)
    m.handle(Reply(3.0, 1, EPOCH, {0: b"x"}))
    assert m.handle(Tick(2.95 + 5.9)) == []
    assert m.view.slow_until == {}
    m.handle(Tick(2.95 + 6.1))
    assert [*m.view.slow_until] == ["a"]


def test_pace_is_measured_on_first_requests_that_were_answered_completely() -> None:
    m = machine({0: ("a",), 1: ("a",), 2: ("b",)}, Limits())
    m.handle(Start(0.0))
    m.handle(Reply(1.0, 1, EPOCH, {0: b"x"}))  # partition 1 was missing
    (send,) = only(m.handle(Owners(1.1, {1: ("b",)})), Send)
    m.handle(Reply(1.2, send.request, EPOCH, {1: b"y"}))  # asked for before: may be cached
    assert dict(m.view.paces) == {}
    m.handle(Reply(2.0, 2, EPOCH, {2: b"z"}))
    assert {w: list(p) for w, p in m.view.paces.items()} == {"b": [2.0]}


# ----------------------------------------------------------------------------------- deaths


def test_workers_that_die_over_one_partition_end_it() -> None:
    """DK-17: a partition that no worker survives would bring down the whole cluster."""
    m = machine({0: ("a",), 1: ("b",)}, replace(FIXED, deaths=2, ban=0.0))
    m.handle(Start(0.0))
    m.handle(Reply(0.1, 2, EPOCH, {1: b"one"}))
    m.handle(LinkFailed(0.2, 1, "reset"))
    assert not only(m.handle(WorkerGone(0.3, "a")), FailDeaths)
    (send,) = only(m.handle(Owners(0.4, {0: ("c",)})), Send)
    assert (send.worker, send.partitions) == ("c", (0,))
    assert m.handle(WorkerGone(0.5, "c")) == [Abandon(send.request), FailDeaths((0,), 2)]


def test_a_partition_that_was_answered_is_not_to_blame() -> None:
    m = machine({0: ("a",), 1: ("a",)}, replace(FIXED, deaths=2, ban=0.0))
    m.handle(Start(0.0))
    m.handle(WorkerGone(0.1, "a"))
    m.handle(Owners(0.2, {0: ("b",), 1: ("c",)}))
    m.handle(Reply(0.3, 2, EPOCH, {0: b"zero"}))
    assert only(m.handle(WorkerGone(0.4, "c")), FailDeaths) == [FailDeaths((1,), 2)]


def test_a_worker_that_answered_after_a_broken_link_did_not_die_over_it() -> None:
    m = machine({0: ("a",), 1: ("b",)}, replace(FIXED, deaths=1, ban=0.0))
    m.handle(Start(0.0))
    m.handle(LinkFailed(0.1, 1, "reset"))
    m.handle(Owners(0.2, {0: ("a",)}))
    m.handle(Reply(0.3, 3, EPOCH, {0: b"zero"}))
    assert not only(m.handle(WorkerGone(0.4, "a")), FailDeaths)
    assert only(m.handle(WorkerGone(0.5, "b")), FailDeaths) == [FailDeaths((1,), 1)]
