"""`Model.explain`: readable, and its numbers are those of the programs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiler.lowering_table import MODELS

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Program, event_cost
from laddu_dask.compiler.describe import expression_text
from laddu_dask.kernels.target import current_target

X, Y = ld.scalar("x"), ld.scalar("y")
A, B = ld.parameter("a", initial=0.5), ld.parameter("b", initial=0.25)


def test_text_of_a_small_model() -> None:
    """Columns, what is computed from them, operations and statistics."""
    model = ld.Model((A * X.exp() + (B + X) * (B + 2.0 - X) * Y) ** 2 + 1.0)
    lines = model.explain().splitlines()
    (executor,) = (line for line in lines if line.startswith("  executor: "))
    lines.remove(executor)
    assert executor.startswith(f"  executor: vector code for {current_target().cpu}; good code at")
    assert lines == [
        "parameters: a, b",
        "event columns: x, y",
        "sum of w ln I over the data: factors kept outside sums, about 4.3 ns per event",
        "  operations of parameters only: 2 per evaluation",
        "  operations of events only: 1 per event, once",
        "  operations of both: 10 forward and 7 backward per event and evaluation",
        "  sums over events: the value and 3 derivatives",
        "  kept: 3 columns, 24 bytes per event (32 with a weight)",
        "    c0 = x",
        "    c1 = y",
        "    c2 = exp(x)",
        "  derivatives: reverse mode, the cheaper one",
        "normalisation integral: 9 statistics, summed once over 9 values of every event",
    ]


@pytest.mark.parametrize("name", ["A", "B", "C-fixed", "D", "E"])
def test_numbers_of_the_benchmark_models(name: str) -> None:
    """They are counted in the programs that a fit runs."""
    model = ld.Model(MODELS[name]())
    text = model.explain()
    programs = model.grouped("log", Assumptions()).programs

    def count(program: Program) -> int:
        leaves = {"input", "parameter", "const"}
        return sum(op not in leaves for op, _, _ in program.instructions)

    forward = count(programs.value)
    kept = programs.n_cached
    assert f"kept: {kept} columns, {8 * kept} bytes per event ({8 * kept + 8} with" in text
    assert f"{forward} forward and {count(programs.gradient) - forward} backward" in text
    assert f"the value and {programs.gradient.n_outputs - 1} derivatives" in text
    assert len(re.findall(r"^    c\d+ = ", text, re.MULTILINE)) == min(kept, 24)
    assert all(len(line) < 150 for line in text.splitlines()[2:])
    if name == "E":
        best, *others = (float(x) for x in re.findall(r"about (\S+) ns", text))
        assert best < min(others)
        assert "sum of w ln I over the data: incoherent sums packed" in text
        assert "    1.69 - s" in text.splitlines()
    if name == "A":
        assert "200 statistics" in text


def test_values_that_are_computed_again() -> None:
    """They are named by the columns they come from."""
    expr = (A + X) * (A + 1.3 - X) * (A + X * X) * (A + X.exp())
    found = event_cost(ld.Model(expr).grouped("linear", Assumptions()).programs)
    assert set(found.cached) == {"x", "exp(x)"}
    assert set(found.recomputed) == {"x**2"}
    assert found.recomputing == 1


def test_formulas_have_the_brackets_they_need() -> None:
    """Evaluated as Python they give the value of the program."""
    instructions = [
        ("input", (), "0"),
        ("input", (), "1"),
        ("const", (), -1.5),
        ("sub", (0, 1), None),
        ("sub", (2, 3), None),
        ("add", (3, 2), None),
        ("div", (4, 5), None),
        ("div", (0, 6), None),
        ("mul", (7, 7), None),
        ("mul", (8, 8), None),
        ("neg", (9,), None),
        ("mul", (10, 4), None),
    ]
    program = Program(tuple(instructions), 2, 0, (11,))
    x, y = 2.5, 0.75
    values = [x, y, -1.5, x - y, -1.5 - (x - y), x - y - 1.5]
    values.append(values[4] / values[5])
    values.append(x / values[6])
    values.append(values[7] ** 2)
    values.append(values[8] ** 2)
    values += [-values[9], -values[9] * values[4]]
    for index in range(3, 10):
        text = expression_text(program, index, ["x", "y"])
        if "..." not in text:
            assert eval(text, {"x": x, "y": y}) == pytest.approx(values[index])  # our text
    assert np.isfinite(values).all()
