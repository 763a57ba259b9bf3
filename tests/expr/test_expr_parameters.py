"""Definitions of parameters: defaults, and every way to get one wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracle import evaluate

import laddu_dask as ld


def spec(*args: Any, **options: Any) -> ld.ParameterSpec:
    found = ld.parameter(*args, **options).node.data
    assert isinstance(found, ld.ParameterSpec)
    return found


@pytest.mark.parametrize(
    ("options", "initial"),
    [
        ({}, 0.0),
        ({"initial": 1.5}, 1.5),
        ({"initial": np.float32(0.5)}, 0.5),
        ({"initial": 2}, 2.0),
        ({"initial": (1.0, 4.0)}, 2.5),
        ({"initial": np.array([1.0, 4.0])}, 2.5),
        ({"bounds": (-1, 5)}, 0.0),
        ({"bounds": (0, 5)}, 0.0),
        ({"bounds": (1, 3)}, 2.0),
        ({"bounds": (-3, -1)}, -2.0),
        ({"bounds": (1, None)}, 1.0),
        ({"bounds": (None, -1)}, -1.0),
        ({"bounds": (1, math.inf)}, 1.0),
        ({"bounds": (1, 3), "initial": 1}, 1.0),
        ({"bounds": (1, 3), "initial": 3}, 3.0),
        ({"fixed": 0.25}, 0.25),
        ({"fixed": 0.0}, 0.0),
        ({"fixed": 2, "bounds": (1, 3)}, 2.0),
    ],
)
def test_start_value(options: dict[str, Any], initial: float) -> None:
    """Zero, or the middle of bounds that exclude zero; bounds are inclusive."""
    found = spec("p", **options)
    assert found.initial == initial
    assert type(found.initial) is float
    assert found.fixed == ("fixed" in options)


def test_everything_that_is_given_is_kept() -> None:
    found = spec(
        "m",
        initial=(1.0, 2.0),
        bounds=(0.5, 3),
        scale=0.1,
        unit="GeV",
        latex="m_0",
        description="mass",
    )
    assert found == ld.ParameterSpec(
        name="m",
        initial=1.5,
        initial_range=(1.0, 2.0),
        bounds=(0.5, 3.0),
        scale=0.1,
        unit="GeV",
        latex="m_0",
        description="mass",
    )
    assert spec("phi", bounds=(-math.pi, math.pi), periodic=True).periodic
    assert spec("a", bounds=(-math.inf, math.inf)).bounds == (None, None)
    assert spec("a", bounds=(np.float32(-math.inf), np.float32(1))).bounds == (None, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "non-empty name"),
        ({"name": None}, "non-empty name"),
        ({"bounds": (math.nan, 1)}, "finite"),
        ({"bounds": (0, math.nan)}, "finite"),
        ({"bounds": (3, 1)}, "not below"),
        ({"bounds": (1, 1)}, "not below"),
        ({"bounds": (math.inf, None)}, "finite"),
        ({"bounds": (None, -math.inf)}, "finite"),
        ({"bounds": (1,)}, "pair"),
        ({"bounds": 1.0}, "pair"),
        ({"bounds": ("0", "1")}, "real number"),
        ({"initial": 5, "bounds": (0, 1)}, "outside its bounds"),
        ({"initial": (0.5, 5), "bounds": (0, 1)}, "outside its bounds"),
        ({"fixed": -1, "bounds": (0, None)}, "outside its bounds"),
        ({"initial": (2, 1)}, "low < high"),
        ({"initial": (1, 1)}, "low < high"),
        ({"initial": (1, 2, 3)}, "low < high"),
        ({"initial": ()}, "low < high"),
        ({"initial": math.nan}, "finite"),
        ({"initial": math.inf}, "finite"),
        ({"initial": "1"}, "real number"),
        ({"initial": 1j}, "real number"),
        ({"fixed": math.nan}, "finite"),
        ({"fixed": "1"}, "real number"),
        ({"fixed": (0, 1)}, "real number"),
        ({"initial": 1, "fixed": 1}, "both initial"),
        ({"scale": 0}, "scale must be positive"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"scale": math.nan}, "scale must be finite"),
        ({"scale": math.inf}, "scale must be finite"),
        ({"scale": "1"}, "real number"),
        ({"periodic": True}, "two finite bounds"),
        ({"periodic": True, "bounds": (0, None)}, "two finite bounds"),
    ],
)
def test_wrong_definitions(options: dict[str, Any], message: str) -> None:
    """Each names the parameter and what is wrong with it."""
    with pytest.raises(ld.ParameterError, match=message) as caught:
        ld.parameter(**{"name": "mass", **options})
    assert isinstance(caught.value, ValueError)
    if "name" not in options:
        assert "mass" in str(caught.value)
        assert caught.value.name == "mass"


def test_unknown_option() -> None:
    with pytest.raises(TypeError, match="start"):
        ld.parameter("p", start=1.0)


def names(expr: ld.Expr) -> list[tuple[str, float, bool]]:
    return [(s.name, s.initial, s.fixed) for s in ld.Model(expr).parameters]


def test_cartesian_complex_parameter() -> None:
    z = ld.cparameter("z", initial=1.5 - 0.5j)
    assert names(z) == [("z real", 1.5, False), ("z imag", -0.5, False)]
    assert evaluate(z, {}, {"z real": 2, "z imag": 3})[0] == 2 + 3j


def test_polar_complex_parameter() -> None:
    z = ld.cparameter("z", initial=1 + 1j, coordinates="polar")
    assert names(z) == [
        ("z magnitude", pytest.approx(math.sqrt(2), rel=1e-15), False),
        ("z phase", pytest.approx(math.pi / 4, rel=1e-15), False),
    ]
    value = evaluate(z, {}, {"z magnitude": 2, "z phase": 0.25})[0]
    assert value == pytest.approx(2 * np.exp(0.25j), rel=1e-15)


def test_complex_parameter_options() -> None:
    z = ld.cparameter(
        "z",
        initial=3 + 4j,
        suffixes=("_r", "_i"),
        bounds=((0, 5), None),
        fixed=(None, 0.0),
    )
    real, imag = ld.Model(z).parameters
    assert (real.name, real.initial, real.bounds, real.fixed) == ("z_r", 3.0, (0.0, 5.0), False)
    assert (imag.name, imag.initial, imag.bounds, imag.fixed) == ("z_i", 0.0, (None, None), True)
    assert names(ld.cparameter("w")) == [("w real", 0.0, False), ("w imag", 0.0, False)]
    with pytest.raises(ValueError, match="'cartesian' or 'polar', got 'spherical'"):
        ld.cparameter("z", coordinates="spherical")
    with pytest.raises(ValueError, match="zip"):
        ld.cparameter("z", bounds=((0, 1),))
    with pytest.raises(ld.ParameterError, match="z magnitude.*outside its bounds"):
        ld.cparameter("z", initial=2j, coordinates="polar", bounds=((0, 1), None))
