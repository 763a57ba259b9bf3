"""Operations in an order in which few values are alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_operation import program as every_operation

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Program, compile_model
from laddu_dask.compiler.order import by_need
from laddu_dask.kernels import get_backend


def alive(program: Program) -> int:
    """Most values, leaves apart, that are computed and still to be read, at any place."""
    last = {arg: index for index, (_, args, _) in enumerate(program.instructions) for arg in args}
    ends: dict[int, int] = {}
    most = now = 0
    for index, (op, _, _) in enumerate(program.instructions):
        now -= ends.pop(index, 0)
        if op not in {"const", "input", "parameter"} and index in last:
            now += 1
            ends[last[index]] = ends.get(last[index], 0) + 1
        most = max(most, now)
    return most


def waves(count: int) -> Any:
    """Coherent sum; real and imaginary part read the same columns."""
    total = ld.Expr(0.0)
    for k in range(count):
        coupling = ld.complex(ld.parameter(f"re{k}"), ld.parameter(f"im{k}"))
        total = total + coupling * ld.complex(ld.scalar(f"a{k}"), ld.scalar(f"b{k}"))
    return total.norm_sqr()


@pytest.mark.parametrize("count", [20, 200])
def test_sums_grow_term_by_term(count: int) -> None:
    """Two sums, two products, and what the next term needs: independent of the length."""
    programs = compile_model(waves(count), "log", Assumptions()).programs
    assert alive(programs.value) <= 6
    assert alive(programs.gradient) <= 12
    columns = [int(str(row)) for op, _, row in programs.value.instructions if op == "input"]
    assert columns == sorted(columns)


def shuffled(program: Program, seed: int) -> Program:
    """The same program in a random order that its operands, and what regions replace, allow."""
    rng = np.random.default_rng(seed)
    needs = [set(args) for _, args, _ in program.instructions]
    for op, args, _ in program.instructions:
        if op == "merge":
            needs[args[0]].add(args[1])
    order: list[int] = []
    left = set(range(len(needs)))
    while left:
        ready = [index for index in sorted(left) if needs[index].isdisjoint(left)]
        order.append(int(rng.choice(ready)))
        left.remove(order[-1])
    new = {old: place for place, old in enumerate(order)}
    code: list[Any] = []
    for old in order:
        op, args, payload = program.instructions[old]
        code.append((op, tuple(new[arg] for arg in args), payload))
    outputs = tuple(new[output] for output in program.outputs)
    return replace(program, instructions=tuple(code), outputs=outputs)


@pytest.mark.parametrize("seed", range(4))
def test_order_changes_no_bit(seed: int) -> None:
    """Every operation, regions among them, from any order back to one that is allowed."""
    program = every_operation()
    mixed = shuffled(program, seed)
    mixed.verify()
    code, outputs = by_need(mixed.instructions, mixed.outputs)
    ordered = replace(mixed, instructions=code, outputs=outputs)
    ordered.verify()
    assert sorted(map(repr, (op for op, _, _ in ordered.instructions))) == sorted(
        map(repr, (op for op, _, _ in program.instructions))
    )
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.1, 2.0, (program.n_inputs, 64))
    parameters = rng.uniform(0.1, 2.0, program.n_parameters)
    found = []
    for each in (program, mixed, ordered):
        out = np.empty((program.n_outputs, 64))
        get_backend("interpreter").compile(each).map(rows, parameters, out)
        found.append(out.view(np.int64))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
