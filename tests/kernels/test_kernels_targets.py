"""One assembly, several processors and two levels of effort: the same bits from all of them."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from every_operation import program, rows
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Program, compile_model
from laddu_dask.errors import ExecutionError
from laddu_dask.kernels import Accumulator, expand, get_backend
from laddu_dask.kernels import cpu as cpu_kernels
from laddu_dask.kernels.native import assemble
from laddu_dask.kernels.object_cache import ObjectCache
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.kernels.target import VARIABLE, Target, current_target, find_target

NAMES = ["avx512", "avx2", "sse2"]


def nothing_kept() -> ObjectCache:
    """A cache without a folder."""
    return ObjectCache(None)


def runnable(name: str) -> Target:
    try:
        return find_target(name)
    except ExecutionError as error:
        pytest.skip(f"this processor cannot run it: {error}")


def states(kernel: cpu_kernels.CpuKernel) -> tuple[Accumulator, NDArray[np.int64]]:
    """What both purposes of a kernel give, as bits.

    One NaN is as good as another: which operand's payload is handed on is the processor's choice.
    """
    inputs: Any = rows(kernel.program)
    weights, parameters = inputs[-1], np.linspace(0.4, 0.9, kernel.program.n_parameters)
    with np.errstate(over="ignore"):
        kind = np.float32 if kernel.program.precision == "f32" else np.float64
        inputs = np.ascontiguousarray(inputs[:-1].astype(kind))
    out = np.empty((kernel.program.n_outputs, inputs.shape[1]))
    kernel.map(inputs, parameters, out, weights)
    total = Accumulator(kernel.program.n_outputs)
    kernel.bind(inputs, inputs.shape[1], 0, weights=weights)(parameters, total)
    return total, np.where(np.isnan(out), np.nan, out).view(np.int64)


@pytest.fixture(autouse=True)
def environment_is_read_anew() -> Iterator[None]:
    """A process reads once which target it is to use."""
    current_target.cache_clear()
    yield
    current_target.cache_clear()


PRECISIONS = pytest.mark.parametrize("precision", ["f64", "f32"])


@PRECISIONS
@pytest.mark.parametrize("name", NAMES)
def test_every_target_gives_the_bits_of_the_host(
    name: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX-512, AVX2, and SSE2, where fused multiply-add and rounding are calls of the C library."""
    runnable(name)
    expected_total, expected = states(
        cpu_kernels.CpuKernel(program(precision), find_target("host"))
    )
    monkeypatch.setenv(VARIABLE, name)
    current_target.cache_clear()
    kernel = get_backend("cpu").compile(program(precision))
    assert isinstance(kernel, cpu_kernels.CpuKernel)
    assert kernel.target.name == name
    total, values = states(kernel)
    np.testing.assert_array_equal(values, expected)
    assert total == expected_total


@PRECISIONS
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_effort_changes_no_bit(level: int, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_kernels, "default_cache", nothing_kept)
    _, expected = states(cpu_kernels.CpuKernel(program(precision), current_target()))
    monkeypatch.setattr(cpu_kernels, "LEVEL", level)
    _, values = states(cpu_kernels.CpuKernel(program(precision), current_target()))
    np.testing.assert_array_equal(values, expected)


@PRECISIONS
def test_first_code_and_fast_code_have_the_same_bits(
    precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model answers at once, and faster from some moment on that nobody can see."""
    fast = cpu_kernels.CpuKernel(program(precision), current_target())
    expected_total, expected = states(fast)
    assert fast.is_optimized("map")
    # As a program that is in no cache and too long to be compiled well at once.
    monkeypatch.setattr(cpu_kernels, "DIRECT", 0)
    monkeypatch.setattr(cpu_kernels, "default_cache", nothing_kept)
    submitted: list[Callable[[], None]] = []
    monkeypatch.setattr(optimizer, "submit", submitted.append)
    kernel = cpu_kernels.CpuKernel(program(precision), current_target())
    for rounds in range(2):
        total, values = states(kernel)
        assert [kernel.is_optimized(purpose) for purpose in ("map", "reduce")] == [rounds == 1] * 2
        np.testing.assert_array_equal(values, expected)
        assert total == expected_total
        for job in submitted:
            job()
        submitted.clear()


@PRECISIONS
@pytest.mark.parametrize("name", NAMES)
def test_functions_have_the_same_bits_called_or_in_place(
    name: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = runnable(name)
    monkeypatch.setattr(cpu_kernels, "default_cache", nothing_kept)
    found = []
    for few in (10**9, 0):
        monkeypatch.setattr(expand, "_FEW", few)
        kernel = cpu_kernels.CpuKernel(program(precision), target)
        assert ("@function_" in kernel.assembly("map")) is (few == 0)
        found.append(states(kernel))
    (total, values), (called_total, called_values) = found
    np.testing.assert_array_equal(called_values, values)
    assert called_total == total


def test_functions_of_long_programs_are_written_once() -> None:
    """A hundred sines: one function, which serves the cosines of the same arguments too."""
    x = ld.scalar("x") * ld.parameter("a", initial=0.5)
    for _ in range(100):
        x = x.sin() + 1.5
    programs = compile_model(x, "linear").programs
    for which, name in ((programs.value, "sin"), (programs.gradient, "cos_sin")):
        text = cpu_kernels.CpuKernel(which, current_target()).assembly("reduce")
        assert text.count("define internal") == 2  # and the reduction of large arguments
        assert text.count(f"@function_{name}(") == 1 + 100
        assert len(text.splitlines()) < 1500


def test_code_stays_while_it_runs() -> None:
    """Better code may take its place meanwhile."""
    kernel = cpu_kernels.CpuKernel(program("f64"), current_target())
    _, expected = states(kernel)
    better = assemble(kernel.assembly("map"), current_target(), 2)
    entry = kernel.entries["map"]
    in_use, run = weakref.ref(entry.code), entry.function
    kept: list[bool] = []

    def replaced(*arguments: int) -> None:
        kernel._install("map", better, optimized=True)
        kept.append(in_use() is not None)
        run(*arguments)

    kernel.entries["map"] = dataclasses.replace(entry, function=replaced)
    del entry
    _, values = states(kernel)
    assert kept == [True]
    assert in_use() is None
    np.testing.assert_array_equal(values, expected)


def test_unknown_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "avx1024")
    with pytest.raises(ExecutionError, match="unknown target 'avx1024'"):
        get_backend("cpu").compile(program())
    monkeypatch.setenv(VARIABLE, "")
    current_target.cache_clear()
    assert current_target() == find_target("host")


def test_a_target_beyond_the_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"sse2": True, "fma": False})
    with pytest.raises(ExecutionError, match="'avx2' needs avx2, fma, which this processor"):
        find_target.__wrapped__("avx2")


def chain(links: int) -> Program:
    """Shared sub-expressions under roots: what made compile times explode elsewhere."""
    x = ld.scalar("x") * ld.parameter("a", initial=0.5)
    for _ in range(links):
        x = (x * x + 1).sqrt()
    return compile_model(x, "linear").programs.value


def machine_text(which: Program, target: Target) -> str:
    module = llvm.parse_assembly(
        cpu_kernels.CpuKernel(which, target).assembly("reduce"), llvm.create_context()
    )
    machine = target.machine(2)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    return str(machine.emit_assembly(module))


@pytest.mark.parametrize(
    ("name", "wanted", "least"), [("avx512", "%zmm", 1), ("avx2", "%ymm", 2), ("sse2", "%xmm", 4)]
)
def test_code_is_vector_code(name: str, wanted: str, least: int) -> None:
    """The number of multiplications follows from the length of the registers."""
    text = machine_text(chain(40), runnable(name))
    products = [line for line in text.splitlines() if "mulpd" in line or "fmadd" in line]
    assert len(products) == least * 42  # the links, the parameter and the weight
    assert all(wanted in line for line in products)
    assert "fmadd" not in text  # nothing is contracted


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_vectors_on_the_stack_lie_in_one_cache_line(name: str) -> None:
    """Forty sums do not fit the registers; the stack is aligned for those that go there."""
    target = runnable(name)
    c = [ld.parameter(f"c{k}", initial=1.0) for k in range(40)]
    total = c[0] * ld.scalar("x0")
    for k in range(1, 40):
        total = total + c[k] * ld.scalar(f"x{k}")
    lines = machine_text(compile_model(total, "linear").programs.gradient, target).splitlines()
    spilled = [line for line in lines if "(%rsp)" in line and ("%zmm" in line or "%ymm" in line)]
    assert spilled
    assert not [line for line in spilled if "vmovup" in line]
    assert any("andq\t$-64, %rsp" in line for line in lines)


def test_code_for_neon_can_be_made() -> None:
    """AArch64 is not here to run it: two lanes in a register, fused only where it is written."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Target("neon", "aarch64-unknown-linux-gnu", "generic", "")
    text = machine_text(chain(40), target)
    products = [line for line in text.splitlines() if "\tfmul\t" in line]
    assert len(products) == 4 * 42
    assert all(".2d" in line for line in products)
    assert "fmla" not in text
    assert assemble(cpu_kernels.CpuKernel(program(), target).assembly("map"), target, 2)


def test_compilation_grows_with_the_length_of_the_program() -> None:
    """Linear, with room for noise: sixteen times the links, at most sixty-four times the time."""
    times, sizes = [], []
    for links in (50, 800):
        text = cpu_kernels.CpuKernel(chain(links), current_target()).assembly("reduce")
        begun = process_time()
        sizes.append(len(assemble(text, current_target(), 2)))
        times.append(process_time() - begun)
    assert sizes[1] < 16 * sizes[0]
    assert times[1] < 64 * times[0]
