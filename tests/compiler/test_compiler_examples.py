"""Worked examples with known numbers, through `Model` and both backends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.compiler import KernelOptions

X, Y = ld.scalar("x"), ld.scalar("y")


def p(name: str) -> ld.Expr:
    return ld.parameter(name)


@pytest.fixture(
    params=[
        ("interpreter", "auto"),
        ("interpreter", "forward"),
        ("cpu", "forward"),
        ("cpu", "reverse"),
    ],
    ids="-".join,
)
def execution(request: pytest.FixtureRequest) -> ld.Execution:
    """Both backends and every way to differentiate (AD-03, AD-04)."""
    backend, autodiff = request.param
    return ld.Execution(backend=backend, autodiff=autodiff)


def check(
    execution: ld.Execution,
    expr: ld.Expr,
    at: dict[str, float],
    value: complex,
    gradient: dict[str, complex],
    tolerance: float = 1e-12,
) -> None:
    """One event and one set of parameters; zero tolerance means equal numbers."""
    model = ld.Model(expr)
    one = ld.Dataset.from_arrays(scalars={"unused": np.zeros(1)})
    values, gradients = model.value_and_gradient(one, at, execution)
    assert values.shape == (1,)
    assert gradients.shape == (1, len(model.parameter_names))
    assert sorted(model.parameter_names) == sorted(gradient)
    assert abs(values[0] - value) <= tolerance
    for name, found in zip(model.parameter_names, gradients[0], strict=True):
        assert abs(found - gradient[name]) <= tolerance, name
    assert model.evaluate(one, at, execution)[0] == values[0]


def check_events(
    execution: ld.Execution,
    expr: ld.Expr,
    columns: dict[str, Sequence[float]],
    at: dict[str, float],
    values: Sequence[complex],
    gradient: dict[str, Sequence[complex]],
    tolerance: float = 1e-12,
) -> None:
    model = ld.Model(expr)
    events = ld.Dataset.from_arrays(scalars={k: np.array(v) for k, v in columns.items()})
    found, gradients = model.value_and_gradient(events, at, execution)
    np.testing.assert_allclose(found, values, rtol=0, atol=tolerance)
    for name, column in zip(model.parameter_names, gradients.T, strict=True):
        np.testing.assert_allclose(column, gradient[name], rtol=0, atol=tolerance)
    # Values alone come from another program; they are the same bits.
    np.testing.assert_array_equal(model.evaluate(events, at, execution), found)


def test_01_norm_of_a_sum(execution: ld.Execution) -> None:
    """AX-01, OP-01, OP-08: exact numbers."""
    expr = (2 * p("x") + ld.complex(p("re"), p("im"))).norm_sqr()
    gradient = {"x": 28, "re": 14, "im": 4}
    check(execution, expr, {"x": 3, "re": 1, "im": 2}, 53, gradient, 0)


def test_02_functions_of_two_parameters(execution: ld.Execution) -> None:
    """AX-02."""
    x, y = p("x"), p("y")
    expr = ld.complex(x.sin(), y.exp()).norm_sqr() + (x * y).cos()
    gradient = {"x": 0.70137315210568822, "y": 1.3726059696589477}
    check(execution, expr, {"x": 0.4, "y": -0.2}, 1.818768397664676, gradient)


def common(x: ld.Expr, y: ld.Expr) -> ld.Expr:
    z = ld.complex(x, y)
    return (
        x.sqrt()
        + x.log()
        + x**-2
        + x.sin()
        + x.cos()
        + x.exp()
        + z.imag()
        + z.norm_sqr()
        + ld.atan2(y, x)
    )


def test_03_all_functions(execution: ld.Execution) -> None:
    """AX-03, T-13."""
    x, y = p("x"), p("y")
    z = x + 1j * y
    expr = common(x, y) + z.conj() + z.real() + x * y
    gradient = {"x": 3.8186174454246467, "y": 2.2958904109589041 - 1j}
    check(execution, expr, {"x": 0.8, "y": -0.3}, 7.3046166981542897 + 0.3j, gradient)


def test_04_all_functions_at_zero(execution: ld.Execution) -> None:
    """AX-04: a factor of zero does not lose the derivative of the product."""
    x, y = p("x"), p("y")
    expr = common(x, y) + (x + 1j * y).conj().real() + y * x
    gradient = {"x": 2.7076585413150577, "y": 3.05}
    check(execution, expr, {"x": 0.8, "y": 0.0}, 7.3133873684248619, gradient)


def test_05_linear(execution: ld.Execution) -> None:
    """AX-05."""
    expr = (3 * p("x") + p("y")) / 2
    check(execution, expr, {"x": 2, "y": -0.5}, 2.75, {"x": 1.5, "y": 0.5}, 0)


def test_06_matrices(execution: ld.Execution) -> None:
    """AX-06, T-12, T-28: products are row-major and do not conjugate."""
    a, b, c, d, x, y = (p(name) for name in "abcdxy")
    left = ld.matrix([[a, b + 0.2j], [1.3, c]])
    product = left @ ld.matrix([[0.5 - 0.1j, d], [b, 0.8]])
    q = product @ ld.vector([x, y - 0.4j])
    expr = ld.dot(q, ld.vector([0.25 + 0.3j, c])) + product.at(1, 0) + q[1]
    at = {"a": 0.7, "b": -0.2, "c": 1.1, "d": 0.4, "x": -0.3, "y": 0.9}
    gradient = {
        "a": 0.0915 + 0.0305j,
        "b": 0.731 + 0.157j,
        "c": 2.569 - 1.193j,
        "d": 2.6985 - 0.973j,
        "x": 1.0335 - 0.1835j,
        "y": 2.922 + 0.076j,
    }
    check(execution, expr, at, 2.78015 - 1.17535j, gradient)
    assert ld.Model(expr).parameter_names == ("a", "b", "c", "d", "x", "y")


EIGHT = {"x": [0.25, 0.75, 1.25]}
EIGHT_AT = {"s": 0.4, "phi": -0.2}
EIGHT_PHI = [-0.099833416646828152, -0.89120736006143534, -0.86320936664887377]


def wave() -> ld.Expr:
    return ld.complex((X * p("s")).sin(), (X + p("phi")).cos()).norm_sqr()


def test_08_events(execution: ld.Execution) -> None:
    """AX-08, CP-08."""
    values = [1.1074687937183921, 1.1141302532579495, 0.97742579476600142]
    gradient = {
        "s": [0.2996673326987653, 1.1734818550462765, 2.3018387310098706],
        "phi": EIGHT_PHI,
    }
    check_events(execution, wave() + X * p("s"), EIGHT, EIGHT_AT, values, gradient)


def test_09_exponential(execution: ld.Execution) -> None:
    """AX-09: the derivative is the value itself."""
    x = p("x")
    check(execution, x.exp(), {"x": 2}, math.exp(2), {"x": math.exp(2)}, 0)
    check(execution, x.exp() + 1, {"x": 2}, 8.3890560989306502, {"x": math.exp(2)}, 1e-15)


def test_10_nested(execution: ld.Execution) -> None:
    """AX-10, in double precision."""
    scale, offset = p("scale"), p("offset")
    expr = (X.sin() * scale + offset).exp() + ld.complex(scale, X).norm_sqr()
    gradient = {"scale": [4.4758036681651336], "offset": [2.1650817921718729]}
    at = {"scale": 1.5, "offset": -0.25}
    check_events(execution, expr, {"x": [0.75]}, at, [4.9775817921718729], gradient)


def test_11_complex_division(execution: ld.Execution) -> None:
    """AX-11."""
    x, y = p("x"), p("y")
    z = ld.complex(x, y)
    expr = common(x, y) + z.conj().real() + z / (1.25 - 0.5j)
    gradient = {
        "x": 3.8563301071714737 + 0.27586206896551724j,
        "y": 1.0733182589033352 + 0.6896551724137931j,
    }
    value = 7.3217527888964401 - 0.020689655172413793j
    check(execution, expr, {"x": 0.8, "y": -0.35}, value, gradient)


def test_12_large_and_small(execution: ld.Execution) -> None:
    """AX-12, in double precision."""
    at = {"x": 16777216, "y": 1}
    check(execution, p("x") + p("y"), at, 16777217, {"x": 1, "y": 1}, 0)


def test_13_complex_denominator(execution: ld.Execution) -> None:
    """AX-13."""
    s = p("s")
    expr = ((X + s).sin() + (Y - 0.25).cos() + (X * Y).exp() + ld.atan2(Y, X + 1)) / (s - 0.5j)
    columns = {"x": [0.25, 0.75, 1.5], "y": [-0.5, 0.125, 0.5]}
    values = [
        1.1321386979775194 + 0.32346819942214839j,
        1.4582518426403632 + 0.41664338361153234j,
        1.6774181166416334 + 0.47926231904046669j,
    ]
    slopes = [
        -0.76913678059081778 - 0.4045923369814613j,
        -1.1307533162330576 - 0.56115430955889208j,
        -1.3390422574320245 - 0.65644768443227367j,
    ]
    check_events(execution, expr, columns, {"s": 1.75}, values, {"s": slopes}, 1e-10)


def test_15b_complex_root(execution: ld.Execution) -> None:
    """AX-15b, T-10: the imaginary part of a value has a derivative of its own."""
    expr = ld.complex(wave() + 0.5, X * p("s"))
    values = [1.5074687937183921 + 0.1j, 1.3141302532579495 + 0.3j, 0.97742579476600142 + 0.5j]
    gradient = {
        "s": [
            0.049667332698765304 + 0.25j,
            0.42348185504627652 + 0.75j,
            1.0518387310098706 + 1.25j,
        ],
        "phi": EIGHT_PHI,
    }
    check_events(execution, expr, EIGHT, EIGHT_AT, values, gradient)


def test_16_linear_in_the_parameter(execution: ld.Execution) -> None:
    """AX-16, RV-10."""
    expr = p("scale") * (X + Y.sin())
    columns = {"x": [0.5], "y": [0.25]}
    value = 1.25 * (0.5 + math.sin(0.25))
    slope = 0.74740395925452293
    gradient = {"scale": [slope]}
    check_events(execution, expr, columns, {"scale": 1.25}, [value], gradient, 1e-15)


def test_19_parts_without_influence(execution: ld.Execution) -> None:
    """AX-19, PA-06, without its solve, which is the number 7: they keep place and zero slope."""
    offset = ld.cparameter("offset", suffixes=("_re", "_im"))
    phases = ld.polar_complex(p("mag1"), p("phase1")) * ld.polar_complex(p("mag2"), p("phase2"))
    seven = ld.dot(ld.vector([4, 3]), ld.vector([1, 1]))
    expr = (
        (ld.parameter("mass", fixed=2.0) + 0) * 1
        + seven
        + offset.conj().real()
        + phases.real()
        + p("unused") * 0
    ).norm_sqr()
    at = {
        "offset_re": 1.5,
        "offset_im": -0.5,
        "mag1": 2,
        "phase1": 0.25,
        "mag2": 3,
        "phase2": -0.5,
        "unused": 9,
    }
    gradient = {
        "offset_re": 32.626949060527737,
        "offset_im": 0,
        "mag1": 94.83796868179733,
        "phase1": 48.432218255821197,
        "mag2": 63.225312454531554,
        "phase2": 48.432218255821197,
        "unused": 0,
    }
    check(execution, expr, at, 266.12945124956795, gradient)
    _, found = ld.Model(expr).value_and_gradient(None, at)
    names = ld.Model(expr).parameter_names
    assert found[names.index("unused")] == 0
    assert found[names.index("offset_im")] == 0


def test_20_real_node_under_a_complex_factor(execution: ld.Execution) -> None:
    """AX-20, T-03, GI-03: the adjoint of a real value is real before its own pull-back."""
    expr = ld.complex(p("a"), p("b")).norm_sqr() * (1 + 2j)
    gradient = {"a": 1 + 2j, "b": -0.6 - 1.2j}
    check(execution, expr, {"a": 0.5, "b": -0.3}, 0.34 + 0.68j, gradient, 1e-15)


def test_21_parameter_only_and_mixed_parts(execution: ld.Execution) -> None:
    """AX-21."""
    expr = ld.complex(p("re"), 1) * X
    check_events(execution, expr, {"x": [3.0]}, {"re": 2}, [6 + 3j], {"re": [3]}, 0)


def test_22_four_momentum_components(execution: ld.Execution) -> None:
    """AX-22, EX-15."""
    e, px, py = (ld.p4_component("ks1", c) for c in ("e", "px", "py"))
    events = ld.Dataset.from_arrays(p4s={"ks1": np.array([[10.0, 3.0, 4.0, 5.0]])})
    values = ld.Model(e + px + ld.atan2(py, px)).evaluate(events, execution=execution)
    assert values[0] == 13.927295218001612


def test_23_other_parameters_on_the_same_events(execution: ld.Execution) -> None:
    """AX-23, CP-06."""
    events = ld.Dataset.from_arrays(scalars={"x": np.array([0.5, 1.0])})
    model = ld.Model(X.real().sin() * p("scale"))
    for scale, expected in (
        (2, [0.958851077208406, 1.682941969615793]),
        (3, [1.438276615812609, 2.5244129544236895]),
    ):
        values = model.evaluate(events, [scale], execution)
        np.testing.assert_allclose(values, expected, rtol=2e-16, atol=0)


def test_28_weights_do_not_enter_values(execution: ld.Execution) -> None:
    """AX-28, its selected event."""
    events = ld.Dataset.from_arrays(scalars={"x": np.array([1.0])}, weights=np.array([3.0]))
    assert ld.Model(X * p("scale")).evaluate(events, [2], execution)[0] == 2


def test_57_zero_factors(execution: ld.Execution) -> None:
    """AX-57, T-14, FW-07."""
    expr = p("x") * p("y") * p("z")
    check(execution, expr, {"x": 0, "y": 2, "z": 3}, 0, {"x": 6, "y": 0, "z": 0}, 0)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (ld.dot(ld.vector([1j]), ld.vector([1j])), -1),
        (ld.matrix([[1, 2], [3, 4]]).at(0, 1), 2),
        (ld.complex(ld.complex(1, 5), 2), 1 + 2j),
        (ld.complex(-4, 0.0).sqrt(), 2j),
        (ld.complex(-4, -0.0).sqrt(), -2j),
        (ld.Expr(complex(-4, -0.0)).sqrt(), -2j),
        (ld.Expr(0) ** 0, 1),
        (ld.Expr(0.8) ** -2, 1.5625),
    ],
)
def test_61_62_numbers(execution: ld.Execution, expr: ld.Expr, expected: complex) -> None:
    """AX-61, AX-62, T-12, T-19."""
    assert abs(ld.Model(expr).evaluate() - expected) <= 1e-15
    one = ld.Dataset.from_arrays(scalars={"unused": np.zeros(1)})
    assert abs(ld.Model(expr).evaluate(one, execution=execution)[0] - expected) <= 1e-15


def test_64_deep_chain() -> None:
    """AX-64: ten thousand operations compile, run and differentiate without recursion."""
    expr = p("p") * 1.0
    for _ in range(5_000):
        expr = (expr + X) * 0.999
    events = ld.Dataset.from_arrays(scalars={"x": np.array([0.0, 1.0])})
    values, gradient = ld.Model(expr).value_and_gradient(
        events, [2.0], ld.Execution(backend="interpreter")
    )
    decay = 0.999**5000
    np.testing.assert_allclose(gradient[:, 0].real, decay, rtol=1e-12)
    series = 0.999 * (1 - decay) / 0.001
    np.testing.assert_allclose(values.real, [2 * decay, 2 * decay + series], rtol=1e-10)


def test_64_shared_uses_are_computed_once() -> None:
    """AX-64."""
    total = X.sin() * p("p")
    for _ in range(999):
        total = total + X.sin() * p("p")
    program = ld.Model(total).compiled("linear", KernelOptions("reverse")).programs
    assert [op for op, _, _ in program.prepare.instructions] == ["input", "sin"]
    products = [op for op, _, _ in program.value.instructions if op == "mul"]
    assert len(products) == 2


def test_65_columns() -> None:
    """AX-65, with the component of the four-momentum as the column that it is."""
    expr = X + Y * X + ld.p4_component("p4", "e")
    assert ld.Model(expr).columns == ("x", "y", "p4_e")


def test_negative_roots_and_logarithms_are_complex(execution: ld.Execution) -> None:
    """Below zero the principal value, whatever is constant, fixed, free or read from events."""
    columns = {"x": [-4.0, 4.0]}
    a = {"a": -4.0}
    for value in (X, -1 * p("a") * X / -4 * -1, ld.parameter("one", fixed=1.0) * X):
        root = [2j, 2]
        events = ld.Dataset.from_arrays(scalars={k: np.array(v) for k, v in columns.items()})
        model = ld.Model(value.sqrt() + 0 * X)
        at = a if "a" in model.parameter_names else None
        np.testing.assert_allclose(model.evaluate(events, at, execution), root, atol=1e-15)
        logs = [math.log(4) + 1j * math.pi, math.log(4)]
        found = ld.Model(value.log()).evaluate(events, at, execution)
        np.testing.assert_allclose(found, logs, atol=1e-15)
    one = ld.Dataset.from_arrays(scalars={"x": np.ones(1)})
    for held in (ld.parameter("held", fixed=-4.0), ld.Expr(-4), p("a")):
        model = ld.Model((held.sqrt() + held.log()) * X)
        at = a if "a" in model.parameter_names else None
        expected = 2j + math.log(4) + 1j * math.pi
        np.testing.assert_allclose(model.evaluate(one, at, execution), [expected], atol=1e-15)


def test_flatte_below_threshold(execution: ld.Execution) -> None:
    """An event-only root turns imaginary below a threshold and stays in the line shape."""
    s = ld.scalar("s")
    g1, g2 = p("g1"), p("g2")

    def phase_space(mass: float) -> ld.Expr:
        return (1 - 4 * mass**2 / s).sqrt()

    expr = 1 / (0.98**2 - s - 1j * (g1 * phase_space(0.13957) + g2 * phase_space(0.49368)))
    columns = {"s": [0.8, 0.95]}
    s_ = np.array(columns["s"], dtype=complex)
    r1, r2 = (np.sqrt(1 - 4 * m**2 / s_) for m in (0.13957, 0.49368))
    values = 1 / (0.98**2 - s_ - 1j * (0.2 * r1 + 0.3 * r2))
    gradient = {"g1": 1j * r1 * values**2, "g2": 1j * r2 * values**2}
    check_events(execution, expr, columns, {"g1": 0.2, "g2": 0.3}, values, gradient)
