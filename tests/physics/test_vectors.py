"""Four-vectors: order (E, px, py, pz), metric (+, -, -, -), active boosts."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import evaluate

from laddu_dask import Model, from_arrow
from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, parameter, scalar
from laddu_dask.physics import Vec3, Vec4, to_rest_frame

K = Vec4(5.0, 1.0, 2.0, 3.0)
W = Vec4(2.0, 0.5, -0.5, 1.0)


def number(expr: Expr, **columns: Any) -> complex:
    (value,) = evaluate(expr, {name: np.array([c]) for name, c in columns.items()})
    return complex(value)


def numbers(vector: Vec3 | Vec4) -> np.ndarray:
    return evaluate(vector.as_expr())[:, 0].real


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (K.m2(), 11.0),
        (K.mag2(), 11.0),
        (K.m(), 3.3166247903554),
        (K.mass(), 3.3166247903554),
        (K.mag(), 3.3166247903554),
        (K.gamma(), 1.507556722888818),
        (K.beta().x, 0.2),
        (K.beta().y, 0.4),
        (K.beta().z, 0.6),
        (K.e(), 5.0),
        (K.px(), 1.0),
        (K.py(), 2.0),
        (K.pz(), 3.0),
        (K.momentum().mag(), 3.7416573867739413),
        (K.vec3().mag2(), 14.0),
        (K.momentum().costheta(), 0.8017837257372732),
        (K.momentum().phi(), 1.1071487177940904),
        (K.dot(W), 7.5),
        (K @ W, 7.5),
        (Vec3(1.0, 2.0, 3.0).with_mass(0.5).e(), 3.774917217635375),
        (Vec3(1.0, 2.0, 3.0).with_energy(9.0).m(), 8.18535277187245),
    ],
)
def test_quoted_numbers(expr: Expr, expected: float) -> None:
    assert number(expr) == pytest.approx(expected, rel=1e-13)


def test_spacelike_mass_is_on_the_positive_imaginary_axis() -> None:
    spacelike = Vec4(1.0, 0.0, 0.0, 2.0)
    assert number(spacelike.m2()) == -3
    assert number(spacelike.m()) == pytest.approx(1.7320508075688772j)


def test_arithmetic() -> None:
    v, w = Vec3(1.0, 2.0, 3.0), Vec3(4.0, -5.0, 6.0)
    np.testing.assert_array_equal(numbers(v + w), [5, -3, 9])
    np.testing.assert_array_equal(numbers(v - w), [-3, 7, -3])
    np.testing.assert_array_equal(numbers(-v), [-1, -2, -3])
    np.testing.assert_array_equal(numbers(2 * v), [2, 4, 6])
    np.testing.assert_array_equal(numbers(v * parameter("two", fixed=2.0)), [2, 4, 6])
    np.testing.assert_array_equal(numbers(v / 2), [0.5, 1, 1.5])
    np.testing.assert_array_equal(numbers(v.cross(w)), [27, 6, -13])
    assert number(v @ w) == 12
    np.testing.assert_allclose(numbers(v.unit()), np.array([1, 2, 3]) / np.sqrt(14), rtol=1e-15)
    np.testing.assert_array_equal(numbers(K + W), [7, 1.5, 1.5, 4])
    np.testing.assert_array_equal(numbers(K - W), [3, 0.5, 2.5, 2])
    np.testing.assert_array_equal(numbers(-K), [-5, -1, -2, -3])
    np.testing.assert_array_equal(numbers(0.5 * K), [2.5, 0.5, 1, 1.5])
    np.testing.assert_array_equal(numbers(K / 2), [2.5, 0.5, 1, 1.5])


def test_sum_starts_from_zero() -> None:
    np.testing.assert_array_equal(numbers(sum([K, W, W])), [9, 2, 1, 5])  # type: ignore[arg-type]
    axes = [Vec3.x_axis(), Vec3.y_axis(), Vec3.z_axis(), Vec3.zero()]
    np.testing.assert_array_equal(numbers(sum(axes)), [1, 1, 1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: K + W.momentum(),
        lambda: K + 1,
        lambda: 1 + K,
        lambda: K * W,
        lambda: K.momentum() * W.momentum(),
        lambda: K.momentum() - 1,
        lambda: K @ 2,
        lambda: K * W.momentum(),
        lambda: K.momentum() * W,
        lambda: W.momentum() == K,
        lambda: K.momentum() != W,
        lambda: hash(K),
        lambda: Vec4("e", 0.0, 0.0, 0.0),  # type: ignore[arg-type]
    ],
)
def test_meaningless_operations_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrong()


def test_event_columns() -> None:
    columns = {"ks1_e": 5.0, "ks1_px": 1.0, "ks1_py": 2.0, "ks1_pz": 3.0}
    assert number(Vec4.event("ks1").m2(), **columns) == 11
    assert number(Vec3.event("ks1").mag2(), **columns) == 14
    for vector, size in ((Vec4.event("ks1"), 4), (Vec3.event("ks1"), 3)):
        assert vector.as_expr().shape == (size,)
        assert vector.as_expr().is_real


def test_lengths_and_angles_are_real_by_type() -> None:
    p = Vec4.event("k")
    three = p.momentum()
    for expr in (p.m2(), three.mag(), three.costheta(), three.phi(), three.with_mass(0.5).e()):
        assert expr.is_real
    assert not p.m().is_real
    moved = p.boost(-Vec4.event("x").beta())
    assert moved.e().is_real
    assert moved.pz().is_real


def test_boost_is_active() -> None:
    at_rest = Vec4(1.0, 0.0, 0.0, 0.0)
    np.testing.assert_allclose(
        numbers(at_rest.boost(Vec3(0.0, 0.0, 0.6))), [1.25, 0, 0, 0.75], rtol=1e-15
    )
    np.testing.assert_array_equal(numbers(K.boost(Vec3.zero())), numbers(K))


def test_rest_frame() -> None:
    expected = [3.3166247903554, 0, 0, 0]
    np.testing.assert_allclose(numbers(K.boost(-K.beta())), expected, rtol=1e-14, atol=2e-15)
    np.testing.assert_allclose(numbers(to_rest_frame(K, K)), expected, rtol=1e-14, atol=2e-15)
    np.testing.assert_allclose(
        numbers(to_rest_frame(W, K)), numbers(W.boost(-K.beta())), rtol=1e-13
    )


@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_no_boost_at_or_above_the_speed_of_light(speed: float) -> None:
    """D8: a degenerate frame is never a plausible number."""
    boosted = evaluate(K.boost(Vec3(0.0, 0.0, scalar("speed"))).as_expr(), {"speed": [speed]})
    assert not np.isfinite(boosted[0]).any()
    assert not np.isfinite(boosted[3]).any()


@pytest.mark.parametrize("parent", [Vec4(2.0, 0.0, 0.0, 2.0), Vec4(1.0, 0.0, 0.0, 2.0)])
def test_massless_and_spacelike_parents_have_no_rest_frame(parent: Vec4) -> None:
    """D8: a degenerate frame is never a plausible number."""
    assert not np.isfinite(evaluate(to_rest_frame(K, parent).as_expr())[[0, 3]]).any()


def test_null_vector_has_no_direction() -> None:
    """D8: 0/0 is NaN."""
    assert np.isnan(numbers(Vec3.zero().unit())).all()
    assert np.isnan(number(Vec3.zero().costheta()).real)


def test_azimuth_of_vectors_without_one() -> None:
    """D8: NaN for the null vector; along z what atan2 says of the zeros."""
    assert np.isnan(number(Vec3.zero().phi()).real)
    assert np.isnan(number(Vec3(-0.0, 0.0, -0.0).phi()).real)
    assert number(Vec3(0.0, 0.0, 2.0).phi()) == 0
    assert number(Vec3(-0.0, 0.0, 2.0).phi()).real == np.pi
    assert number(Vec3(1e-200, 1e-200, 0.0).phi()).real == pytest.approx(np.pi / 4, rel=1e-15)
    assert np.isnan(number(Vec3(np.nan, 0.0, 0.0).phi()).real)


def test_azimuth_in_a_compiled_kernel() -> None:
    columns = {"k_px": [0.0, 0.0, -1.0], "k_py": [0.0, 0.0, 1.0], "k_pz": [0.0, 1.0, 2.0]}
    azimuth = Model(Vec3.event("k").phi())
    values = azimuth.evaluate(from_arrow(pa.table(columns)), real=True)
    np.testing.assert_allclose(values, [np.nan, 0.0, 0.75 * np.pi], rtol=1e-15)


def test_masses_of_null_massless_and_backward_vectors() -> None:
    """D8: what has no velocity or no Lorentz factor is not finite."""
    null, light = Vec3.zero().with_energy(0.0), Vec4(5.0, 3.0, 0.0, 4.0)
    assert number(null.m()) == 0
    assert np.isnan(number(null.beta().x).real)
    assert number(light.m()) == 0
    assert not np.isfinite(number(light.gamma()))
    assert number(Vec4(1.0, 0.0, 0.0, 2.0).gamma()) == pytest.approx(-1j / np.sqrt(3))
    # The mass does not see the sign of the energy, as its square does not.
    assert number((-K).m()) == number(K.m())


def test_equality_is_a_condition_on_events() -> None:
    x = scalar("x")
    columns = {"x": np.array([1.0, 2.0, np.nan])}
    moving, still = Vec3(x, 2.0, 3.0), Vec3(1.0, 2.0, 3.0)
    assert evaluate(moving == still, columns).tolist() == [True, False, False]
    assert evaluate(moving != still, columns).tolist() == [False, True, True]
    assert evaluate(Vec4(x, 0.0, 0.0, 0.0) == Vec4(2.0, 0.0, 0.0, 0.0), columns).tolist() == [
        False,
        True,
        False,
    ]
    with pytest.raises(ExpressionError, match="truth value"):
        bool(moving == still)
    assert (K == 5.0) is False


coordinate = st.floats(-3.0, 3.0)
velocities = st.tuples(coordinate, coordinate, coordinate).map(
    lambda v: Vec3(*(c / (1.0 + np.hypot(np.hypot(*v[:2]), v[2])) for c in v))
)
momenta = st.tuples(st.floats(0.05, 4.0), coordinate, coordinate, coordinate).map(
    lambda p: Vec3(*p[1:]).with_mass(p[0])
)


@settings(max_examples=30, deadline=None)
@given(momenta, momenta, velocities)
def test_boosts_keep_products_and_have_an_inverse(p: Vec4, k: Vec4, beta: Vec3) -> None:
    moved, other = p.boost(beta), k.boost(beta)
    scale = abs(number(moved.e() * other.e()))
    assert number(moved.dot(other)).real == pytest.approx(number(p.dot(k)).real, abs=1e-13 * scale)
    np.testing.assert_allclose(
        numbers(moved.boost(-beta)), numbers(p), atol=1e-12 * float(abs(number(moved.e())))
    )
    np.testing.assert_allclose(
        numbers((p + k).boost(beta)), numbers(moved + other), rtol=1e-12, atol=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(momenta, momenta)
def test_rest_frames_keep_products_and_stop_the_parent(p: Vec4, k: Vec4) -> None:
    parent = p + k
    p_rest, k_rest = to_rest_frame(p, parent), to_rest_frame(k, parent)
    scale = float(abs(number(parent.e()))) ** 2
    np.testing.assert_allclose(numbers((p_rest + k_rest).momentum()), 0, atol=1e-13 * scale)
    assert number(p_rest.dot(k_rest)).real == pytest.approx(
        number(p.dot(k)).real, abs=1e-13 * scale
    )
    assert number((p_rest + k_rest).e()).real == pytest.approx(number(parent.m()).real, rel=1e-12)


def test_components_are_scalars() -> None:
    with pytest.raises(ExpressionError, match="Vec3: components must be scalars"):
        Vec3(K.as_expr(), 0.0, 0.0)
    with pytest.raises(ExpressionError, match="Vec4: components must be scalars"):
        Vec4(K.as_expr(), 0.0, 0.0, 0.0)


def test_pickle() -> None:
    copy = pickle.loads(pickle.dumps(Vec4.event("ks1")))
    assert copy.m2().node is Vec4.event("ks1").m2().node
