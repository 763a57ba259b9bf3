"""Schemas: names, four-momenta, and the errors for what is missing."""

from __future__ import annotations

import pytest

from laddu_dask.data import Schema, p4_columns
from laddu_dask.errors import DataError

K = p4_columns("k")


def test_order_index_and_weight_flag() -> None:
    """DA-03: ordered names, index by name, has-weight flag."""
    schema = Schema(("x", *K), weight="w")
    assert schema.columns == ("x", "k_e", "k_px", "k_py", "k_pz")
    assert [schema.index(name) for name in schema.columns] == [0, 1, 2, 3, 4]
    assert schema.has_weight
    assert not Schema(("x",)).has_weight


@pytest.mark.parametrize(
    ("columns", "weight", "unusable"),
    [(("x", "y", "x"), None, ()), (("x", "w"), "w", ()), (("x",), None, (("x", "string"),))],
)
def test_duplicates_are_refused(
    columns: tuple[str, ...], weight: str | None, unusable: tuple[tuple[str, str], ...]
) -> None:
    """DA-03: a name may occur once, over inputs, weight and unusable columns together."""
    with pytest.raises(DataError, match="occurs twice"):
        Schema(columns, weight, unusable)


def test_four_momenta_need_all_four_lower_case_columns() -> None:
    """Conventions 1.8: upper case or incomplete sets are scalars."""
    schema = Schema(("a_E", "a_px", "a_py", "a_pz", "b_e", "b_px", "_e", "x", *K))
    assert schema.p4s == ("k",)
    assert schema.scalars == ("a_E", "a_px", "a_py", "a_pz", "b_e", "b_px", "_e", "x")


def test_missing_columns_are_all_named_with_near_misses() -> None:
    """DA-01, DA-03: one error names everything that is missing and what exists."""
    schema = Schema(("ks1_e", "ks1_px", "ks1_py", *K, "pol_angle"), "w", (("run", "string"),))
    wanted = ["k_e", "ks1_pz", *p4_columns("K"), "pol_angel", "w", "run", "pol_angel"]
    with pytest.raises(DataError) as caught:
        schema.require(wanted, wanted_by="term 'signal'", source="a.parquet")
    assert str(caught.value).splitlines() == [
        "term 'signal' needs columns that a.parquet does not offer:",
        "  column 'ks1_pz': the four-momentum 'ks1' is incomplete",
        "  four-momentum 'K' (K_e, K_px, K_py, K_pz) (did you mean 'k'?)",
        "  column 'pol_angel' (did you mean 'pol_angle'?)",
        "  column 'w' is the event weight, not an input of the model; read with weight=None to use"
        " it as a scalar",
        "  column 'run' has type string; only integers and floating point numbers can be used",
        "It offers four-momenta k; scalars ks1_e, ks1_px, ks1_py, pol_angle; weight 'w'.",
    ]
    assert caught.value.column == "ks1_pz"
    assert caught.value.columns == ("ks1_pz", *p4_columns("K"), "pol_angel", "w", "run")
    assert caught.value.wanted_by == "term 'signal'"


def test_nothing_missing_is_silent() -> None:
    Schema(K).require(K, wanted_by="anything")


def test_restricting_keeps_the_weight_and_knows_four_momenta() -> None:
    schema = Schema(("x", "y", *K), "w", (("run", "string"),))
    assert schema.restricted(["y", "k", "w", "k_e"]) == Schema(("y", *K), "w")
    with pytest.raises(DataError, match="column 'z'"):
        schema.restricted(["z"])
