"""Minimax coefficients and constant splits of the elementary functions.

Each set comes from a Remez exchange in 60-digit arithmetic on the stated weight: the leading
coefficient is rounded to a double first and the others are refitted around it. Splits are exact
leading parts of a constant followed by the rounded rest, the leading part short enough for its
product with the reduction's integer to be exact.
"""

from __future__ import annotations

from fractions import Fraction


def _h(*digits: str) -> tuple[float, ...]:
    return tuple(float.fromhex(d) for d in digits)


#: ``exp r = 1 + r + r**2/2 + r**3 EXP(r)`` for |r| <= ln(2)/2, relative error 2**-60.0.
EXP = _h(
    "0x1.5555555555556p-3", "0x1.5555555555581p-5", "0x1.11111111102d3p-7",
    "0x1.6c16c16beb7dep-10", "0x1.a01a01ac747afp-13", "0x1.a01a030180811p-16",
    "0x1.71ddfd8e4459ep-19", "0x1.27e0e168e1ce0p-22", "0x1.af5b034ae61a1p-26",
    "0x1.271e8994c9d63p-29",
)  # fmt: skip

#: ``log((1 + s)/(1 - s)) = 2 s + s z LOG(z)``, z = s**2, relative error 2**-59.5.
LOG = _h(
    "0x1.5555555555593p-1", "0x1.999999997f9ffp-2", "0x1.2492494229b19p-2",
    "0x1.c71c51d85e232p-3", "0x1.7466498f22e7ep-3", "0x1.39a0990b40ebfp-3",
    "0x1.2f115a2fbed07p-3",
)  # fmt: skip

#: ``sin r = r + r z SIN(z)``, z = r**2, |r| <= pi/4, relative error 2**-58.0.
SIN = _h(
    "-0x1.5555555555549p-3", "0x1.111111110f89cp-7", "-0x1.a01a019c1412bp-13",
    "0x1.71de3578e4967p-19", "-0x1.ae5e669d04cbcp-26", "0x1.5d92ff14eac49p-33",
)  # fmt: skip

#: ``cos r = 1 - z/2 + z**2 COS(z)``, relative error 2**-63.9.
COS = _h(
    "0x1.555555555554bp-5", "-0x1.6c16c16c1500dp-10", "0x1.a01a019c8dd44p-16",
    "-0x1.27e4f7f051df6p-22", "0x1.1ee9dacc90c5cp-29", "-0x1.8fa5eced5811fp-37",
)  # fmt: skip

#: ``atan t = t + t z ATAN(z)``, z = t**2, |t| <= tan(pi/8), relative error 2**-59.5.
ATAN = _h(
    "-0x1.555555555553dp-2", "0x1.9999999995888p-3", "-0x1.24924922ae508p-3",
    "0x1.c71c70e66d096p-4", "-0x1.745cf8e5d507cp-4", "0x1.3b1119a773021p-4",
    "-0x1.10ebbd041cedep-4", "0x1.df0f7a02c7529p-5", "-0x1.9cd329ea1e1f3p-5",
    "0x1.37d5b6da5c590p-5", "-0x1.2568526e8d599p-6",
)  # fmt: skip

#: ln 2, the first part of 41 bits.
LN2 = _h("0x1.62e42fefa3000p-1", "0x1.3de6af278ece6p-42")
#: pi/2, the first two parts of 36 bits each.
HALF_PI_3 = _h("0x1.921fb54440000p+0", "0x1.68c234c4c0000p-39", "0x1.98a2e03707345p-77")
#: pi, pi/2, pi/4 and 2 pi as double-doubles.
PI = _h("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53")
HALF_PI = _h("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")
QUARTER_PI = _h("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55")
TWO_PI = _h("0x1.921fb54442d18p+2", "0x1.1a62633145c07p-52")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
#: tan(pi/8)
TAN_EIGHTH_PI = 0.41421356237309503

#: First and last binary exponent of arguments that the table of turns serves.
TURNS_FIRST, TURNS_LAST = 16, 1023


def _turns() -> tuple[float, ...]:
    """Rows of four doubles: 2**(E-52) / (2 pi) modulo 1 in [-1/2, 1/2], E = 16 .. 1023.

    1/(2 pi) comes from Machin's formula in integer arithmetic with 1400 bits.
    """
    precision = 1400

    def arccot(n: int) -> int:
        term = (1 << (precision + 20)) // n
        total, k, sign = 0, 1, 1
        while term:
            total += sign * (term // k)
            term //= n * n
            k, sign = k + 2, -sign
        return total >> 20

    pi = 4 * (4 * arccot(5) - arccot(239))
    inverse = (1 << (2 * precision)) // (2 * pi)
    one = 1 << precision
    table: list[float] = []
    for exponent in range(TURNS_FIRST, TURNS_LAST + 1):
        remainder = ((inverse << exponent) >> 52) % one
        turn = Fraction(remainder - one if 2 * remainder > one else remainder, one)
        for _ in range(4):
            part = float(turn)
            table.append(part)
            turn -= Fraction(part)
    return tuple(table)


TURNS = _turns()
