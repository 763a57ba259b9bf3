"""Values and gradients of imported expressions against laddu's own."""

from __future__ import annotations

import json
import warnings
from typing import Any

import models
import numpy as np
import pytest
from compiled_runs import value_and_gradient
from laddu_samples import FOLDER, NAMES, sample
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import tags
from laddu_dask.expr.node import walk

#: Defects of laddu that its own values of these expressions do not show.
SILENT = [name for name in NAMES if not name.startswith("defect")]


def imported(table: object) -> ld.Expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ld.LadduDefectWarning)
        return ld.from_laddu(table)


def close(found: Any, expected: Any, relative: float) -> None:
    scale = np.maximum(np.abs(expected), np.max(np.abs(expected), axis=-1, keepdims=True))
    assert np.all(np.abs(found - expected) <= relative * scale)


@pytest.mark.parametrize("name", [*SILENT, "defect_d1", "defect_d3", "defect_d13"])
def test_values_are_those_of_laddu(name: str) -> None:
    case = sample(name)
    expr = imported(case.table)
    assert ld.Model(expr).parameter_names == tuple(case.parameters)
    found = np.broadcast_to(evaluate(expr, case.columns, case.parameters), case.values.shape)
    assert np.all(np.abs(found - case.values) <= 1e-13 * np.abs(case.values))


@pytest.mark.parametrize(
    "name", [name for name in [*SILENT, "defect_d1", "defect_d3"] if "model_c" not in name]
)
def test_compiled_gradients_are_those_of_laddu(name: str) -> None:
    case = sample(name)
    expr = imported(case.table)
    backends = ["interpreter", "cpu"] if name in {"functions", "algebra"} else ["interpreter"]
    for backend in backends:
        value, gradient = value_and_gradient(expr, case.columns, case.parameters, backend)
        close(value, case.values, 1e-13)
        close(gradient, case.gradients, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_in_every_way_of_computing(name: str, backend: str) -> None:
    case = sample(name)
    value, gradient = value_and_gradient(
        imported(case.table), case.columns, case.parameters, backend
    )
    sound = np.isfinite(value)
    assert np.all(sound) == (name != "defect_d8")
    close(value[sound], case.values[sound], 1e-13)
    close(gradient[:, sound], case.gradients[:, sound], 1e-11)


@pytest.mark.parametrize("name", models.MODELS)
def test_benchmark_models_are_the_same_imported_and_built_here(name: str) -> None:
    case = sample(f"model_{name.lower().replace('-', '_')}")
    built = models.MODELS[name](ld)
    assert ld.Model(built).parameter_names == tuple(case.parameters)
    found = evaluate(built, case.columns, case.parameters)
    assert np.all(np.abs(found - case.values) <= 1e-13 * np.abs(case.values))


def test_imaginary_parts_that_laddu_loses_are_kept() -> None:  # D1, numbers of the defect's report
    case = sample("defect_d1")
    found = evaluate(imported(case.table), case.columns, case.parameters)
    expected = [2.35581977 + 1.4591987j, 1.72379163 + 4.56784262j]
    assert np.allclose(found[:2], expected, rtol=1e-8, atol=0)


def test_quotient_of_equal_factors_is_computed() -> None:  # D8: x/x is NaN at 0, laddu says 1
    case = sample("defect_d8")
    found = evaluate(imported(case.table), case.columns, case.parameters)
    assert np.isnan(found[1])
    assert np.allclose(found[[0, 2]], case.values[[0, 2]], rtol=1e-15, atol=0)


def test_tags_names_and_definitions_arrive() -> None:
    expr = imported(sample("tagged").table)
    assert tags(expr) == ("A", "A2", "B")
    assert [node.data for node in walk(expr.node) if node.op == "named"] == ["first"]
    specs = {spec.name: spec for spec in ld.Model(expr).parameters}
    assert specs["a"].initial_range == (0.5, 1.5)
    assert specs["a"].initial == 1.0
    assert specs["b"] == ld.ParameterSpec(
        "b", 0.7, bounds=(0.0, 2.0), scale=0.1, unit="GeV", latex="b_0", description="second"
    )
    assert (specs["c"].fixed, specs["c"].initial) == (True, -0.4)
    projected = sample("projected")
    found = evaluate(expr.project("B"), projected.columns, projected.parameters)
    assert np.allclose(found, projected.values, rtol=1e-14, atol=0)


def test_repeated_parts_become_one_node() -> None:
    table = sample("model_c_free").table
    assert len(list(walk(imported(table).node))) < 0.6 * len(table["nodes"])


class Foreign:
    """Has what an expression and a model of laddu have."""

    def __init__(self, text: object) -> None:
        self.text = text

    def to_json(self) -> object:
        return self.text


def test_sources_of_every_kind_give_one_expression(tmp_path: Any) -> None:
    table = sample("tagged").table
    text = json.dumps(table)
    file = tmp_path / "model.json"
    file.write_text(text)
    found = {ld.from_laddu(one).node for one in (table, text, file, str(file), Foreign(text))}
    assert len(found) == 1
    assert (FOLDER / "tagged.json").stat().st_size < 5_000
