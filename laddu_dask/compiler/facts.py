"""Facts about the events of a data set: values that are constant, and values that agree.

A beam of fixed energy, a polarisation of one run or the phase of a first wave make event values
constant; symmetric final states make some of them equal up to sign. Facts are proposed by the first
events of a data set and then are assumptions like others: every partition checks them for its
events, and what does not hold is given up for the whole data set. What is used in the end is
true for all events, whatever the partitioning, and what is given up is false for some.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler.ir import Graph, live

_COMMUTES = frozenset({"add", "mul", "and", "or"})


@dataclass(frozen=True)
class Facts:
    """What the first events of a data set suggest, by the digest of an event value.

    Attributes
    ----------
    constants
        The number that a value always is.
    families
        Values with the same key are equal; those marked True up to their sign.
    """

    constants: Mapping[bytes, float] = field(default_factory=dict)
    families: Mapping[bytes, tuple[bytes, bool]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.constants or self.families)


def event_digests(graph: Graph, values: Iterable[int]) -> dict[int, bytes]:
    """Digests of event values by what is computed, not by their place in a graph."""
    wanted = list(values)
    digests: dict[int, bytes] = {}
    for value in live(graph, wanted):
        op, args, payload = graph.ops[value]
        operands = [digests[arg] for arg in args]
        if op in _COMMUTES:
            operands.sort()
        bits = struct.pack("<d", payload) if isinstance(payload, float) else payload
        state = hashlib.blake2b(repr((op, bits)).encode(), digest_size=16, person=b"event value")
        for operand in operands:
            state.update(operand)
        digests[value] = state.digest()
    return {value: digests[value] for value in wanted}


def propose(digests: Sequence[bytes], rows: Iterable[npt.NDArray[np.float64]]) -> Facts:
    """Facts that hold for the events of a sample.

    Parameters
    ----------
    digests
        The values.
    rows
        What they are at the events, shape (values, events). Values that are infinite or NaN
        somewhere have no facts.
    """
    constants: dict[bytes, float] = {}
    members: dict[bytes, list[tuple[bytes, bool]]] = {}
    for digest, row in sorted(zip(digests, rows, strict=True), key=lambda item: item[0]):
        if not np.isfinite(row).all():
            continue
        if (row == row[0]).all():
            constants[digest] = float(row[0]) if row[0] else 0.0
            continue
        opposite = bool(row[np.flatnonzero(row)[0]] < 0)
        key = (np.negative(row) if opposite else row) + 0.0  # zeros have no sign
        members.setdefault(key.tobytes(), []).append((digest, opposite))
    families = {
        digest: (family[0][0], opposite)
        for family in members.values()
        if len(family) > 1
        for digest, opposite in family
    }
    return Facts(constants, families)
