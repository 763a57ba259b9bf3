"""Budgets as people write them ("2 GiB", "50%", "70% available", 4096) and their byte values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.sizes import MAX_BYTES, whole_number

BudgetLike: TypeAlias = "MemoryBudget | str | int | None"
PlanLike: TypeAlias = "MemoryPlan | MemoryBudget | str | int | None"

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_BASES: Final[dict[str, Literal["total", "available"]]] = {
    "": "total",
    "total": "total",
    "available": "available",
    "free": "available",
    "remaining": "available",
}
_GRAMMAR: Final = re.compile(r"([0-9]*\.?[0-9]*)\s*(%?)\s*([a-z]*)", re.ASCII)
_LONGEST_TEXT: Final = 64

# The automatic budget: most of what is free, or half the machine where nobody knows what is free.
_AUTO_OF_AVAILABLE: Final = Fraction(4, 5)
_AUTO_OF_TOTAL: Final = Fraction(1, 2)


@dataclass(frozen=True)
class MemoryBudget:
    """How many bytes may be used: an absolute number, a fraction, or a choice left to us.

    Attributes
    ----------
    kind
        "bytes", "total" (fraction of all memory), "available" (fraction of the free memory) or
        "auto": 80 % of the available memory, 50 % of the total where availability is unknown.
    amount
        Exact byte count, or exact fraction in (0, 1]. For "auto" the share of the automatic
        budget, 1 unless it was split between processes.
    """

    kind: Literal["auto", "bytes", "total", "available"] = "auto"
    amount: Fraction = Fraction(1)

    @classmethod
    def parse(cls, value: BudgetLike) -> MemoryBudget:
        """Read a budget.

        Parameters
        ----------
        value
            `None` or "auto"; an int in bytes; "8 GiB", "500 MB", ".5 kb" (b, kb, mb, gb, tb count
            in thousands, kib, mib, gib, tib in 1024s; upper and lower case alike; a bare number
            counts bytes); "50%" or "50% total"; "70% available" ("free" and "remaining" mean the
            same). Decimal fractions are exact and cut to whole bytes.

        Raises
        ------
        MemoryBudgetError
            If the value cannot be read, is zero, or exceeds 2**64 - 1 bytes or 100 %.
        """
        if isinstance(value, MemoryBudget):
            return value
        if value is None:
            return cls()
        if isinstance(value, str):
            return cls._parse_text(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _invalid(value, "it is neither text nor a whole number of bytes")
        return cls._of_bytes(Fraction(value), value)

    @classmethod
    def _parse_text(cls, value: str) -> MemoryBudget:
        text = value.strip().lower()
        if text == "auto":
            return cls()
        if len(text) > _LONGEST_TEXT:
            raise _invalid(value, "the text is too long")
        match = _GRAMMAR.fullmatch(text)
        if match is None or match[1] in ("", "."):
            raise _invalid(value, "it does not begin with a number")
        number, percent, word = Fraction(match[1]), match[2], match[3]
        if not percent:
            if word not in _UNITS:
                raise _invalid(value, f"the unit {word!r} is unknown")
            return cls._of_bytes(number * _UNITS[word], value)
        if word not in _BASES:
            raise _invalid(value, f"a percentage of {word!r} has no meaning")
        if not 0 < number <= 100:
            raise _invalid(value, "a percentage lies above 0 and at most at 100")
        return cls(_BASES[word], number / 100)

    @classmethod
    def _of_bytes(cls, count: Fraction, value: object) -> MemoryBudget:
        whole = int(count)
        if not 1 <= whole <= MAX_BYTES:
            raise _invalid(value, "a byte budget lies between 1 byte and 2**64 - 1 bytes")
        return cls("bytes", Fraction(whole))

    def resolve(self, total: int | None, available: int | None) -> int:
        """Return the budget in bytes on a machine with `total` bytes, `available` of them free.

        Either may be `None` where it is unknown.

        Raises
        ------
        MemoryBudgetError
            If the number needed is unknown, or the result is zero bytes.
        """
        if self.kind == "bytes":
            return int(self.amount)
        if self.kind == "auto" and available is not None:
            share, base = self.amount * _AUTO_OF_AVAILABLE, available
        elif self.kind == "auto" and total is not None:
            share, base = self.amount * _AUTO_OF_TOTAL, total
        else:
            known = total if self.kind == "total" else available
            if self.kind == "auto" or known is None:
                raise MemoryBudgetError(
                    f"the memory budget {self} cannot be turned into bytes: the amount of memory "
                    'on this machine is unknown; give it in bytes, such as "2 GiB"',
                    resource="memory",
                    requested=None,
                    remaining=None,
                )
            share, base = self.amount, known
        count = int(share * base)
        if count < 1:
            raise MemoryBudgetError(
                f"the memory budget {self} is zero bytes here ({base} bytes to take it from); "
                'free some memory or give the budget in bytes, such as "2 GiB"',
                resource="memory",
                requested=1,
                remaining=count,
            )
        return count

    def split(self, processes: int) -> MemoryBudget:
        """Return the equal share of one of `processes` processes on the same machine (>= 1 B)."""
        share = self.amount / whole_number(processes, "the number of processes", least=1)
        if self.kind == "bytes":
            share = Fraction(max(int(share), 1))
        return MemoryBudget(self.kind, share)

    def to_plain(self) -> tuple[str, int, int]:
        """Kind, numerator and denominator: exact, and plain data for a message."""
        return self.kind, self.amount.numerator, self.amount.denominator

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> MemoryBudget:
        """Inverse of `to_plain`."""
        kind, numerator, denominator = plain
        return cls(kind, Fraction(numerator, denominator))

    def __str__(self) -> str:
        if self.kind == "bytes":
            return f'"{int(self.amount)} B"'
        if self.kind == "auto":
            return '"auto"' if self.amount == 1 else f'"auto" / {float(1 / self.amount):g}'
        return f'"{float(self.amount * 100):g}% {self.kind}"'


_HALF_FREE: Final = MemoryBudget("available", Fraction(1, 2))


@dataclass(frozen=True, init=False)
class MemoryPlan:
    """Budgets of one process: host memory, device (GPU) memory, and disk for spilled events.

    The disk is that of the folder for temporary files, or of the local directory of a Dask worker;
    None takes half of what is free there.
    """

    host: MemoryBudget
    device: MemoryBudget
    disk: MemoryBudget

    def __init__(
        self, host: BudgetLike = None, device: BudgetLike = None, disk: BudgetLike = None
    ) -> None:
        object.__setattr__(self, "host", MemoryBudget.parse(host))
        object.__setattr__(self, "device", MemoryBudget.parse(device))
        object.__setattr__(self, "disk", _HALF_FREE if disk is None else MemoryBudget.parse(disk))

    @classmethod
    def parse(cls, value: PlanLike) -> MemoryPlan:
        """Read the `memory=` option: a plan, or anything `MemoryBudget.parse` reads (the host)."""
        return value if isinstance(value, MemoryPlan) else cls(host=value)


def _invalid(value: object, why: str) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{value!r} is not a memory budget: {why}; write bytes as an integer, or text such as "
        '"2 GiB", "500 MB" (b, kb, mb, gb, tb, kib, mib, gib, tib), "50%", "70% available"',
        resource="memory",
        requested=value,
        remaining=None,
    )
