"""Starts: by order, by name, and the ones refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fit_toys import Spec, Toy, quadratic

from laddu_dask.errors import ParameterError
from laddu_dask.fit import fit
from laddu_dask.fit.objective import free_parameters
from laddu_dask.fit.start import Initial, bounds_text, start_point

SPECS = (
    Spec("rho magnitude", 0.5, (0.0, 10.0)),
    Spec("rho phase", 0.1),
    Spec("mass", 1.2, (1.0, None)),
)
FIXED = (Spec("width", 0.15),)


def toy() -> Toy:
    return Toy(quadratic([1.0, 0.0, 1.5], np.eye(3)), SPECS, FIXED)


def start(initial: Initial | None) -> list[float]:
    objective = toy()
    return list(start_point(objective, free_parameters(objective), initial))


def test_three_ways_to_say_it() -> None:
    """PA: defaults, a full vector in order, a part by name."""
    assert start(None) == [0.5, 0.1, 1.2]
    assert start([1, 2, 3]) == [1.0, 2.0, 3.0]
    assert start(np.array([1.0, 2.0, 3.0])) == [1.0, 2.0, 3.0]
    assert start({"mass": 1.7}) == [0.5, 0.1, 1.7]
    assert start({}) == [0.5, 0.1, 1.2]


def test_bounds_are_inclusive() -> None:
    assert start([0.0, 0.0, 1.0]) == [0.0, 0.0, 1.0]
    assert start([10.0, 0.0, 1.0]) == [10.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("initial", "text"),
    [
        ({"rho phas": 1.0}, "unknown parameter 'rho phas'; did you mean 'rho phase'?"),
        ({"zzz": 1.0}, "unknown parameter 'zzz' (free parameters: rho magnitude, rho phase, mass)"),
        ({"width": 0.2}, "parameter 'width' is fixed and takes no value here"),
        ([1.0, 2.0], "2 start values for 3 free parameters: rho magnitude, rho phase, mass"),
        ([1.0, 2.0, 3.0, 4.0], "4 start values for 3 free parameters"),
        ([1.0, math.nan, 3.0], "start of parameter 'rho phase' is nan"),
        ({"mass": math.inf}, "start of parameter 'mass' is inf"),
        ([1.0, "two", 3.0], "start of parameter 'rho phase' is not a number: 'two'"),
        ([1.0, 1 + 2j, 3.0], "start of parameter 'rho phase' is not a number"),
        ("1 2 3", "not a string"),
        ({"mass": 0.9}, "start of parameter 'mass' is 0.9, outside its bounds [1, inf)"),
        ([11.0, 0.0, 2.0], "'rho magnitude' is 11, outside its bounds [0, 10]"),
    ],
)
def test_refused(initial: object, text: str) -> None:
    """Unknown name, wrong length, NaN, start outside bounds: refused before any evaluation."""
    objective = toy()
    with pytest.raises(ParameterError) as caught:
        fit(objective, initial=initial)  # type: ignore[arg-type]
    assert text in str(caught.value)
    assert objective.points == []


def test_default_outside_its_bounds() -> None:
    objective = Toy(quadratic([0.0], np.eye(1)), [Spec("a", 5.0, (0.0, 1.0))])
    with pytest.raises(ParameterError, match=r"'a' is 5, outside its bounds \[0, 1\]"):
        fit(objective)


def test_bounds_without_room() -> None:
    objective = Toy(quadratic([0.0], np.eye(1)), [Spec("a", 1.0, (1.0, 1.0))])
    with pytest.raises(ParameterError, match="leave no room; fix it instead"):
        fit(objective)


def test_free_parameter_without_definition() -> None:
    objective = toy()
    objective.parameter_names = (*objective.parameter_names, "ghost")
    with pytest.raises(ParameterError, match="without a definition: ghost"):
        fit(objective)


def test_fixed_parameters_stay_out() -> None:
    result = fit(toy())
    assert result.parameter_names == ("rho magnitude", "rho phase", "mass")
    assert result.values == pytest.approx([1.0, 0.0, 1.5], abs=1e-9)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (None, ""),
        ((None, None), ""),
        ((0.0, None), "[0, inf)"),
        ((None, -1.5), "(-inf, -1.5]"),
        ((-math.pi, math.pi), "[-3.14159, 3.14159]"),
    ],
)
def test_bounds_text(bounds: tuple[float | None, float | None] | None, text: str) -> None:
    assert bounds_text(bounds) == text
