"""Fits that were interrupted go on to the bits of the quiet fit, or say why they cannot."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_toys import Spec, Toy, line_sample, rosenbrock, scale_only

from laddu_dask.errors import DataError, EvaluationError, OutputError, ParameterError
from laddu_dask.fit import FitResult, fit
from laddu_dask.fit.journal import Journal, read_journal
from laddu_dask.fit.objective import F64

VALLEY = [Spec("x", -1.2), Spec("y", 1.0)]


class Curved(Toy):
    """The valley with its exact Hessian."""

    def hessian(self, p: F64) -> F64:
        x, y = p
        return np.array([[1200 * x * x - 400 * y + 2, -400 * x], [-400 * x, 200.0]])


class LostError(Exception):
    """A cluster that was lost, say."""


class Fragile:
    """A toy that breaks at its n-th pass."""

    def __init__(self, toy: Toy, breaks_at: int) -> None:
        self.toy, self.left = toy, breaks_at
        self.parameters = toy.parameters
        self.parameter_names = toy.parameter_names
        self.default_parameters = toy.default_parameters
        if isinstance(toy, Curved):
            self.hessian = lambda p: self.passes() and toy.hessian(p)

    def passes(self) -> bool:
        self.left -= 1
        if self.left < 0:
            raise LostError
        return True

    def value(self, p: F64) -> float:
        self.passes()
        return self.toy.value(p)

    def value_and_gradient(self, p: F64) -> tuple[float, F64]:
        self.passes()
        return self.toy.value_and_gradient(p)


def valley() -> Toy:
    return Toy(rosenbrock, VALLEY)


def curved() -> Toy:
    return Curved(rosenbrock, VALLEY)


def line() -> Toy:
    return Toy(line_sample(0.5, 200).nll, [Spec("s", 0.1, bounds=(-0.4, 0.9))])


def no_value_at_the_start() -> Toy:
    return Toy(scale_only, [Spec("a", 0.0)])


def outcome(result: FitResult) -> tuple[Any, ...]:
    """All of a result but its duration, numbers to the last bit."""
    numbers = [result.objective, result.edm, *result.values, *result.covariance.flat]
    words = (result.converged, result.message, result.warnings, result.limits)
    return (*(float(x).hex() for x in numbers), result.n_evaluations, *words)


def passes(toy: Toy) -> int:
    return toy.value_passes + toy.gradient_passes


@pytest.mark.parametrize("make", [valley, curved, line, no_value_at_the_start])
def test_interrupted_at_every_evaluation(make: Any, tmp_path: Path) -> None:
    """The result, warnings and count of evaluations are those of the quiet fit, whatever broke."""
    quiet = fit(make())
    expected = outcome(quiet)
    assert quiet.converged
    for count in range(quiet.n_evaluations):
        file = tmp_path / f"{count}.checkpoint"
        with pytest.raises(LostError) as caught:
            fit(Fragile(make(), count), checkpoint=file)
        assert f"resume={str(file)!r} goes on from there" in caught.value.__notes__[0]
        assert len(read_journal(file).records) == 1 + count
        assert outcome(fit(make(), resume=file)) == expected
        assert len(read_journal(file).records) == 1 + quiet.n_evaluations


def test_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    assert outcome(fit(valley(), checkpoint=tmp_path / "a")) == outcome(fit(valley()))


def test_a_finished_fit_needs_one_pass_only(tmp_path: Path) -> None:
    """That one tells whether the data are the same. The time is that of both runs."""

    def slow(p: F64) -> tuple[float, F64]:
        time.sleep(0.003)
        return rosenbrock(p)

    first = fit(Toy(slow, VALLEY), checkpoint=tmp_path / "a")
    toy = valley()
    again = fit(toy, resume=tmp_path / "a")
    assert outcome(again) == outcome(first)
    assert passes(toy) == 1
    assert again.seconds > 0.003 * (first.n_evaluations - 1)


def test_interrupted_again_and_again(tmp_path: Path) -> None:
    """The same call with the file in both options begins, and goes on, until it is done."""
    expected = outcome(fit(valley()))
    for _ in range(200):
        try:
            result = fit(Fragile(valley(), 4), checkpoint=tmp_path / "a", resume=tmp_path / "a")
            break
        except LostError:
            continue
    assert outcome(result) == expected


def test_cut_at_every_byte_of_the_last_records(tmp_path: Path) -> None:
    expected = fit(valley(), checkpoint=tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    ends = read_journal(tmp_path / "whole").ends
    cut = tmp_path / "cut"
    for size in range(ends[-2] - 20, len(content)):
        cut.write_bytes(content[:size])
        toy = valley()
        assert outcome(fit(toy, resume=cut)) == outcome(expected)
        assert passes(toy) == 1 + sum(end > size for end in ends)
        assert len(cut.read_bytes()) == len(content)


def test_on_into_another_file(tmp_path: Path) -> None:
    """The old file stays as it is."""
    with pytest.raises(LostError):
        fit(Fragile(valley(), 10), checkpoint=tmp_path / "old")
    before = (tmp_path / "old").read_bytes()
    result = fit(valley(), resume=tmp_path / "old", checkpoint=tmp_path / "new")
    assert outcome(result) == outcome(fit(valley()))
    assert (tmp_path / "old").read_bytes() == before
    assert len(read_journal(tmp_path / "new").records) == 1 + result.n_evaluations


def test_a_limit_of_evaluations_may_be_raised(tmp_path: Path) -> None:
    stopped = fit(valley(), checkpoint=tmp_path / "a", max_evaluations=7)
    assert "limit of 7 evaluations" in stopped.message
    assert outcome(fit(valley(), resume=tmp_path / "a")) == outcome(fit(valley()))


def test_another_path_is_followed_and_told(tmp_path: Path) -> None:
    """The rest of the old path is void then: the file is that of the new one."""
    quiet = fit(valley(), checkpoint=tmp_path / "a")
    records = read_journal(tmp_path / "a").records
    journal = Journal(tmp_path / "a")
    journal.keep(6)
    record = bytearray(records[6])
    record[20] ^= 1  # the last bit of the point, as another rounding would make it
    journal.append(bytes(record))
    for rest in records[7:]:
        journal.append(rest)
    journal.close()
    result = fit(valley(), resume=tmp_path / "a")
    assert "left the path of the interrupted one after 5 evaluations" in result.warnings[-1]
    assert outcome(result)[:9] == outcome(quiet)[:9]
    assert read_journal(tmp_path / "a").records[:6] == records[:6]
    assert outcome(fit(valley(), resume=tmp_path / "a")) == outcome(quiet)


# refusals ----------------------------------------------------------------------------------


def test_another_fit_is_refused_by_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "a"
    fit(valley(), checkpoint=file)
    before = file.read_bytes()
    others: list[tuple[Toy, dict[str, Any], str]] = [
        (valley(), {"initial": [-1.0, 1.0]}, r"the start of 'x' \(-1.2 there, -1.0 here\)"),
        (
            Toy(rosenbrock, [Spec("x", -1.2, bounds=(-2, 2)), VALLEY[1]]),
            {},
            r"the definition of 'x' \(bounds None, .* there, bounds \(-2, 2\), .* here\)",
        ),
        (Toy(rosenbrock, [Spec("x", -1.2), Spec("z", 1.0)]), {}, r"x, y there, x, z here"),
    ]
    for toy, options, told in others:
        with pytest.raises(DataError, match=told) as caught:
            fit(toy, resume=file, **options)
        assert caught.value.file == str(file)
        assert passes(toy) == 0
    shifted = Toy(lambda p: (rosenbrock(p)[0] + 1, rosenbrock(p)[1]), VALLEY)
    with pytest.raises(DataError, match=r"is of other data: at its first point -2 ln L was 24\.19"):
        fit(shifted, resume=file)
    assert file.read_bytes() == before


def test_other_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(valley(), checkpoint=tmp_path / "a")
    monkeypatch.setattr(
        "laddu_dask.fit.checkpoint.fit_versions", lambda: {"numpy": "1.0", "iminuit": "9"}
    )
    with pytest.raises(DataError, match=r"the version of numpy \(\S+ there, 1\.0 here\)"):
        fit(valley(), resume=tmp_path / "a")


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    fit(valley(), checkpoint=tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(OutputError, match=r"exists: go on from it with resume='.*a'"):
        fit(valley(), checkpoint=tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before
    with pytest.raises(DataError, match="cannot read the checkpoint .*absent"):
        fit(valley(), resume=tmp_path / "absent")
    for option in ("checkpoint", "resume"):
        with pytest.raises(ParameterError, match=f"{option}='' is not the path of a file"):
            fit(valley(), **{option: ""})
    with pytest.raises(ParameterError, match="checkpoint=3 is not the path"):
        fit(valley(), checkpoint=3)  # type: ignore[arg-type]  # what is tested


def test_no_value_anywhere_is_the_same_error_again(tmp_path: Path) -> None:
    def nothing(p: F64) -> tuple[float, F64]:
        raise EvaluationError("no value", event=np.int64(3), value=np.float64("nan"))

    texts = []
    for options in ({"checkpoint": tmp_path / "a"}, {"resume": tmp_path / "a"}):
        with pytest.raises(EvaluationError) as caught:
            fit(Toy(nothing, VALLEY), **options)
        assert caught.value.event == 3
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_one_file_by_different_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, with dots, through a link: still the file to begin, and to go on with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to("runs")
    ways = ["runs/a", "./runs/a", "runs/../runs/a", tmp_path / "runs" / "a", "link/a", b"link/a"]
    expected = outcome(fit(valley()))
    for count, (checkpoint, resume) in enumerate(itertools.permutations(ways, 2)):
        with pytest.raises(LostError):
            fit(Fragile(valley(), count % 3), checkpoint=checkpoint, resume=resume)
    assert outcome(fit(valley(), checkpoint="link/a", resume="runs/a")) == expected
    assert os.listdir(tmp_path / "runs") == ["a"]
    (tmp_path / "runs" / "b").hardlink_to("runs/a")
    assert outcome(fit(valley(), checkpoint="runs/b", resume="runs/a")) == expected


# processes that are killed -----------------------------------------------------------------

SLOW_FIT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from fit_toys import Spec, Toy, rosenbrock
from laddu_dask.fit import fit

def slowly(p):
    time.sleep(0.004)
    return rosenbrock(p)

print("ready", flush=True)
toy = Toy(slowly, [Spec("x", -1.2), Spec("y", 1.0)])
result = fit(toy, checkpoint=sys.argv[2], resume=sys.argv[2])
result.save(sys.argv[3], overwrite=True)
"""


def check_killed_fits(seed: int, tmp_path: Path) -> int:
    """Kill a process that fits at random moments until it is done; the number of kills."""
    print(f"seed {seed}")
    moments = random.Random(seed)
    expected = outcome(fit(valley()))
    file, saved = tmp_path / f"{seed}.checkpoint", tmp_path / f"{seed}.json"
    for kills in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW_FIT, str(Path(__file__).parent), str(file), str(saved)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process, process.stdout:
            assert process.stdout.readline() == "ready\n"
            time.sleep(moments.uniform(0.0, 0.25))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            if process.wait() == 0:
                assert outcome(FitResult.load(saved)) == expected
                return kills
    raise AssertionError("no progress from one run to the next")


def test_killed_at_random_moments(tmp_path: Path) -> None:
    assert check_killed_fits(1, tmp_path) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_killed_at_many_random_moments(seed: int, tmp_path: Path) -> None:
    assert check_killed_fits(seed, tmp_path) >= 1
