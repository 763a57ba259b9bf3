"""Shares of a whole: in proportion to speed, but to nobody more than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def fair_shares(weights: Sequence[int], rooms: Sequence[int], total: int) -> list[Fraction]:
    """Fractions of `total` that processes get; they add up to 1.

    Parameters
    ----------
    weights
        What they are worth, for example their threads; positive.
    rooms
        How much of `total` each has room for.
    total
        Size of the whole.

    Returns
    -------
    list of Fraction
        In proportion to the weights where there is room for that. Whoever has less room gets what
        it has room for, and the others share the rest in the same way. What nobody has room for
        is shared in proportion to the weights again.
    """
    if total <= 0:
        everybody = sum(weights)
        return [Fraction(weight, everybody) for weight in weights]
    given = [Fraction(0) for _ in weights]
    left = Fraction(min(total, sum(rooms)))
    open_ = [number for number, room in enumerate(rooms) if room > 0]
    while open_ and left > 0:
        each = left / sum(weights[number] for number in open_)
        full = [n for n in open_ if given[n] + each * weights[n] >= rooms[n]]
        if not full:
            for number in open_:
                given[number] += each * weights[number]
            break
        for number in full:
            left -= rooms[number] - given[number]
            given[number] = Fraction(rooms[number])
        open_ = [number for number in open_ if number not in full]
    beyond = total - sum(given)
    return [
        (mine + beyond * Fraction(weight, sum(weights))) / total
        for mine, weight in zip(given, weights, strict=True)
    ]


def apportion(count: int, shares: Sequence[Fraction]) -> list[int]:
    """Whole numbers that add up to `count`, each the share's whole part or one more.

    The largest remainders are rounded up; of equal ones the first.
    """
    exact = [count * share for share in shares]
    whole = [int(number) for number in exact]
    by_remainder = sorted(range(len(exact)), key=lambda n: (whole[n] - exact[n], n))
    for number in by_remainder[: count - sum(whole)]:
        whole[number] += 1
    return whole


def deal(counts: Sequence[int]) -> list[int]:
    """Who gets which of `sum(counts)` things, so that everybody's are spread over all of them.

    Returns
    -------
    list of int
        The receiver of each thing; receiver n gets `counts[n]`.
    """
    turns = [
        (Fraction(2 * turn + 1, 2 * count), receiver)
        for receiver, count in enumerate(counts)
        for turn in range(count)
    ]
    return [receiver for _, receiver in sorted(turns)]
