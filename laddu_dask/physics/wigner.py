"""Wigner rotation functions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from laddu_dask.expr import Expr, as_expr, cis
from laddu_dask.physics.checks import invalid, twice

#: Up to here Wigner's sum keeps 14 digits; beyond, its alternating terms eat them.
MAX_SUM_J = 10

#: The largest j against which the recurrence is tested.
MAX_J = 70


class WignerD:
    """The element ``D^j_{m' m}`` of a rotation matrix.

    ``D^j_{m'm}(alpha, beta, gamma) = exp(-i m' alpha) d^j_{m'm}(beta) exp(-i m gamma)``, in the
    convention of Rose and the PDG: ``d^{1/2}_{1/2,-1/2} = -sin(beta/2)``.

    Parameters
    ----------
    j
        Integer or half-integer (int, float or Fraction), 0 to 70.
    m_prime, m
        Projections, of the same kind as j and not larger.

    Raises
    ------
    ExpressionError
        A label that is not a half-integer, a projection outside ``[-j, j]`` or of the other kind,
        or ``j > 70``.
    """

    __slots__ = ("_two_j", "_two_m", "_two_m_prime")

    def __init__(self, j: Any, m_prime: Any, m: Any) -> None:
        self._two_j = twice(j, "j", "WignerD")
        self._two_m_prime = twice(m_prime, "m_prime", "WignerD")
        self._two_m = twice(m, "m", "WignerD")
        if not 0 <= self._two_j <= 2 * MAX_J:
            raise invalid(
                "WignerD",
                f"needs 0 <= j <= {MAX_J}, got j = {j}; beyond, no accuracy is promised",
            )
        for name, two_m in (("m_prime", self._two_m_prime), ("m", self._two_m)):
            if abs(two_m) > self._two_j:
                raise invalid(
                    "WignerD", f"needs |{name}| <= j, got j = {j}, {name} = {Fraction(two_m, 2)}"
                )
            if (self._two_j - two_m) % 2:
                raise invalid(
                    "WignerD",
                    f"j and {name} must both be whole or both half-integer, "
                    f"got j = {j}, {name} = {Fraction(two_m, 2)}",
                )

    def __repr__(self) -> str:
        labels = (self._two_j, self._two_m_prime, self._two_m)
        return f"WignerD({', '.join(str(Fraction(label, 2)) for label in labels)})"

    def d(self, beta: Expr | float) -> Expr:
        """``d^j_{m'm}(beta)`` for an angle in radians, a real expression.

        Up to j = 10 Wigner's sum over k of
        ``(-1)**(m'-m+k) sqrt((j+m')! (j-m')! (j+m)! (j-m)!)
        / ((j+m-k)! k! (m'-m+k)! (j-m'-k)!) c**(2j+m-m'-2k) s**(m'-m+2k)``
        with ``c = cos(beta/2)``, ``s = sin(beta/2)`` (E. P. Wigner, Group Theory (1959),
        eq. 15.27, in the sign convention above), whose terms different elements share. Above,
        a recurrence in j, which cannot cancel. Errors stay below 2e-14 for any angle and j.
        """
        half = as_expr(beta).real() / 2
        if self._two_j > 2 * MAX_SUM_J:
            return self._recurrence(half)
        return self._sum(half)

    def D(
        self,
        *,
        alpha: Expr | float,
        beta: Expr | float,
        gamma: Expr | float | None = None,
    ) -> Expr:
        """``D^j_{m'm}(alpha, beta, gamma)``, angles in radians; gamma is 0 when not given."""
        phase = as_expr(0.0)
        if self._two_m_prime:
            phase = (-self._two_m_prime / 2) * as_expr(alpha)
        if gamma is not None and self._two_m:
            last = (self._two_m / 2) * as_expr(gamma)
            phase = phase - last if self._two_m_prime else -last
        elif not self._two_m_prime:
            return self.d(beta)
        return self.d(beta) * cis(phase)

    def _sum(self, half: Expr) -> Expr:
        """Wigner's sum for half the angle."""
        cosine, sine = half.cos(), half.sin()
        terms = _terms(self._two_j, self._two_m_prime, self._two_m)
        # Every term holds the lowest powers of c and s; what remains is a form in their squares.
        low_c = min(power_c for _, power_c, _ in terms)
        low_s = min(power_s for _, _, power_s in terms)
        total: Expr | None = None
        for coefficient, power_c, power_s in terms:
            term = _product(coefficient, (cosine, power_c - low_c), (sine, power_s - low_s))
            total = term if total is None else total + term
        assert total is not None  # |m'|, |m| <= j leaves at least one term
        return _product(total, (cosine, low_c), (sine, low_s))

    def _recurrence(self, half: Expr) -> Expr:
        """The three-term recurrence in j, upwards from ``j = max(|m'|, |m|)``.

        ``j sqrt(((j+1)^2-m^2) ((j+1)^2-m'^2)) d^{j+1} = (2j+1) (j(j+1) cos(beta) - m m') d^j
        - (j+1) sqrt((j^2-m^2) (j^2-m'^2)) d^{j-1}`` (D. A. Varshalovich, A. N. Moskalev,
        V. K. Khersonskii, Quantum Theory of Angular Momentum, section 4.8.3). Upwards d is the
        solution that grows or oscillates, so errors of rounding stay as small as they are.
        """
        first = max(abs(self._two_m_prime), abs(self._two_m))
        cosine, sine = half.cos(), half.sin()
        # At the lowest j Wigner's sum has one term.
        ((start, power_c, power_s),) = _terms(first, self._two_m_prime, self._two_m)
        lower = as_expr(0.0)
        upper = _product(start, (cosine, power_c), (sine, power_s))
        x = (2 * half).cos()
        for two_j in range(first, self._two_j, 2):
            scale, shift, back = _step(Fraction(two_j, 2), self._two_m_prime, self._two_m)
            climbed = (scale * x - shift if shift else scale * x) * upper
            lower, upper = upper, climbed - back * lower if back else climbed
        return upper


def _step(j: Fraction, two_m_prime: int, two_m: int) -> tuple[float, float, float]:
    """Factors of ``d^{j+1} = (scale x - shift) d^j - back d^{j-1}``, each rounded once or twice."""
    m_prime, m = Fraction(two_m_prime, 2), Fraction(two_m, 2)
    above = ((j + 1) ** 2 - m**2) * ((j + 1) ** 2 - m_prime**2)
    scale2 = ((2 * j + 1) * (j + 1)) ** 2 / above
    if j == 0:
        return math.sqrt(scale2), 0.0, 0.0
    mixed = m * m_prime / (j * (j + 1))
    below = (j**2 - m**2) * (j**2 - m_prime**2)
    back2 = ((j + 1) / j) ** 2 * below / above
    return math.sqrt(scale2), math.sqrt(scale2) * float(mixed), math.sqrt(back2)


def _terms(two_j: int, two_m_prime: int, two_m: int) -> list[tuple[float, int, int]]:
    """Coefficient, power of cos(beta/2) and power of sin(beta/2) of each term of the sum."""
    plus, minus = (two_j + two_m) // 2, (two_j - two_m) // 2
    shift = (two_m_prime - two_m) // 2
    f = math.factorial
    norm = Fraction(f(plus + shift) * f(minus - shift), f(plus) * f(minus))
    terms = []
    for k in range(max(0, -shift), min(plus, minus - shift) + 1):
        count = math.comb(plus, k) * math.comb(minus, shift + k)
        sign = -1.0 if (shift + k) % 2 else 1.0
        power_s = shift + 2 * k
        terms.append((sign * math.sqrt(norm * count**2), two_j - power_s, power_s))
    return terms


def _product(first: Expr | float, *factors: tuple[Expr, int]) -> Expr:
    value = as_expr(first)
    for base, power in factors:
        if power:
            value = value * base**power
    return value
