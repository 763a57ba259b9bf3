"""Forward-mode derivative: tangents of IR values, in the order of the values.

A tangent is the derivative along one direction, which the tangents of some values, the seeds, fix.
The rules are those of the reverse sweep. Where a value is chosen, its tangent is chosen with it, so
that what a branch not taken has for a slope never shows; values that no seed reaches have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from laddu_dask.compiler import branches, systems
from laddu_dask.compiler.ir import Graph, live
from laddu_dask.compiler.reverse import partials


def tangents(
    g: Graph, seeds: Mapping[int, int], outputs: Iterable[int], constant: Collection[int] = ()
) -> dict[int, int]:
    """Tangents of everything that the outputs need.

    Parameters
    ----------
    g
        Graph; instructions are appended to it.
    seeds
        Value -> its tangent. What lies below a seed counts only where it is read otherwise.
    outputs
        Values whose tangents are wanted.
    constant
        Values that have none, unless they are seeds.

    Returns
    -------
    dict
        Value -> IR value of its tangent; those that depend on no seed are left out.
    """
    found = dict(seeds)
    for index in live(g, outputs):
        if index in found or index in constant or not any(arg in found for arg in g.ops[index][1]):
            continue
        if g.ops[index][0] in systems.SYSTEMS:
            op, args, _ = g.ops[index]
            found |= systems.push_forward(g, op, args, found)
            continue
        tangent = _tangent(g, index, found)
        if tangent is not None:
            found[index] = tangent
    return found


def _tangent(g: Graph, index: int, found: Mapping[int, int]) -> int | None:
    op, args, _ = g.ops[index]
    if op == "select":
        zero = g.const(0.0)
        return g.select(args[0], found.get(args[1], zero), found.get(args[2], zero))
    if op == branches.REACHED:
        value, *adjoints = args
        # Nothing where the adjoints and their tangents vanish: there the branch was not taken.
        moved = [found[adjoint] for adjoint in adjoints if adjoint in found]
        return branches.reached(g, found[value], [*adjoints, *moved]) if value in found else None
    total: int | None = None
    for operand, factor in partials(g, index):
        if operand in found and isinstance(factor, int):
            term = g.mul(found[operand], factor)
            total = term if total is None else g.add(total, term)
    return total
