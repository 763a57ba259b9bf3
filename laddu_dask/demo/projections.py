"""Projections of the demonstration's fit on mass and angles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from laddu_dask.data import Dataset
from laddu_dask.demo.model import WAVES, Quantities
from laddu_dask.expr import Expr
from laddu_dask.plot import Panel
from laddu_dask.plot.projection import weighted_histogram
from laddu_dask.runtime import Execution, Model

Array = npt.NDArray[np.float64]
BINS = 40


def panels(
    model: Model,
    quantities: Quantities,
    data: Dataset,
    mc: Dataset,
    values: dict[str, float],
    run: Execution,
) -> list[Panel]:
    """One panel per quantity: data, fit, and each wave alone.

    The fit is the accepted Monte Carlo weighted by the intensity and scaled to the number of data
    events. A wave alone is scaled alike, so the waves differ from the total by their interference.
    """
    total = mc.weights() * model.evaluate(mc, values, run, real=True)
    scale = data.sum_weights() / total.sum()
    parts: dict[str, Array] = {}
    for wave in WAVES:
        projected = model.project(wave)
        known = {name: values[name] for name in projected.parameter_names}
        parts[wave] = scale * mc.weights() * projected.evaluate(mc, known, run, real=True)
    described: list[tuple[str, str, Expr, tuple[float, float], str | None]] = [
        ("Mass", r"$m(K_S K_S)$", quantities.mass, (1.0, 2.0), "GeV"),
        ("Polar angle", r"$\cos\theta_{\mathrm{hel}}$", quantities.costheta, (-1.0, 1.0), None),
        ("Azimuth", r"$\phi_{\mathrm{hel}}$", quantities.phi, (-np.pi, np.pi), "rad"),
        ("Polarisation", r"$\Phi$", quantities.polarization_angle, (-np.pi, np.pi), "rad"),
    ]
    result = []
    for title, label, expression, (low, high), unit in described:
        edges = np.linspace(low, high, BINS + 1)
        quantity = Model(expression)
        at_mc = quantity.evaluate(mc, None, run, real=True)
        counts = weighted_histogram(
            quantity.evaluate(data, None, run, real=True), data.weights(), edges
        )
        result.append(
            Panel(
                title,
                label,
                edges,
                counts.counts,
                counts.errors,
                weighted_histogram(at_mc, scale * total, edges).counts,
                {
                    wave: weighted_histogram(at_mc, weights, edges).counts
                    for wave, weights in parts.items()
                },
                unit,
            )
        )
    return result
