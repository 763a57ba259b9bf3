"""Results: printed, kept, read again, never half-written."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laddu_dask.errors import DataError, OutputError
from laddu_dask.fit import FitResult

GOLDEN = Path(__file__).parent / "golden"


def good() -> FitResult:
    covariance = np.array(
        [
            [1.72296e-4, -2.192e-4, 0.0, 0.0],
            [-2.192e-4, 1.0197e-3, 0.0, 0.0],
            [0.0, 0.0, 5.2474e-3, 0.0],
            [0.0, 0.0, 0.0, 6.4e-5],
        ]
    )
    return FitResult(
        parameter_names=("scale", "f2 magnitude", "f2 phase", "mass"),
        values=np.array([0.35380045368, 0.7, -0.9, 1.25]),
        errors=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        objective=3603.489176773588,
        edm=1.4e-20,
        converged=True,
        message="converged: a minimum, and the data determine every parameter",
        n_evaluations=88,
        seconds=0.5,
        warnings=("parameter mass is at its lower limit",),
        bounds=((0.0, None), None, (-math.pi, math.pi), (1.25, 1.35)),
        units=(None, None, "rad", "GeV"),
        latex=(None, None, r"\varphi", None),
        limits=("", "", "", "lower"),
        method="migrad",
    )


def bad() -> FitResult:
    return replace(
        good(),
        parameter_names=("a", "b", "c"),
        values=np.array([0.5, 1.5, 3.0]),
        errors=np.array([np.nan, np.nan, 0.5]),
        covariance=np.diag([np.nan, np.nan, 0.25]),
        objective=math.inf,
        edm=math.nan,
        converged=False,
        message="not converged: flat direction: a - b",
        warnings=(),
        bounds=(None, None, None),
        units=(None, None, None),
        latex=(None, None, None),
        limits=("", "", ""),
    )


@pytest.mark.parametrize(("name", "result"), [("good", good()), ("bad", bad())])
def test_printed(name: str, result: FitResult) -> None:
    assert str(result) + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_correlation() -> None:
    matrix = good().correlation
    assert np.diag(matrix).tolist() == [1.0] * 4
    assert matrix[0, 1] == pytest.approx(-2.192e-4 / math.sqrt(1.72296e-4 * 1.0197e-3))
    assert np.isnan(np.diag(bad().correlation)).tolist() == [True, True, False]


def test_values_by_name() -> None:
    assert good().parameters == {
        "scale": 0.35380045368,
        "f2 magnitude": 0.7,
        "f2 phase": -0.9,
        "mass": 1.25,
    }
    assert good().evaluations_per_second == 176.0


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        good().values[0] = 1.0


@pytest.mark.parametrize("result", [good(), bad()])
def test_json_keeps_every_bit(result: FitResult, tmp_path: Path) -> None:
    path = result.save(tmp_path / "fit.json")

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert data["schema_version"] == 1
    again = FitResult.load(path)
    assert again.to_dict() == result.to_dict()
    assert again.values.tobytes() == result.values.tobytes()
    assert np.array_equal(again.covariance, result.covariance, equal_nan=True)
    assert again.bounds == result.bounds
    assert str(again) == str(result)


def test_missing_numbers_are_strings() -> None:
    data = bad().to_dict()
    assert (data["objective"], data["edm"]) == ("inf", "nan")
    assert data["parameters"][0]["error"] == "nan"
    assert data["covariance"][0] == ["nan", 0.0, 0.0]


def test_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"fit\.json exists.*overwrite=True") as caught:
        good().save(path)
    assert caught.value.file == str(path)
    assert path.read_text() == "precious"
    good().save(path, overwrite=True)
    assert FitResult.load(path).converged
    assert os.listdir(tmp_path) == ["fit.json"]


def test_failure_while_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.json"
    path.write_text("precious")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        good().save(path, overwrite=True)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["fit.json"]
    path.unlink()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        good().save(path)
    assert os.listdir(tmp_path) == []


def test_missing_folder_and_folder_as_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="folder .* does not exist"):
        good().save(tmp_path / "no" / "fit.json")
    with pytest.raises(OutputError, match="it is a folder"):
        good().save(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "cannot read"),
        ("[1]", "not a fit result"),
        ("{}", "its schema is None"),
        ('{"schema": "laddu-dask fit result", "schema_version": 2}', "version 2"),
        ('{"schema": "laddu-dask fit result", "schema_version": 1}', "damaged.*parameters"),
    ],
)
def test_files_that_are_no_results(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    path.write_text(content)
    with pytest.raises(DataError, match=text) as caught:
        FitResult.load(path)
    assert caught.value.file == str(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        FitResult.load(tmp_path / "none.json")
