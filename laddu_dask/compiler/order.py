"""The order of a program's operations, chosen so that few values are alive at a time.

Graphs make all terms of a sum before they add them up. In that order each term of a long sum waits
in memory for its turn, in machine code as well as in the blocks of the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

from laddu_dask.compiler.ir import Instruction

_Code = tuple[tuple[Instruction, ...], tuple[int, ...]]

_LEAVES = frozenset({"const", "input", "parameter"})


def by_need(instructions: Sequence[Instruction], outputs: Sequence[int]) -> _Code:
    """The same operations in another order: leaves first, and each result used as soon as it pays.

    It pays where an operation is the last one that needs some result: then no more values are alive
    behind it than before it. Otherwise the order stays as it is. Bits do not depend on it.
    """
    order = _order(instructions)
    new = {old: position for position, old in enumerate(order)}
    body = tuple(
        [
            (op, tuple([new[arg] for arg in args]), payload)
            for op, args, payload in map(instructions.__getitem__, order)
        ]
    )
    return body, tuple([new[output] for output in outputs])


def _order(instructions: Sequence[Instruction]) -> list[int]:
    """Instructions in their new order, as old indices."""
    count = len(instructions)
    needs: list[tuple[int, ...]] = [
        args if len(args) < 2 or len(set(args)) == len(args) else tuple(dict.fromkeys(args))
        for _, args, _ in instructions
    ]
    for op, args, _ in instructions:
        if op == "merge" and args[1] not in needs[args[0]]:
            # What a region replaces is computed before the region.
            needs[args[0]] = (*needs[args[0]], args[1])
    users: list[list[int]] = [[] for _ in range(count)]
    # Of the users that are not there yet: how many, and the sum of their indices, which is the
    # index of the user if there is one. Leaves count as needed for ever.
    left, sums = [0] * count, [0] * count
    for index, values in enumerate(needs):
        for value in values:
            users[value].append(index)
            left[value] += 1
            sums[value] += index
    missing = list(map(len, needs))
    order = [index for index, (op, _, _) in enumerate(instructions) if op in _LEAVES]
    done = bytearray(count)
    for index in order:
        done[index] = 1
        left[index] = count + 1
        for user in users[index]:
            missing[user] -= 1
    for first in range(count):
        pending = [first]
        while pending:
            index = pending.pop()
            if done[index]:
                continue
            if index != first and all(left[value] != 1 for value in needs[index]):
                continue
            done[index] = 1
            order.append(index)
            ready = []
            for user in users[index]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
            for value in needs[index]:
                left[value] -= 1
                sums[value] -= index
                if left[value] == 1 and not missing[sums[value]]:
                    ready.append(sums[value])
            if len(ready) > 1:
                ready.sort(reverse=True)
            pending += ready
    return order
