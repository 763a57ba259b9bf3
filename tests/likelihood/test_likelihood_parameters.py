"""Which parameters a likelihood has, in what order, and how values are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, ParameterError

X = ld.scalar("x")
EVENTS = ld.Dataset.from_arrays(scalars={"x": [0.2, 1.0, 2.0]}, weights=[1, 0.5, 2])
MC = ld.Dataset.from_arrays(scalars={"x": [0.1, 0.5, 1.5, 3]}, weights=[1, 2, 0.5, 0.25])
QUICK = ld.Execution(backend="interpreter", threads=1)


def nll(expr: ld.Expr, name: str = "nll") -> ld.NLL:
    return ld.NLL(expr, data=EVENTS, accepted_mc=MC, name=name)


def line(*names: str, **options: Any) -> ld.Expr:
    """1 + x (first + second x + ...)."""
    total: Any = 0.0
    for power, name in enumerate(names):
        total = total + ld.parameter(name, initial=0.5, **options) * X**power
    return 1 + X * total


def test_order_is_that_of_first_appearance() -> None:
    """T-35: over the terms in their order, not alphabetical, and the gradient follows it."""
    terms = [nll(line("z", "b"), "first"), nll(line("b", "a"), "second")]
    with ld.Likelihood(terms, QUICK) as likelihood:
        assert likelihood.parameter_names == ("z", "b", "a")
        assert [spec.name for spec in likelihood.parameters] == ["z", "b", "a"]
        _, gradient = likelihood.value_and_gradient([0.1, 0.2, 0.3])
    with ld.Likelihood(terms[::-1], QUICK) as turned:
        assert turned.parameter_names == ("b", "a", "z")
        _, other = turned.value_and_gradient([0.2, 0.3, 0.1])
    assert gradient == pytest.approx(other[[2, 0, 1]], rel=1e-14)


def test_terms_share_parameters_by_name() -> None:
    """The sum of two terms, and the shared parameter collects both slopes."""
    with (
        ld.Likelihood([nll(line("a", "b"))], QUICK) as first,
        ld.Likelihood([nll(line("b"))], QUICK) as second,
        ld.Likelihood([nll(line("a", "b"), "one"), nll(line("b"), "two")], QUICK) as both,
    ):
        value, gradient = both.value_and_gradient({"a": 0.3, "b": 0.7})
        value1, (slope_a, slope_b) = first.value_and_gradient([0.3, 0.7])
        value2, (slope_b2,) = second.value_and_gradient([0.7])
    assert value == pytest.approx(value1 + value2, rel=1e-15)
    assert gradient == pytest.approx([slope_a, slope_b + slope_b2], rel=1e-14)


def test_different_kinds_of_terms_add_up() -> None:
    """An NLL beside an ExtendedNLL: the numbers worked out by hand, added."""
    extended = ld.ExtendedNLL(line("a"), data=EVENTS, accepted_mc=MC)
    with ld.Likelihood([nll(line("a")), extended], QUICK) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.5])
    assert value == pytest.approx(7.967043513054284 + 6.731325810043405, rel=1e-14)
    assert gradient == pytest.approx([-1.4263426342634262 + 0.1696969696969699], rel=1e-13)


def test_fixed_parameters_are_constants() -> None:
    """They have no place in vectors, and their value enters."""
    fixed = ld.parameter("f", fixed=0.5)
    with ld.Likelihood([nll(1 + fixed * X * ld.parameter("g", initial=1))], QUICK) as likelihood:
        assert likelihood.parameter_names == ("g",)
        value, gradient = likelihood.value_and_gradient()
        assert value == pytest.approx(7.967043513054284, rel=1e-14)
        assert gradient == pytest.approx([0.5 * -1.4263426342634262], rel=1e-13)
        with pytest.raises(ParameterError, match="'f' is fixed") as caught:
            likelihood.value({"f": 0.4})
    assert caught.value.name == "f"


def test_a_parameter_that_cancels_keeps_its_place() -> None:
    """T-35: its gradient is an exact zero."""
    a, b = (ld.parameter(name, initial=0.5) for name in "ab")
    with ld.Likelihood([nll(1 + a * X + b * X.imag())], QUICK) as likelihood:
        assert likelihood.parameter_names == ("a", "b")
        value, gradient = likelihood.value_and_gradient()
    assert value == pytest.approx(7.967043513054284, rel=1e-14)
    assert gradient == pytest.approx([-1.4263426342634262, 0], rel=1e-13)


def test_partial_mappings_keep_the_start_values() -> None:
    """A mapping may name some parameters in any order."""
    expr = 1 + X * (ld.parameter("a", initial=0.1) + ld.parameter("b", initial=0.2) * X)
    with ld.Likelihood([nll(expr)], QUICK) as likelihood:
        assert likelihood.default_parameters.tolist() == [0.1, 0.2]
        assert likelihood.vector().tolist() == [0.1, 0.2]
        assert likelihood.vector({"b": 7}).tolist() == [0.1, 7]
        assert likelihood.vector({"b": 7, "a": 3}).tolist() == [3, 7]
        assert likelihood.value() == likelihood.value([0.1, 0.2]) == likelihood.value({})
        assert likelihood.value({"b": 0.3}) == likelihood.value(np.array([0.1, 0.3]))
        assert likelihood.value((0.1, 0.3)) == likelihood.value({"a": 0.1, "b": 0.3})


@pytest.mark.parametrize("call", ["value", "value_and_gradient", "hessian", "fit"])
def test_unknown_names(call: str) -> None:
    """Near misses are shown."""
    with (
        ld.Likelihood([nll(line("amplitude", "phase"))], QUICK) as likelihood,
        pytest.raises(ParameterError, match=r"'amplitud'.*did you mean 'amplitude'"),
    ):
        getattr(likelihood, call)({"amplitud": 1})


@pytest.mark.parametrize("call", ["value", "value_and_gradient", "hessian", "fit"])
@pytest.mark.parametrize("given", [[], [1], [1, 2, 3]])
def test_wrong_lengths(call: str, given: list[float]) -> None:
    """The names are listed, so that one sees what is missing."""
    with (
        ld.Likelihood([nll(line("a", "b"))], QUICK) as likelihood,
        pytest.raises(ParameterError, match=r"a, b") as caught,
    ):
        getattr(likelihood, call)(given)
    assert caught.value.expected == 2


def test_a_matrix_is_no_vector() -> None:
    """Shapes are not flattened silently."""
    with (
        ld.Likelihood([nll(line("a", "b"))], QUICK) as likelihood,
        pytest.raises(ParameterError, match=r"shape \(1, 2\)"),
    ):
        likelihood.value([[1, 2]])


@pytest.mark.parametrize("given", ["ab", ["x", "y"], [1j, 0]])
def test_what_is_not_numbers(given: Any) -> None:
    """Text and complex numbers."""
    with (
        ld.Likelihood([nll(line("a", "b"))], QUICK) as likelihood,
        pytest.raises(ParameterError, match="numbers"),
    ):
        likelihood.value(given)


@pytest.mark.parametrize("call", ["value", "value_and_gradient"])
def test_nan_parameters_are_named(call: str) -> None:
    """Before any event is touched."""
    with ld.Likelihood([nll(line("a", "b"))], QUICK) as likelihood:
        with pytest.raises(ParameterError, match="parameters are NaN: b") as caught:
            getattr(likelihood, call)([1, float("nan")])
        assert caught.value.names == ["b"]
        assert likelihood.report().evaluations == 0


def test_nan_as_a_start() -> None:
    """The fit refuses it by name."""
    with (
        ld.Likelihood([nll(line("a", "b"))], QUICK) as likelihood,
        pytest.raises(ParameterError, match="'b' is nan") as caught,
    ):
        likelihood.fit({"b": float("nan")})
    assert caught.value.name == "b"


@pytest.mark.parametrize("name", ["alpa", "zzz", "f"])
def test_names_are_refused_in_the_same_words(name: str) -> None:
    """By a likelihood and by a fit: unknown, nearly right, fixed."""
    model = line("alpha", "b") + ld.parameter("f", fixed=1)
    with ld.Likelihood([nll(model)], QUICK) as likelihood:
        refusals = []
        for call in (likelihood.value, likelihood.fit):
            with pytest.raises(ParameterError, match=f"parameter '{name}'") as caught:
                call({name: 1.0})
            assert caught.value.name == name
            refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]


def test_infinite_parameters_have_no_value() -> None:
    """Not a mistake of the caller, but the model has no value there."""
    with (
        ld.Likelihood([nll(line("a"))], QUICK) as likelihood,
        pytest.raises(EvaluationError, match="intensity is inf"),
    ):
        likelihood.value([float("inf")])


def test_start_outside_its_bounds() -> None:
    """Both in the definition and in a fit; a plain evaluation may go anywhere."""
    with pytest.raises(ParameterError, match=r"'a'.*2.*outside its bounds \[0.0, 1.0\]"):
        ld.parameter("a", initial=2, bounds=(0, 1))
    with ld.Likelihood([nll(line("a", bounds=(0, 1)))], QUICK) as likelihood:
        with pytest.raises(ParameterError, match=r"'a' is 1.5, outside its bounds \[0, 1\]") as at:
            likelihood.fit([1.5])
        assert np.isfinite(likelihood.value([1.5]))
    assert (at.value.name, at.value.value) == ("a", 1.5)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"initial": 0.5}, {"initial": 0.6}, "initial: 0.5 and 0.6"),
        ({"initial": 0.5}, {"fixed": 0.5}, "fixed: False and True"),
        ({"bounds": (0, 1)}, {"bounds": (0, 2)}, r"bounds: \(0.0, 1.0\) and \(0.0, 2.0\)"),
    ],
)
def test_one_name_with_two_definitions(
    first: dict[str, Any], second: dict[str, Any], text: str
) -> None:
    """Refused within a model and between terms; the fields that differ are shown."""
    one, two = ld.parameter("a", **first), ld.parameter("a", **second)
    with pytest.raises(ParameterError, match=rf"'a' is defined twice.*{text}") as caught:
        ld.Model(1 + one * X + two * X**2)
    assert caught.value.name == "a"
    with pytest.raises(ParameterError, match=rf"'a' is defined twice.*{text}"):
        ld.Likelihood([nll(1 + one * X, "one"), nll(1 + two * X, "two")])


def test_term_names_are_unique() -> None:
    """Errors and plans could not tell them apart."""
    with pytest.raises(DataError, match="two terms are called 'nll'") as caught:
        ld.Likelihood([nll(line("a")), nll(line("b"))])
    assert caught.value.term == "nll"
    with pytest.raises(DataError, match="non-empty name"):
        nll(line("a"), "")


def test_terms_must_be_terms() -> None:
    """A bare term, nothing at all, or something else."""
    with pytest.raises(TypeError, match=r"a list of terms: ld.Likelihood\(\[term\]\)"):
        ld.Likelihood(nll(line("a")))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one term"):
        ld.Likelihood([])
    with pytest.raises(TypeError, match="not a likelihood term"):
        ld.Likelihood([line("a")])  # type: ignore[list-item]


def test_terms_need_models_and_data_sets() -> None:
    """Wrong kinds are named when the term is written down."""
    with pytest.raises(ld.ExpressionError, match="term 'nll': model must be") as model:
        ld.NLL("1 + x", data=EVENTS, accepted_mc=MC)  # type: ignore[arg-type]
    assert model.value.term == "nll"
    with pytest.raises(DataError, match="term 'nll': accepted_mc must be a data set") as data:
        ld.NLL(line("a"), data=EVENTS, accepted_mc="mc.parquet")  # type: ignore[arg-type]
    assert (data.value.term, data.value.role) == ("nll", "accepted_mc")


def test_nothing_to_fit() -> None:
    """A likelihood without free parameters."""
    with (
        ld.Likelihood([nll(1 + 0.5 * X)], QUICK) as likelihood,
        pytest.raises(ParameterError, match="no free parameter"),
    ):
        likelihood.fit()
