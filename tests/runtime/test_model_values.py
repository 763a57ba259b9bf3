"""Model values event by event: recorded cases, any cut, any backend, here and on a cluster."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.base import tokenize
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, ExecutionError, ParameterError

SAMPLES = Path(__file__).resolve().parents[1] / "data"
CASES: dict[str, Any] = json.loads((SAMPLES / "cases.json").read_text())
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])
CUTS = pytest.mark.parametrize(("partitions", "chunk"), [(1, None), (3, 7), (17, 1000), (3, 5000)])


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def where(request: pytest.FixtureRequest) -> Client | None:
    """None for this process, else a client of the cluster."""
    return None if request.param == "here" else request.getfixturevalue("client")


# kinematics --------------------------------------------------------------------------------


@cache
def first_events() -> ld.Dataset:
    """The first thousand accepted events, which are the first row group."""
    whole = ld.read_parquet(SAMPLES / "mc.parquet")
    first = whole.fragments[0]
    assert first.rows == CASES["kinematics"]["events"]
    return ld.Dataset(whole.schema, (first,), "the first row group")


@cache
def kinematics() -> dict[str, ld.Model]:
    """The quantities of the case, as models of event columns."""
    beam, target, recoil, k1, k2 = (
        ld.Vec4.event(name) for name in ("beam", "target", "recoil", "ks1", "ks2")
    )
    pair = k1 + k2
    helicity = ld.helicity_angles(beam, target, pair, k1)
    gottfried_jackson = ld.gottfried_jackson_angles(beam, target, pair, k1)
    variables = ld.mandelstam(beam, target, pair, recoil)
    quantities = {
        "costheta_helicity": helicity.costheta,
        "phi_helicity": helicity.phi,
        "mass_X": pair.m(),
        "t": variables.t,
        "s": variables.s,
        "u": variables.u,
        "costheta_gj": gottfried_jackson.costheta,
        "phi_gj": gottfried_jackson.phi,
    }
    return {name: ld.Model(expr) for name, expr in quantities.items()}


@CUTS
@BACKENDS
def test_kinematics(where: Client | None, backend: Any, partitions: int, chunk: int | None) -> None:
    """First event and sum of each quantity; with the sums of the Gottfried-Jackson angles."""
    case = CASES["kinematics"]
    first = [*case["first"], *case["gottfried_jackson_first"]]
    sums = [*case["sums"], *case["gottfried_jackson_sums"]]
    execution = ld.Execution(
        backend=backend, partitions=partitions, chunk_events=chunk, cluster=where
    )
    for name, one, total in zip(kinematics(), first, sums, strict=True):
        values = kinematics()[name].evaluate(first_events(), execution=execution, real=True)
        assert values.shape == (case["events"],)
        assert values.dtype == np.float64
        assert values[0] == pytest.approx(one, rel=1e-12), name
        # An angle is good to rounding of its largest value, whatever the angles sum up to.
        assert values.sum() == pytest.approx(total, rel=1e-12, abs=1e-12 * np.abs(values).sum())
    assert first_events().sum_weights() == pytest.approx(case["sum_weights"], rel=1e-14)


@BACKENDS
def test_kinematics_to_the_last_bit(where: Client | None, backend: Any) -> None:
    """DK-15: not one value depends on how the events were cut."""
    for model in kinematics().values():
        values = [
            model.evaluate(first_events(), execution=execution).tobytes()
            for execution in (
                ld.Execution(backend=backend),
                ld.Execution(backend=backend, partitions=17, chunk_events=9, cluster=where),
            )
        ]
        assert values[0] == values[1]


# a scalar expression -----------------------------------------------------------------------


def expression(a: ld.Expr, b: ld.Expr) -> ld.Expr:
    z = ld.complex(a, b)
    return (
        ((a * b).exp() + 1j * a.sin() * b.cos()).norm_sqr() / (a**2 + 2)
        + ld.atan2(a, b)
        + z.sqrt().real()
        + z.log().imag()
    )


def holomorphic(a: ld.Expr, b: ld.Expr) -> ld.Expr:
    z = ld.complex(a, b)
    return z**3 / (z + 1)


BUILT = pytest.mark.parametrize(
    ("build", "suffix"), [(expression, ""), (holomorphic, "2")], ids=["real", "complex"]
)


def recorded(suffix: str) -> tuple[complex, np.ndarray]:
    case = CASES["scalar_expression"]
    value, gradient = case["value" + suffix], np.array(case["gradient" + suffix])
    if suffix:
        return complex(*value), gradient[:, 0] + 1j * gradient[:, 1]
    return complex(value), gradient.astype(complex)


@BUILT
def test_scalar_expression_without_events(build: Any, suffix: str) -> None:
    """Of parameters alone: a number and its derivatives, no data set needed."""
    at = CASES["scalar_expression"]["parameters"]
    value, gradient = recorded(suffix)
    model = ld.Model(build(ld.parameter("a"), ld.parameter("b")))
    found, slopes = model.value_and_gradient(parameters=at)
    assert found == pytest.approx(value, rel=1e-12)
    assert slopes.shape == (2,)
    # The gradient of the first expression is recorded to eight digits.
    assert slopes == pytest.approx(gradient, rel=1e-12 if suffix else 3e-8)
    assert model.evaluate(parameters=[at["a"], at["b"]]) == found
    if not suffix:
        assert model.evaluate(parameters=at, real=True) == pytest.approx(value.real, rel=1e-12)


@BUILT
@BACKENDS
@CUTS
def test_scalar_expression_over_events(
    where: Client | None, build: Any, suffix: str, backend: Any, partitions: int, chunk: int | None
) -> None:
    """Of columns a and b times the parameters p = q = 1: dI/dp = a dI/da."""
    at = CASES["scalar_expression"]["parameters"]
    value, gradient = recorded(suffix)
    n = 53
    events = ld.Dataset.from_arrays(scalars={name: np.full(n, at[name]) for name in "ab"})
    model = ld.Model(
        build(
            ld.parameter("p", initial=1) * ld.scalar("a"),
            ld.parameter("q", initial=1) * ld.scalar("b"),
        )
    )
    execution = ld.Execution(
        backend=backend, partitions=partitions, chunk_events=chunk, cluster=where
    )
    values, slopes = model.value_and_gradient(events, execution=execution)
    assert values.shape == (n,)
    assert slopes.shape == (n, 2)
    assert values == pytest.approx(np.full(n, value), rel=1e-12)
    expected = gradient * [at["a"], at["b"]]
    assert slopes == pytest.approx(np.tile(expected, (n, 1)), rel=1e-12 if suffix else 3e-8)
    assert model.evaluate(events, execution=execution).tobytes() == values.tobytes()
    # Equal events have equal bits, wherever they lie in a chunk or partition.
    assert len({number.tobytes() for number in values}) == 1
    assert len({row.tobytes() for row in slopes}) == 1


# interface ---------------------------------------------------------------------------------


def test_a_model_of_events_needs_events() -> None:
    """XE-12, T-24: refused before any kernel runs, naming the columns."""
    model = ld.Model(ld.parameter("a") * ld.scalar("x") + ld.scalar("y"))
    for call in (model.evaluate, model.value_and_gradient):
        with pytest.raises(DataError, match="reads the event columns x, y; pass a data set") as at:
            call()
        assert at.value.columns == ["x", "y"]


def test_a_missing_column() -> None:
    """Named with its near miss."""
    with pytest.raises(DataError, match=r"the model needs.*\n.*'mass' \(did you mean 'Mass'"):
        ld.Model(ld.scalar("mass")).evaluate(ld.Dataset.from_arrays(scalars={"Mass": [1.0]}))


def test_parameters_of_a_model() -> None:
    """Vectors in order, mappings by name, start values otherwise; nothing else."""
    model = ld.Model(ld.parameter("a", initial=2) + 10 * ld.parameter("b", initial=3))
    assert model.parameter_names == ("a", "b")
    assert model.evaluate() == 32
    assert model.evaluate(parameters={"b": 4}) == 42
    assert model.evaluate(parameters=[1, 1]) == 11
    with pytest.raises(ParameterError, match="expected 2 parameters"):
        model.evaluate(parameters=[1])
    with pytest.raises(ParameterError, match="'c'"):
        model.evaluate(parameters={"c": 1})


def test_real_numbers_on_request() -> None:
    """T-33: a value with a true imaginary part is refused, naming the event."""
    events = ld.Dataset.from_arrays(scalars={"x": [1.0, 4.0, -9.0]})
    root = ld.Model(ld.scalar("x").sqrt())
    assert root.evaluate(events) == pytest.approx([1, 2, 3j], abs=1e-15)
    with pytest.raises(EvaluationError, match="of event 2 is complex") as caught:
        root.evaluate(events, real=True)
    assert (caught.value.event, caught.value.value) == (2, 3j)


def test_no_events() -> None:
    """T-43: empty arrays, not errors."""
    model = ld.Model(ld.parameter("a", initial=1) * ld.scalar("x"))
    nothing = ld.Dataset.from_arrays(scalars={"x": []})
    for execution in (ld.Execution(), ld.Execution(backend="interpreter", partitions=4)):
        values, gradient = model.value_and_gradient(nothing, execution=execution)
        assert values.shape == (0,)
        assert gradient.shape == (0, 1)


def test_projections_keep_the_tagged_parts() -> None:
    """A model of the named wave alone; unknown tags are refused."""
    a, b = ld.parameter("a", initial=2), ld.parameter("b", initial=3)
    model = ld.Model((a.tagged("s") + 1j * b.tagged("d")).norm_sqr())
    assert model.evaluate() == 13
    assert model.project("s").evaluate() == 4
    assert model.project(["s", "d"]).evaluate() == 13
    with pytest.raises(ld.ExpressionError, match="'f'"):
        model.project("f")


def test_a_vector_is_no_model() -> None:
    with pytest.raises(ld.ExpressionError, match=r"must be a scalar, got shape \(2,\)"):
        ld.Model(ld.vector([ld.parameter("a"), 1.0]))


def test_pickled_models_are_the_same_models() -> None:
    """Digest, Dask token and values survive; definitions of parameters are part of both."""

    def line(**options: Any) -> ld.Model:
        return ld.Model(ld.parameter("a", **options) * ld.scalar("x"))

    model = line(initial=2)
    revived = pickle.loads(pickle.dumps(model))
    assert revived.digest == model.digest == line(initial=2).digest
    assert tokenize(revived) == tokenize(model)
    assert revived.parameters == model.parameters
    events = ld.Dataset.from_arrays(scalars={"x": [1.0, 2.0]})
    assert revived.evaluate(events).tolist() == model.evaluate(events).tolist() == [2, 4]
    assert line(initial=3).digest != model.digest
    assert line(fixed=2).digest != model.digest


def test_explanations_are_text() -> None:
    """What was compiled can be looked at."""
    model = ld.Model((ld.parameter("a") + ld.scalar("x")).norm_sqr())
    assert "parameters: a" in model.explain()
    assert "event columns: x" in model.explain()
    assert "return v" in model.kernel_source()


def test_options_that_a_model_refuses(where: Client | None) -> None:
    """The cluster is only asked when there is one."""
    model = ld.Model(ld.scalar("x"))
    events = ld.Dataset.from_arrays(scalars={"x": [1.0]})
    with pytest.raises(ExecutionError, match="is a int"):
        model.evaluate(events, execution=ld.Execution(cluster=3))
    assert model.evaluate(events, execution=ld.Execution(cluster=where)).tolist() == [1]
