"""Compiled programs are a function of the expression: not of the process, nor of what came before.

Requirements IR-06, VY-14 and DK-09: workers and caches find kernels by digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import generated_models
import models as benchmark_models
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import ArrayLike
from random_expressions import scalars

import laddu_dask as ld
from laddu_dask.compiler import (
    Assumptions,
    CompiledModel,
    NormalForm,
    Program,
    compile_form,
    compile_integral,
    compile_model,
    integrate,
)
from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.scalar import run_scalar

EXPRESSIONS = {
    **benchmark_models.MODELS,
    **{name: lambda _, make=make: make(3) for name, make in generated_models.SHAPES.items()},
}


def digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def of_model(model: CompiledModel) -> str:
    scalar = model.invariants
    return digest(model.programs.digest, scalar.forward, scalar.pullback, scalar.guards)


def digests(expr: ld.Expr) -> Iterator[str]:
    """Of everything that is made of an expression."""
    for transform in ("linear", "log", "complex"):
        for assumptions in (None, Assumptions()):
            yield of_model(compile_model(expr, transform, assumptions))
    form = compile_integral(expr, Assumptions())
    if form.separable is not None:
        part = form.separable
        scalar = part.invariants
        yield digest(part.statistics.digest, part.terms, scalar.forward, scalar.pullback)
    if form.residual is not None:
        yield of_model(form.residual)


def every_digest(names: list[str]) -> dict[str, list[str]]:
    return {name: list(digests(EXPRESSIONS[name](ld))) for name in names}


def test_in_another_process_after_other_work() -> None:
    """Another seed of Python's hashes, and everything built in another order."""
    program = (
        "import sys, json; sys.path[:0] = sys.argv[1:]\n"
        "import laddu_dask as ld, test_same_programs as t\n"
        "kept = [ld.scalar('s') * ld.parameter(f'm{i}') - i for i in range(50, 0, -1)]\n"
        "print(json.dumps(t.every_digest(list(t.EXPRESSIONS)[::-1])))"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here, os.path.dirname(here), os.path.join(here, "..", "..", "benchmarks")]
    other = subprocess.run(
        [sys.executable, "-c", program, *folders],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = list(EXPRESSIONS)
    assert json.loads(other) == every_digest(names)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(scalars(), scalars())
def test_one_normal_form_serves_all_transforms(first: ld.Expr, second: ld.Expr) -> None:
    """In any order, with other expressions compiled in between."""
    expected = list(digests(first))
    list(digests(second))
    form = NormalForm(first, Assumptions())
    found = integrate(form)
    compiled = {name: compile_form(form, name) for name in ("complex", "log", "linear")}
    again = integrate(form)
    assert expected[1::2][:3] == [of_model(compiled[name]) for name in ("linear", "log", "complex")]
    assert again == found
    assert list(digests(first)) == expected


def test_digests_tell_programs_apart() -> None:
    """By the bits of literals, those of a NaN and the sign of a zero included."""
    base = compile_model(ld.scalar("x") * ld.parameter("a"), "linear").programs.value
    others = [base]
    payload_nan = float(np.array([0x7FF8000000000001]).view(np.float64)[0])
    for number in (0.0, -0.0, 1.0, np.nan, payload_nan):
        instructions = (*base.instructions, ("const", (), float(number)))
        others.append(replace(base, instructions=instructions))
    others += [replace(base, n_inputs=7), replace(base, outputs=(*base.outputs, 0))]
    assert len({program.digest for program in others}) == len(others)
    assert pickle.loads(pickle.dumps(base)).digest == base.digest


NUMBERS = [0.0, -0.0, 1.0, -2.5, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, 800.0, 1e-3]


def parameter_program(expr: ld.Expr) -> Program:
    """Value and derivatives of an expression of parameters, in one program."""
    graph, (root,) = lower(expr.node)
    outputs = [part for part in root if part is not None]
    places = {
        index: i
        for i, index in enumerate(k for k, (op, _, _) in enumerate(graph.ops) if op == "parameter")
    }
    return cut(graph, outputs, {}, places)


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(scalars())
def test_code_of_parameter_programs_has_the_bits_of_the_interpreter(expr: ld.Expr) -> None:
    """IEEE semantics at infinities, NaN, zeros of both signs and overflow."""
    model = compile_model(expr, "complex")
    n = model.invariants.n_parameters + model.invariants.n_adjoints
    rng = np.random.default_rng(1)
    for instructions, outputs in (model.invariants.forward, model.invariants.pullback):
        evaluator = Evaluator((instructions, outputs))
        for run in range(24):
            usual = rng.normal(size=n)
            inputs = np.where(rng.random(n) < 0.4, rng.choice(NUMBERS, n), usual)
            if run == 2:
                evaluator = pickle.loads(pickle.dumps(evaluator))
            expected = run_scalar(instructions, inputs.tolist(), outputs)
            np.testing.assert_array_equal(bits(evaluator(inputs)), bits(expected))


def bits(values: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bit patterns; one for every NaN, whose sign no operation promises."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)


@pytest.mark.parametrize("n", [1, 900, 2500])
def test_long_parameter_programs_come_in_pieces(n: int) -> None:
    """A value of one piece is read in others, whatever its distance."""
    first = ld.parameter("p0", initial=0.5)
    total = first.exp()
    for i in range(n):
        total = total * 0.75 + ld.parameter(f"p{i % 5}", initial=0.5) * first.exp() / (i + 1)
    program = parameter_program(total)
    point = [0.5, -1.0, 0.25, 2.0, 1.5][: program.n_parameters]
    expected = np.exp(point[0])
    for i in range(n):
        expected = expected * 0.75 + point[i % 5] * np.exp(point[0]) / (i + 1)
    evaluator = Evaluator((program.instructions, program.outputs))
    results = [evaluator(np.array(point))[0] for _ in range(20)]
    assert len(set(results)) == 1
    np.testing.assert_allclose(results[0], expected, rtol=1e-12)
