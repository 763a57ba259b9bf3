"""Forward or reverse mode for the gradient of one program."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from laddu_dask.compiler.forward import tangents
from laddu_dask.compiler.ir import MIXED, Graph, live

#: ``reverse``: one sweep from the value down; ``forward``: one tangent per frontier value;
#: ``auto``: the one that costs less.
Autodiff = Literal["auto", "forward", "reverse"]
Mode = Literal["forward", "reverse"]


def forward_may_pay(g: Graph, roots: Iterable[int], frontier: Collection[int]) -> bool:
    """Whether forward mode is worth a try.

    Forward mode works at each value once per frontier value that it depends on. Reverse mode works
    twice at each value, for every root, and once per frontier value. Equal work counts for forward
    mode, which keeps no intermediate results.
    """
    reach = {value: 1 << k for k, value in enumerate(frontier)}
    roots = list(roots)
    forward, reverse = 0, len(reach) * len(roots)
    for index in live(g, roots):
        if g.kinds[index] == MIXED and index not in reach:
            mask = 0
            for arg in g.ops[index][1]:
                mask |= reach.get(arg, 0)
            reach[index] = mask
            forward += mask.bit_count()
            reverse += 2 * len(roots)
    return forward <= reverse


def tangent_rows(g: Graph, root: int, frontier: Collection[int], scale: int) -> dict[int, int]:
    """``scale`` times the derivative of `root` by each frontier value that it depends on."""
    one, others = g.const(1.0), frozenset(frontier)
    rows: dict[int, int] = {}
    for value in frontier:
        # The others stay constant: a frontier value may be made of others.
        tangent = tangents(g, {value: one}, [root], constant=others).get(root)
        if tangent is not None:
            rows[value] = g.mul(scale, tangent)
    return rows
