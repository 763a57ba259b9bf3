"""Columns, operations and sums per event may only fall."""

from __future__ import annotations

from dataclasses import replace

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import run_program
from lowering_table import MODELS, REACHED, Counts, counts

from laddu_dask.compiler import Assumptions, NormalForm, compile_model, probe_model, propose
from laddu_dask.compiler.assumptions import RANGE


def assert_as_good(found: Counts, reached: Counts, *, operations: bool = True) -> None:
    """No more bytes, sums and operations than were reached."""
    assert found.bytes <= reached.bytes
    assert found.frontier <= reached.frontier
    if operations:
        assert found.forward + found.backward <= reached.forward + reached.backward


@pytest.mark.parametrize("name", MODELS)
def test_as_good_as_by_hand(name: str) -> None:
    """DC-12: textbook formulas reach the form that a specialist would write."""
    found = counts(compile_model(MODELS[name](), "linear", Assumptions()))
    # The system of equations of C-free is counted in `test_threshold`.
    assert_as_good(found, REACHED[name], operations=name != "C-free")


def with_events(name: str, events: dict[str, np.ndarray]) -> Counts:
    """Counts under the assumptions that a data set leaves, facts included."""
    expr, assumptions = MODELS[name](), Assumptions()
    while True:
        subject = probe_model(NormalForm(expr, assumptions))
        source = np.array([events[column] for column in subject.columns])
        rows = run_program(subject.program, source, np.zeros(0), "interpreter")
        assumptions = replace(assumptions, facts=propose(subject.digests, rows))
        model = compile_model(expr, "linear", assumptions)
        programs = model.programs
        source = np.array([events[column] for column in programs.columns])
        rows = run_program(programs.prepare, source, np.zeros(0), "interpreter")
        contradicted = programs.findings([q.answer(rows) for q in programs.questions])
        contradicted.pop(RANGE, None)
        if not contradicted:
            return counts(model)
        assumptions = assumptions.weaken(contradicted)


def test_first_waves_without_imaginary_part() -> None:
    """A: two columns of zeros go, and what is multiplied with them."""
    events = benchmark_models.events("A", 1000, "data")
    events["a0im"] = events["a10im"] = np.zeros(1000)
    found = with_events("A", events)
    assert_as_good(found, Counts(312, 152, 119, 38))


def test_closed_channel() -> None:
    """E: below the threshold of a channel its width is imaginary, which costs nothing."""
    events = benchmark_models.events("B", 1000, "data")
    events["s"] = np.linspace(1.0, 1.5, 1000)
    assert_as_good(with_events("E", events), REACHED["E"])
