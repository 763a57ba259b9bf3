"""`laddu-dask demo`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from laddu_dask import FitResult
from laddu_dask.cli import main
from laddu_dask.demo.model import TRUTH, build, sample
from laddu_dask.demo.pseudo_data import draw
from laddu_dask.demo.stopwatch import Stopwatch, seconds_since_process_start
from laddu_dask.runtime import Execution


def run(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["demo", *arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """One run of the demonstration, in a folder that it has to create."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return run("--output", str(folder)), folder


def test_prints_everything(finished: tuple[Result, Path]) -> None:
    """Plan, truth, value, error, pull, objective, rate, memory and where the time went."""
    result, _ = finished
    assert result.exit_code == 0, result.output
    for text in (
        "10000 events of a real sample",
        "5000 pseudo-data events drawn with seed 1",
        "ksks/accepted_mc  resident",
        "truth",
        "pull",
        "f2 magnitude",
        "-2 ln L = ",
        "evaluations, ",
        "per second over 15000 events; peak memory",
        "s in all: start Python and import ",
        "compile kernels",
    ):
        assert text in result.output, text


def test_writes_a_result_that_loads(finished: tuple[Result, Path]) -> None:
    """fit.json is a fit result with what is needed to repeat the demonstration."""
    _, folder = finished
    assert sorted(path.name for path in folder.iterdir()) == ["fit.json", "fit.png"]
    assert (folder / "fit.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    fit = FitResult.load(folder / "fit.json")
    assert fit.converged
    assert set(fit.parameter_names) == set(TRUTH)
    extra = json.loads((folder / "fit.json").read_text())["demo"]
    assert extra["seed"] == 1
    assert extra["events"] == 5000
    truth = np.array([TRUTH[name] for name in fit.parameter_names])
    np.testing.assert_allclose(extra["pulls"], (fit.values - truth) / fit.errors)
    assert np.abs(extra["pulls"]).max() < 3.0
    assert {"python", "llvmlite", "laddu-dask"} <= set(extra["software"])


def test_existing_files_are_left_alone(finished: tuple[Result, Path]) -> None:
    """A second run fails before any work; --overwrite replaces the files."""
    _, folder = finished
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = run("--output", str(folder))
    assert again.exit_code == 1
    assert "fit.json exists and is left as it is" in again.output
    assert "overwrite" in again.output
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    forced = run("--output", str(folder), "--overwrite", "--events", "2000", "--seed", "7")
    assert forced.exit_code == 0, forced.output
    assert json.loads((folder / "fit.json").read_text())["demo"]["events"] == 2000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--memory", "12 parsecs"], "not a memory budget"),
        (["--memory", "1 KiB"], "of host memory, 512 bytes remain"),
        (["--events", "0"], "--events"),
        (["--backend", "abacus"], "--backend"),
    ],
)
def test_bad_options(tmp_path: Path, arguments: list[str], text: str) -> None:
    """One line says what is wrong, and nothing is written."""
    result = run("--output", str(tmp_path), *arguments)
    assert result.exit_code in {1, 2}
    assert text in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["file", "file/below", "file/below/it"])
def test_unusable_output(tmp_path: Path, where: str) -> None:
    """One line with path and cure before any work, no traceback."""
    (tmp_path / "file").write_text("precious")
    result = run("--output", str(tmp_path / where))
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: cannot write into the folder {tmp_path / where}: ")
    assert "choose another one" in line
    assert isinstance(result.exception, SystemExit)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("where", ["/proc", "/proc/none/below"])
def test_output_where_no_file_can_be(where: str) -> None:
    result = run("--output", where)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: cannot write into the folder {where}: ")


def test_pseudo_data_are_seeded() -> None:
    """One seed, one sample; the events are rows of the sample with unit weights."""
    mc, (model, _) = sample(), build()
    run_with = Execution(backend="interpreter")
    first, again, other = (draw(mc, model, TRUTH, 300, seed, run_with) for seed in (5, 5, 6))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert first.sum_weights() == 300.0
    assert np.isin(first.column("kshort1_pz"), mc.column("kshort1_pz")).all()


def test_stopwatch_adds_up() -> None:
    """Phases keep their order and add up."""
    watch = Stopwatch()
    watch.add("a", 1.0)
    with watch.phase("b"):
        pass
    watch.add("a", 0.5)
    assert list(watch.phases) == ["a", "b"]
    assert watch.phases["a"] == 1.5
    assert str(watch).startswith("1.5 s in all: a 1.5 s, b 0.0 s")
    age = seconds_since_process_start()
    assert age is None or age > 0
