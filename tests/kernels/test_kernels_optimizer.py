"""Work in the background: in order, once, and out of the way when the process ends."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from laddu_dask.kernels.object_cache import FOLDER_VARIABLE
from laddu_dask.kernels.optimizer import Optimizer


def test_jobs_run_in_order_on_one_thread() -> None:
    optimizer, done = Optimizer(quiet=0.0), []
    assert optimizer.wait(0)
    for n in range(20):
        optimizer.submit(lambda n=n: done.append((n, threading.current_thread().name)))
    assert optimizer.wait(30)
    assert done == [(n, "laddu-optimizer") for n in range(20)]
    optimizer.close()


def test_nothing_begins_while_somebody_waits_for_code() -> None:
    optimizer, done = Optimizer(quiet=0.2), []
    begun = time.monotonic()
    optimizer.submit(lambda: done.append(time.monotonic()))
    time.sleep(0.1)
    held = time.monotonic()
    optimizer.hold()
    assert optimizer.wait(30)
    assert done[0] - begun >= 0.2
    assert done[0] - held >= 0.2
    optimizer.submit(lambda: done.append(0.0))
    optimizer.hold()
    optimizer.close()  # what waits is dropped
    assert len(done) == 1


def test_a_failure_is_logged_and_the_next_job_runs(caplog: pytest.LogCaptureFixture) -> None:
    optimizer, done = Optimizer(quiet=0.0), []

    def fail() -> None:
        raise ValueError("no code")

    with caplog.at_level(logging.ERROR):
        optimizer.submit(fail)
        optimizer.submit(lambda: done.append(1))
        assert optimizer.wait(30)
    assert done == [1]
    assert "its first code stays in use" in caplog.text
    optimizer.close()


def test_closing_waits_for_the_job_at_work_and_drops_the_others() -> None:
    optimizer, begun, go, done = Optimizer(quiet=0.0), threading.Event(), threading.Event(), []

    def job() -> None:
        begun.set()
        go.wait(30)
        done.append(1)

    optimizer.submit(job)
    optimizer.submit(lambda: done.append(2))
    assert begun.wait(30)
    assert not optimizer.wait(0)
    threading.Timer(0.05, go.set).start()
    optimizer.close()
    assert done == [1]
    assert optimizer.wait(0)
    optimizer.close()  # twice is as good as once
    optimizer.submit(lambda: done.append(3))  # it begins again
    assert optimizer.wait(30)
    assert done == [1, 3]
    optimizer.close()


def test_a_process_may_end_while_a_kernel_is_being_optimised() -> None:
    """LLVM must not be taken apart under the thread that uses it."""
    script = """
import laddu_dask as ld
from laddu_dask.compiler import compile_model
from laddu_dask.kernels import cpu, get_backend
cpu.DIRECT = 10
x = ld.scalar("x") * ld.parameter("a", initial=0.5)
for _ in range(3000):
    x = (x * x + 1).sqrt()
get_backend("cpu").compile(compile_model(x, "linear").programs.value, "reduce")
print("answered")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, FOLDER_VARIABLE: "", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered\n", "")


FORKS = """
import os, sys, time
import numpy as np
import laddu_dask as ld
from laddu_dask.kernels.optimizer import optimizer

def model(terms, step):
    x, total = ld.scalar("x"), ld.Expr(0.0)
    for k in range(terms):
        coupling, pole = ld.parameter(f"c{k}", initial=1.0 + k), ld.parameter(f"m{k}", initial=1.1)
        total = total + coupling / ld.complex(x * step - pole**2, -0.2)
    return total.norm_sqr() + 1e-3

data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0.4, 2.0, 300)})
def likelihood(terms, step):
    term = ld.NLL(model(terms, step), data=data, accepted_mc=data)
    return ld.Likelihood([term], ld.Execution(threads=1))

for round in range(6):
    first = likelihood(40, 1.0 + round)
    first.value_and_gradient()
    expected = first.value()
    time.sleep(0.25 + 0.01 * round)  # the optimizer begins a quarter of a second after
    child = os.fork()
    if not child:
        other = likelihood(2, 1.5 + round).value_and_gradient()
        os._exit(0 if first.value() == expected and np.isfinite(other[0]) else 3)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"child ended with {status}")
"""


def test_a_fork_waits_for_the_compiler() -> None:
    """Its process would find the locks of LLVM held for ever."""
    environment = {**os.environ, "LADDU_DASK_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", FORKS], env=environment, check=True, timeout=100)
