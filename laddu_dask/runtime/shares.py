"""How many partitions each worker should hold: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

from laddu_dask.memory.shares import apportion, fair_shares

WORTH_SHARE = 0.25
"""Partitions are moved off a slow worker when an evaluation gets shorter by this part of it..."""
WORTH_SECONDS = 0.05
"""...and by so much: each move prepares a partition again, and paces are measured with noise."""


def shares_by_threads(total: int, threads: Mapping[str, int]) -> dict[str, int]:
    """Partitions of each worker when all threads are equally fast; the rest lies anywhere."""
    everything = sum(threads.values())
    return {worker: total * n // everything for worker, n in threads.items()}


def shares_by_pace(held: Mapping[str, int], paces: Mapping[str, float]) -> dict[str, int] | None:
    """Partitions of each worker when those with a slow pace get fewer; None if that gains little.

    Parameters
    ----------
    held
        Partitions that each worker holds now.
    paces
        Seconds that each takes for a partition of its share. All workers must be in it.

    Notes
    -----
    An evaluation lasts as long as its last worker, pace times partitions, which these shares make
    as short as can be. Every worker keeps a partition, so that its pace goes on being measured and
    it is given more when it has recovered.
    """
    total = sum(held.values())
    if len(held) < 2 or total < len(held) or not all(paces.get(w, 0.0) > 0.0 for w in held):
        return None
    now = max(paces[worker] * n for worker, n in held.items())
    shares = dict.fromkeys(held, 1)
    # One by one to whoever is done first even with one more.
    done = [(2 * paces[worker], worker) for worker in held]
    heapify(done)
    for _ in range(total - len(held)):
        _, worker = done[0]
        shares[worker] += 1
        heapreplace(done, ((shares[worker] + 1) * paces[worker], worker))
    gain = now - max(paces[worker] * n for worker, n in shares.items())
    return shares if gain > max(WORTH_SHARE * now, WORTH_SECONDS) else None


def within_plan(shares: Mapping[str, int], planned: Mapping[str, int]) -> dict[str, int]:
    """Shares that give no worker more than it was planned to hold, while another has room.

    Parameters
    ----------
    shares
        What workers should hold for the sake of speed.
    planned
        What they were planned to hold for the sake of memory; a worker that is not in it, which
        joined later, may hold anything.
    """
    total = sum(shares.values())
    rooms = [planned.get(worker, total) for worker in shares]
    if all(n <= room for n, room in zip(shares.values(), rooms, strict=True)):
        return dict(shares)
    fractions = fair_shares([max(n, 1) for n in shares.values()], rooms, total)
    return dict(zip(shares, apportion(total, fractions), strict=True))
