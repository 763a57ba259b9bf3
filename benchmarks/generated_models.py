"""Models of any size, the same in every run: what the time of compilation is measured on.

Each shape takes the number of its parts. Sizes differ between shapes; count the operations of the
compiled program to compare them.
"""

from __future__ import annotations

from collections.abc import Callable

import models

import laddu_dask as ld


def breit_wigners(n: int) -> ld.Expr:
    """Coherent sum of relativistic Breit-Wigners with free masses, widths and couplings."""
    s = ld.scalar("s")
    terms = [
        models.coupling(ld, f"c{i}", real=i == 0)
        * ld.relativistic_breit_wigner(
            s,
            mass=ld.parameter(f"m{i}", initial=1.1 + 0.7 * i / n),
            width=ld.parameter(f"g{i}", initial=0.1 + 0.05 * (i % 5)),
            mass1=0.497,
            mass2=0.497,
            l=0,
        )
        for i in range(n)
    ]
    return models.coherent_sum(terms).norm_sqr()


def waves(n: int) -> ld.Expr:
    """Coherent sum of waves that are read from the data: separable, all of it linear."""
    s = ld.scalar("s")
    terms = [
        models.coupling(ld, f"c{i}", real=i == 0) * ld.complex((s * i).cos(), (s / (i + 1)).sin())
        for i in range(n)
    ]
    return models.coherent_sum(terms).norm_sqr()


def shared_amplitudes(n: int) -> ld.Expr:
    """Long sum of products of few free resonances: each resonance has `n` / 8 users."""
    s, t = ld.scalar("s"), ld.scalar("t")
    shapes = [
        1 / ld.complex(ld.parameter(f"m{k}", initial=1.0 + k / 8) - s, 0.1 * (k + 1))
        for k in range(8)
    ]
    terms = [models.coupling(ld, f"c{i}") * shapes[i % 8] * (t * i).cos() for i in range(n)]
    return models.coherent_sum(terms).norm_sqr()


def incoherent(n: int) -> ld.Expr:
    """Sum of squares of few shared amplitudes with couplings of their own."""
    s = ld.scalar("s")
    shapes = [1 / ld.complex(ld.parameter(f"m{k}", initial=1.0 + k / 3) - s, 0.2) for k in range(3)]
    return models.coherent_sum(
        [
            models.coherent_sum(
                [models.coupling(ld, f"c{i}_{k}") * shape for k, shape in enumerate(shapes)]
            ).norm_sqr()
            for i in range(n)
        ]
    )


def product(n: int) -> ld.Expr:
    """Product of positive factors close to one, each with a parameter of its own."""
    s = ld.scalar("s")
    total = ld.Expr(1.0)
    for i in range(n):
        a = ld.parameter(f"a{i}", initial=1.0 / (i + 2))
        total = total * (1 + (a * (s * (i + 1)).sin() / n) ** 2)
    return total


def chain(n: int) -> ld.Expr:
    """Nested operations, each on the one before, with one parameter."""
    s, a = ld.scalar("s"), ld.parameter("a", initial=0.3)
    total = a * s + 1
    for i in range(n):
        total = [(total * total + a).sqrt(), total.sin() + 1.5, 0.9 * total + s / 8][i % 3].real()
    return total.norm_sqr() + 0.1


def k_matrices(n: int) -> ld.Expr:
    """Coherent sum of two-channel K-matrices with free poles and couplings."""
    s = ld.scalar("s")
    terms = []
    for i in range(n):
        pole = ld.parameter(f"m{i}", initial=1.0 + i / n)
        g = [ld.parameter(f"g{i}_{c}", initial=0.3 + 0.2 * c) for c in range(2)]
        k = [[g[a] * g[b] / (pole**2 - s) for b in range(2)] for a in range(2)]
        one = [[1.0 if a == b else 0.0 for b in range(2)] for a in range(2)]
        system = ld.matrix(
            [[one[a][b] - 1j * (0.5 + 0.2 * b) * k[a][b] for b in range(2)] for a in range(2)]
        )
        production = [models.coupling(ld, f"b{i}_{a}") * k[a][0] for a in range(2)]
        terms.append(ld.solve(system, ld.vector(production))[0])
    return models.coherent_sum(terms).norm_sqr()


SHAPES: dict[str, Callable[[int], ld.Expr]] = {
    "breit_wigners": breit_wigners,
    "waves": waves,
    "shared_amplitudes": shared_amplitudes,
    "incoherent": incoherent,
    "product": product,
    "chain": chain,
    "k_matrices": k_matrices,
}
