"""Parameter programs as machine code: the bits of Python, in the background, in any thread."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, compile_integral, compile_model
from laddu_dask.compiler.evaluator import Demands, Evaluator, ScalarProgram
from laddu_dask.compiler.ir import Instruction
from laddu_dask.kernels import get_backend, scalar_code
from laddu_dask.kernels.native import assemble
from laddu_dask.kernels.object_cache import ObjectCache
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.kernels.scalar_code import NativeEvaluator
from laddu_dask.kernels.scalar_text import is_printable, scalar_text
from laddu_dask.kernels.target import current_target

Vector = NDArray[np.float64]
N = 5
SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e308, -1e308, 5e-324, -3e-310, math.inf, -math.inf, math.nan]
SPECIAL += [2.0**-400, 2.0**400, 2.0**-401, -(2.0**401), 1e-200]
NUMBERS = st.sampled_from(SPECIAL) | st.floats() | st.floats(-4, 4)
UNARY = ("neg", "sqrt", "abs")
BINARY = ("add", "sub", "mul", "div")


def bits(values: ArrayLike) -> NDArray[np.int64]:
    """Bit patterns; one for every NaN, whose sign no operation promises."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)


@st.composite
def programs(draw: st.DrawFn) -> ScalarProgram:
    """Any operations on numbers and conditions, each reading what came before."""
    code: list[Instruction] = [("parameter", (), str(k)) for k in range(N)]
    code.append(("const", (), draw(NUMBERS)))
    numbers, conditions = list(range(N + 1)), []

    def number() -> int:
        return draw(st.sampled_from(numbers))

    for _ in range(draw(st.integers(1, 40))):
        kinds = ["unary", "binary", "binary", "compare", "const"]
        kinds += ["select", "not", "both"] if conditions else []
        kind = draw(st.sampled_from(kinds))
        if kind == "unary":
            code.append((draw(st.sampled_from(UNARY)), (number(),), None))
        elif kind == "binary":
            code.append((draw(st.sampled_from(BINARY)), (number(), number()), None))
        elif kind == "const":
            code.append(("const", (), draw(NUMBERS)))
        elif kind == "compare":
            code.append((draw(st.sampled_from(("lt", "le", "eq"))), (number(), number()), None))
        elif kind == "select":
            which = draw(st.sampled_from(conditions))
            code.append(("select", (which, number(), number()), None))
        elif kind == "not":
            code.append(("not", (draw(st.sampled_from(conditions)),), None))
        else:
            both = draw(st.sampled_from(conditions)), draw(st.sampled_from(conditions))
            code.append((draw(st.sampled_from(("and", "or"))), both, None))
        is_condition = kind in {"compare", "not", "both"}
        (conditions if is_condition else numbers).append(len(code) - 1)
    outputs = draw(st.lists(st.sampled_from(numbers), max_size=8))
    return tuple(code), tuple(outputs)


def compiled(program: ScalarProgram, demands: Demands | None = None) -> NativeEvaluator:
    evaluator = NativeEvaluator(program, demands)
    evaluator.compile()
    return evaluator


def assert_same(native: Evaluator, plain: Evaluator, weights: Vector, *inputs: Vector) -> None:
    """All three questions get the same answers."""
    np.testing.assert_array_equal(bits(native(*inputs)), bits(plain(*inputs)))
    for found, expected in (
        (native.valid(*inputs), plain.valid(*inputs)),
        (native.weighted(weights, *inputs), plain.weighted(weights, *inputs)),
    ):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            np.testing.assert_array_equal(bits(found), bits(expected))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    programs(),
    st.lists(st.lists(NUMBERS, min_size=N, max_size=N), min_size=1, max_size=6),
    st.lists(st.sampled_from(["nonnegative", "finite"]), max_size=3),
    st.sampled_from(["f64", "f32"]),
    st.randoms(use_true_random=False),
)
def test_machine_code_has_the_bits_of_python(
    program: ScalarProgram, points: list[list[float]], guards: Any, precision: Any, rng: Any
) -> None:
    """AX-07, FP-02: IEEE semantics in every stage, checks and weighted sums included."""
    guards = tuple(guards[: len(program[1])])
    demands = Demands(guards, precision)
    plain, native = Evaluator(program, demands), compiled(program, demands)
    weights = np.array([[rng.choice(SPECIAL[:6]) for _ in range(plain.n_values)] for _ in range(2)])
    for point in points:
        assert_same(native, plain, weights, np.array(point[:2]), np.array(point[2:]))


def couplings(n: int = 6) -> ld.Expr:
    """A coherent sum with complex couplings; its integral is separable."""
    total = ld.complex(0.0, 0.0)
    for k in range(n):
        coupling = ld.complex(ld.parameter(f"re{k}", initial=1.0), ld.parameter(f"im{k}"))
        total = total + coupling * ld.complex(ld.scalar(f"x{k}"), ld.scalar("y"))
    return total.norm_sqr()


def test_an_integral_in_one_call() -> None:
    form = compile_integral(couplings(), Assumptions()).separable
    assert form is not None
    rng = np.random.default_rng(3)
    statistics = rng.uniform(0.5, 2.0, form.n_statistics).tolist()
    plain, native = form.of(statistics), form.evaluated_by(NativeEvaluator).of(statistics)
    for run in range(60):
        if run == 20:
            assert optimizer.wait(60)
        point = rng.normal(size=12) * (1e200 if run % 7 == 0 else 1.0)
        assert native.value(point) == plain.value(point)
        np.testing.assert_array_equal(native.gradient(point), plain.gradient(point))
    runs = native.invariants._run_forward
    assert isinstance(runs, NativeEvaluator)
    assert runs._functions is not None


def test_code_comes_in_the_background_and_changes_no_bit() -> None:
    """Nobody waits: the first runs are interpreted, and the only one of a program always is."""
    model = compile_model(couplings(), "linear").evaluated_by(get_backend("cpu").evaluator)
    evaluator = NativeEvaluator(model.invariants.pullback)
    inputs = np.linspace(-1.0, 2.0, 12 + model.invariants.n_adjoints)
    expected = evaluator(inputs)
    assert optimizer.wait(60)
    assert evaluator._functions is None
    evaluator(inputs)
    assert optimizer.wait(60)
    assert evaluator._functions is not None
    np.testing.assert_array_equal(bits(evaluator(inputs)), bits(expected))
    copy = pickle.loads(pickle.dumps(evaluator))
    assert type(copy) is NativeEvaluator
    assert copy._functions is None
    np.testing.assert_array_equal(bits(copy(inputs)), bits(expected))


@pytest.mark.parametrize("op", ["exp", "copysign", "hypot"])
def test_functions_of_the_c_library_stay_in_python(op: str) -> None:
    args = (0,) if op == "exp" else (0, 1)
    program: ScalarProgram = (
        (("parameter", (), "0"), ("parameter", (), "1"), (op, args, None)),
        (2,),
    )
    assert not is_printable(program[0])
    evaluator = NativeEvaluator(program)
    found = [evaluator(np.array([3.0, 4.0])).item() for _ in range(30)]
    assert optimizer.wait(60)
    assert evaluator._functions is None
    assert set(found) == {{"exp": math.exp(3.0), "copysign": 3.0, "hypot": 5.0}[op]}


def test_many_threads_share_an_evaluator() -> None:
    """Each call has room of its own."""
    program: ScalarProgram = (
        (("parameter", (), "0"), ("parameter", (), "1"), ("mul", (0, 1), None)),
        (2, 0),
    )
    evaluator = compiled(program)
    found: list[bool] = []

    def work(number: float) -> None:
        for k in range(2000):
            values = evaluator.valid(np.array([number, float(k)]))
            found.append(values is not None and values.tolist() == [number * k, number])

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8000
    assert all(found)


def test_wrong_inputs_never_reach_machine_code() -> None:
    evaluator = compiled(((("parameter", (), "3"),), (0,)))
    assert evaluator(np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist() == [4.0]
    with pytest.raises(ValueError, match="reads 4 numbers, got 3"):
        evaluator(np.zeros(3))
    with pytest.raises(ValueError, match="float64, got int64"):
        evaluator(np.zeros(4, dtype=np.int64))
    for weights in (np.zeros((2, 2)), np.zeros(2), np.zeros((2, 1), dtype=np.float32)):
        with pytest.raises(ValueError, match=r"float64 of shape \(2, 1\)"):
            evaluator.weighted(weights, np.zeros(4))


def test_code_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    cache = ObjectCache(tmp_path)
    monkeypatch.setattr(scalar_code, "default_cache", lambda: cache)
    program: ScalarProgram = ((("parameter", (), "0"), ("neg", (0,), None)), (1,))
    for demands in (Demands(), Demands(("nonnegative",))):
        for _ in range(2):
            assert compiled(program, demands)(np.array([2.0])).tolist() == [-2.0]
    assert (cache.misses, cache.hits) == (2, 2)


def test_no_operation_may_be_changed() -> None:
    """No flag, and the object code of a product and a sum has no fused operation."""
    code: tuple[Instruction, ...] = (
        *(("parameter", (), str(k)) for k in range(3)),
        ("mul", (0, 1), None),
        ("add", (3, 2), None),
    )
    text = scalar_text(code, (4,), Demands())
    llvm.parse_assembly(text, llvm.create_context()).verify()
    assert "fast" not in text
    assert "contract" not in text
    assert assemble(text, current_target(), 2)
    x = 1.0 + 2.0**-30
    point = np.array([x, x, -1.0 - 2.0**-29])
    assert compiled((code, (4,)))(point).tolist() == [0.0]  # a fused one would give 2**-60
