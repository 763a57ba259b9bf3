r"""Coupled channels in the K-matrix formalism, pole-cleared.

K and the production vector P have poles at the bare masses m_a; the amplitude has not. Everything
here is therefore multiplied by ``Pi = prod_b (m_b**2 - s)``,

    K_ij = sum_a g_ia g_ja B_ia B_ja prod_{b != a} (m_b**2 - s) + c_ij Pi,
    P_i  = sum_a beta_a g_ia B_ia prod_{b != a} (m_b**2 - s) + d_i Pi,
    (Pi 1 + K C) F = P,

in which every element is finite. C is the Chew-Mandelstam function of each channel, or ``-i rho``
where its real part is left out.

The system itself is singular at a bare pole, where K has rank one and F is a limit: at a distance
``d = |m_a**2 - s| / m_a**2`` rounding costs a relative error of order ``1e-16 / d``. Within
``d < 2**-27`` the event is therefore taken to lie ``2**-26 m_a**2`` lower, in K, P and F alike,
so that F is finite everywhere and its error stays of order 1e-7 at most.

Source: I. J. R. Aitchison, Nucl. Phys. A 189, 417 (1972); S. U. Chung et al., Ann. Phys. 4, 404
(1995); Particle Data Group, Review of Particle Physics, section "Resonances".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laddu_dask.expr import Expr, as_expr, build, matrix, solve, vector, where
from laddu_dask.physics.barriers import MAX_L, Q_R, barrier_squared, reference_momentum
from laddu_dask.physics.breakup import q_squared
from laddu_dask.physics.checks import orbital

#: Relative distance from a bare pole below which the pole is moved away.
NEAR_POLE = 2.0**-27

Vector = Expr | Iterable[Any]
Matrix = Expr | Iterable[Iterable[Any]]


def blatt_weisskopf_barriers(
    s: Expr | complex,
    *,
    channel_mass_1: Vector,
    channel_mass_2: Vector,
    pole_masses: Vector,
    l: Any,
    q_r: Expr | float | None = None,
) -> Expr:
    """Barrier factors ``B_l(q_i(s)) / B_l(q_i(m_a**2))`` of channel i (row) and pole a (column).

    Parameters
    ----------
    s
        Squared mass, GeV squared.
    channel_mass_1, channel_mass_2
        Daughter masses of each channel, GeV.
    pole_masses
        Bare masses, GeV. One at the threshold of a channel makes its factors infinite for l > 0.
    l
        Orbital angular momentum of all channels, 0 to 8.
    q_r
        Reference momentum, GeV; None is 0.1973.

    Raises
    ------
    ExpressionError
        Numbers of masses that differ, l outside 0 to 8.
    """
    first, second, poles = map(_vector, (channel_mass_1, channel_mass_2, pole_masses))
    l = orbital(l, "blatt_weisskopf_barriers", MAX_L)
    reference = reference_momentum(Q_R if q_r is None else q_r)
    _expect("blatt_weisskopf_barriers", "channel masses", second, first.shape)
    if l == 0:
        return matrix([[1.0] * len(poles)] * len(first))

    def factor(invariant: Expr | complex, channel: int) -> Expr:
        z = q_squared(invariant, mass1=first[channel], mass2=second[channel]) / reference**2
        return barrier_squared(z, l=l).sqrt()

    return matrix(
        [factor(s, channel) / factor(mass**2, channel) for mass in poles]
        for channel in range(len(first))
    )


def k_matrix(
    s: Expr | complex,
    *,
    pole_masses: Vector,
    couplings: Matrix,
    barriers: Matrix,
    background: Matrix | None = None,
) -> Expr:
    """Pole-cleared K-matrix, channel by channel; symmetric if the background is.

    Parameters
    ----------
    s
        Squared mass, GeV squared.
    pole_masses
        Bare masses, GeV.
    couplings, barriers
        Channel-by-pole matrices.
    background
        Channel-by-channel matrix of constants, None for zero.

    Raises
    ------
    ExpressionError
        Shapes that do not fit.
    """
    poles = _vector(pole_masses)
    coupling, barrier = _strengths("k_matrix", poles, couplings, barriers)
    cleared, product = _cleared(s, poles)
    channels = range(coupling.shape[0])
    smooth = None if background is None else _matrix(background)
    if smooth is not None:
        _expect("k_matrix", "background", smooth, (len(channels), len(channels)))

    def entry(i: int, j: int) -> Expr:
        total = _sum(
            coupling.at(i, a)
            * coupling.at(j, a)
            * (barrier.at(i, a) * barrier.at(j, a))
            * cleared[a]
            for a in range(len(poles))
        )
        return total if smooth is None else total + smooth.at(i, j) * product

    return matrix([entry(i, j) for j in channels] for i in channels)


def p_vector(
    s: Expr | complex,
    *,
    pole_masses: Vector,
    production: Vector,
    couplings: Matrix,
    barriers: Matrix,
    background: Vector | None = None,
) -> Expr:
    """Pole-cleared production vector.

    Parameters
    ----------
    s
        Squared mass, GeV squared.
    pole_masses
        Bare masses, GeV.
    production
        Complex strength beta of each pole.
    couplings, barriers
        Channel-by-pole matrices.
    background
        Constant for each channel, None for zero.

    Raises
    ------
    ExpressionError
        Shapes that do not fit.
    """
    poles, beta = _vector(pole_masses), _vector(production)
    coupling, barrier = _strengths("p_vector", poles, couplings, barriers)
    _expect("p_vector", "production", beta, poles.shape)
    cleared, product = _cleared(s, poles)
    channels = range(coupling.shape[0])
    smooth = None if background is None else _vector(background)
    if smooth is not None:
        _expect("p_vector", "background", smooth, (len(channels),))

    def entry(i: int) -> Expr:
        total = _sum(
            beta[a] * coupling.at(i, a) * (barrier.at(i, a) * cleared[a]) for a in range(len(poles))
        )
        return total if smooth is None else total + smooth[i] * product

    return vector(entry(i) for i in channels)


def f_vector(
    s: Expr | complex, *, pole_masses: Vector, k: Matrix, p: Vector, phase_space: Vector | Matrix
) -> Expr:
    """Amplitude of each channel, F in ``(Pi 1 + K C) F = P``.

    Parameters
    ----------
    s
        Squared mass, GeV squared.
    pole_masses
        Bare masses, GeV.
    k, p
        Pole-cleared K-matrix and production vector of the same poles.
    phase_space
        C: a matrix, or a vector that is its diagonal. `chew_mandelstam` of each channel, or
        ``-1j * rho``.

    Raises
    ------
    ExpressionError
        Shapes that do not fit, or more than 8 channels.
    """
    rows, source = _matrix(k), _vector(p)
    n = len(source)
    _expect("f_vector", "k", rows, (n, n))
    loop = _any_shape(phase_space)
    _expect("f_vector", "phase_space", loop, (n, n) if len(loop.shape) == 2 else (n,))
    _, product = _cleared(s, _vector(pole_masses))
    if len(loop.shape) == 1:
        mixing = matrix([rows.at(i, j) * loop[j] for j in range(n)] for i in range(n))
    else:
        mixing = rows @ loop
    identity = matrix([1.0 if i == j else 0.0 for j in range(n)] for i in range(n))
    return solve(product * identity + mixing, source)


def _cleared(s: Expr | complex, poles: Expr) -> tuple[list[Expr], Expr]:
    """``prod_{b != a} (m_b**2 - s)`` for each a, and the product over all poles."""
    off_poles = _off_poles(as_expr(s), poles)
    gaps = [mass**2 - off_poles for mass in poles]
    one = as_expr(1.0)
    others = [
        _product([gap for b, gap in enumerate(gaps) if b != a], one) for a in range(len(gaps))
    ]
    return others, _product(gaps, one)


def _off_poles(s: Expr, poles: Expr) -> Expr:
    """``s``, kept off every ``m**2`` by an amount whose derivative does not matter."""
    moved = s
    for mass in poles:
        near = NEAR_POLE * mass.norm_sqr()
        moved = where((mass**2 - s).norm_sqr() < near**2, s - 2 * near, moved)
    return moved


def _product(factors: list[Expr], one: Expr) -> Expr:
    total = factors[0] if factors else one
    for factor in factors[1:]:
        total = total * factor
    return total


def _sum(terms: Iterable[Expr]) -> Expr:
    first, *others = terms
    for term in others:
        first = first + term
    return first


def _strengths(
    operation: str, poles: Expr, couplings: Matrix, barriers: Matrix
) -> tuple[Expr, Expr]:
    coupling, barrier = _matrix(couplings), _matrix(barriers)
    if coupling.shape[1] != len(poles):
        raise build.fail(operation, "couplings need one column per pole", coupling.node, poles.node)
    _expect(operation, "barriers", barrier, coupling.shape)
    return coupling, barrier


def _vector(value: Vector) -> Expr:
    expr = value if isinstance(value, Expr) else vector(value)
    if len(expr.shape) != 1:
        raise build.fail("K-matrix", "expected a vector", expr.node)
    return expr


def _matrix(value: Matrix) -> Expr:
    expr = value if isinstance(value, Expr) else matrix(value)
    if len(expr.shape) != 2:
        raise build.fail("K-matrix", "expected a matrix", expr.node)
    return expr


def _any_shape(value: Vector | Matrix) -> Expr:
    """A vector or a matrix, whichever the nesting says."""
    if isinstance(value, Expr):
        return value
    rows = list(value)
    if rows and not isinstance(rows[0], Expr) and isinstance(rows[0], Iterable):
        return matrix(rows)
    return vector(rows)


def _expect(operation: str, what: str, value: Expr, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise build.fail(operation, f"{what} must be a {build.describe_shape(shape)}", value.node)
