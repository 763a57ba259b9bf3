"""What the compiler makes of six models, beside what a specialist reached by hand.

Run as a script for the table; `test_lowering_table` asserts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import models as benchmark_models

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, CompiledModel, compile_model
from laddu_dask.compiler.describe import operations
from laddu_dask.expr import Expr


class Counts(NamedTuple):
    """What an event costs.

    Attributes
    ----------
    bytes
        Cached columns and the weight.
    forward, backward
        Operations that depend on parameters and events, or compute a column again: of the value,
        and of the gradient behind it.
    frontier
        Values of parameters whose adjoints are summed over events.
    """

    bytes: int
    forward: int
    backward: int
    frontier: int


def incoherent(statistics: int = 3) -> Expr:
    """E: incoherent sums of four waves; a channel of the Flatté shape is closed below 1.24."""
    s = ld.scalar("s")
    shapes = [
        ld.relativistic_breit_wigner(
            s,
            mass=ld.parameter(f"m{l}", initial=1.2 + 0.3 * l),
            width=ld.parameter(f"g{l}", initial=0.15),
            mass1=0.3,
            mass2=0.3,
            l=l,
        )
        for l in range(2)
    ]
    widths = [
        ld.parameter(f"h{i}", initial=0.3) * ld.rho(s, mass1=mass, mass2=mass)
        for i, mass in enumerate((0.14, 0.62))
    ]
    flatte = 1.0 / (1.3**2 - s - 1j * (widths[0] + widths[1]))
    angular = [
        ld.spherical_harmonic(l, m, costheta=ld.scalar("ct"), phi=ld.scalar("phi"))
        for l, m in ((0, 0), (1, 0), (1, 1), (2, 1))
    ]
    waves = [flatte * angular[0], *(shapes[k % 2] * angular[k] for k in range(1, 4))]
    sums = [
        benchmark_models.coherent_sum(
            [
                benchmark_models.coupling(ld, f"c{h}{k}", real=k == 0) * wave
                for k, wave in enumerate(waves)
            ]
        ).norm_sqr()
        for h in range(statistics)
    ]
    return ld.parameter("scale", initial=1.0) * benchmark_models.coherent_sum(sums)


MODELS: dict[str, Callable[[], Expr]] = {
    **{name: lambda make=make: make(ld) for name, make in benchmark_models.MODELS.items()},
    "E": incoherent,
}

#: What a specialist, or the prototype of these passes, reached.
REACHED = {
    "A": Counts(328, 155, 122, 38),
    "B": Counts(80, 112, 169, 23),
    "C-fixed": Counts(88, 37, 31, 9),
    "C-free": Counts(48, 401, 273, 86),
    "D": Counts(40, 29, 46, 6),
    "E": Counts(80, 131, 188, 24),
}


def counts(model: CompiledModel) -> Counts:
    """Counts of a model compiled for the sum of w I; the product with w is not counted."""
    programs = model.programs
    value = operations(programs.value) - 1
    return Counts(
        8 * (programs.n_cached + 1),
        value,
        operations(programs.gradient) - 1 - value,
        model.invariants.n_adjoints,
    )


def main() -> None:
    """Print the table."""
    print(f"{'model':8} {'':9} {'B/event':>8} {'forward':>8} {'backward':>9} {'frontier':>9}")
    for name, make in MODELS.items():
        model = compile_model(make(), "linear", Assumptions())
        for label, row in (("reached", REACHED[name]), ("now", counts(model))):
            print(f"{name:8} {label:9} {row[0]:8} {row[1]:8} {row[2]:9} {row[3]:9}")


if __name__ == "__main__":
    main()
