"""Rounding by the Particle Data Group."""

from __future__ import annotations

import math

import pytest

from laddu_dask.fit.pdg import rounded


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        # The three examples of the Review.
        (0.827, 0.119, ("0.83", "0.12")),
        (0.827, 0.367, ("0.8", "0.4")),
        (0.827, 0.963, ("0.8", "1.0")),
        # Edges of the rule.
        (1.5, 0.0354, ("1.500", "0.035")),
        (1.5, 0.0355, ("1.50", "0.04")),
        (1.5, 0.0949, ("1.50", "0.09")),
        (1.5, 0.0950, ("1.50", "0.10")),
        (1.5, 0.0999, ("1.50", "0.10")),
        (1.5, 9.999, ("2", "10")),
        # Signs, sizes, exponents.
        (-0.0001, 1.0, ("0.0", "1.0")),
        (-3.25159, 0.021, ("-3.252", "0.021")),
        (123456.0, 1234.0, ("1.235e+05", "0.012e+05")),
        (1234.0, 15.0, ("1234", "15")),
        (9.99999e-6, 1.6e-6, ("1.00e-05", "0.16e-05")),
        (0.0, 2e-9, ("0", "2.0e-09")),
        (999996.0, 200.0, ("1.00000e+06", "0.00020e+06")),
        # Nothing is left of the value at the place of the error.
        (167120.0, 4e9, ("1.7e+05", "4e+09")),
        (-3.0, 4000.0, ("-3", "4e+03")),
        (1e-13, 2e-9, ("1e-13", "2.0e-09")),
        (-0.0, 5.6e300, ("0", "6e+300")),
        (0.0, 4e9, ("0", "4e+09")),
        # No error to round by.
        (0.123456789, math.nan, ("0.123457", "nan")),
        (2.0, 0.0, ("2", "0")),
        (2.0, math.inf, ("2", "inf")),
        (math.nan, 1.0, ("nan", "1")),
    ],
)
def test_rounded(value: float, error: float, text: tuple[str, str]) -> None:
    assert rounded(value, error) == text


def test_any_two_numbers() -> None:
    value, error = rounded(1e300, 1e-300)
    assert (float(value), float(error)) == (1e300, 1e-300)
