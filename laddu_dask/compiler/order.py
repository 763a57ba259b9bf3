"""The order of a program's operations, chosen so that few values are alive at a time.

Graphs make all terms of a sum before they add them up. In that order each term of a long sum waits
in memory for its turn, in machine code as well as in the blocks of the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

from laddu_dask.compiler.ir import ARITY, Instruction

_Code = tuple[tuple[Instruction, ...], tuple[int, ...]]


def by_need(instructions: Sequence[Instruction], outputs: Sequence[int]) -> _Code:
    """The same operations in another order: leaves first, and each result used as soon as it pays.

    It pays where an operation is the last one that needs some result: then no more values are alive
    behind it than before it. Otherwise the order stays as it is. Bits do not depend on it.
    """
    order = _Scheduler(instructions).order
    new = {old: position for position, old in enumerate(order)}
    body = tuple(
        [
            (op, tuple([new[arg] for arg in args]), payload)
            for op, args, payload in map(instructions.__getitem__, order)
        ]
    )
    return body, tuple([new[output] for output in outputs])


class _Scheduler:
    """Instructions in their new order, as old indices."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        count = len(instructions)
        self._needs = [set(args) for _, args, _ in instructions]
        for op, args, _ in instructions:
            if op == "merge":  # what a region replaces is computed before the region
                self._needs[args[0]].add(args[1])
        self._users: list[list[int]] = [[] for _ in range(count)]
        for index, needs in enumerate(self._needs):
            for value in needs:
                self._users[value].append(index)
        self._missing = [len(needs) for needs in self._needs]
        #: Users that are not there yet: how many, and the sum of their indices, which is that of
        #: the user if there is one.
        self._left = [len(users) for users in self._users]
        self._sums = [sum(users) for users in self._users]
        self._is_leaf = [op != "cold" and ARITY.get(op, 0) == 0 for op, _, _ in instructions]
        self._done = bytearray(count)
        self.order: list[int] = []
        leaves = [index for index in range(count) if self._is_leaf[index]]
        for index in leaves:
            self._place(index)
        for index in range(count):
            self._place_with_followers(index)

    def _place(self, index: int) -> None:
        self._done[index] = 1
        self.order.append(index)
        for value in self._needs[index]:
            self._left[value] -= 1
            self._sums[value] -= index
        for user in self._users[index]:
            self._missing[user] -= 1

    def _place_with_followers(self, first: int) -> None:
        pending = [first]
        while pending:
            index = pending.pop()
            if self._done[index] or (index != first and not self._pays(index)):
                continue
            self._place(index)
            values = (index, *self._needs[index])
            followers = {self._sums[value] for value in values if self._left[value] == 1}
            pending.extend(sorted(followers.union(self._users[index]), reverse=True))

    def _pays(self, index: int) -> bool:
        if self._missing[index]:
            return False
        return any(
            self._left[value] == 1 and not self._is_leaf[value] for value in self._needs[index]
        )
