"""Pseudo-data: events drawn from a sample in proportion to an intensity."""

from __future__ import annotations

import numpy as np

from laddu_dask.data import Dataset
from laddu_dask.runtime import Execution, Model


def draw(
    sample: Dataset, model: Model, truth: dict[str, float], events: int, seed: int, run: Execution
) -> Dataset:
    """Draw events with replacement, each with probability proportional to the model.

    The sample then plays the accepted Monte Carlo of the fit: it is the population that the events
    come from, so the normalisation integral is exact and pulls are standard normal.
    """
    intensity = model.evaluate(sample, truth, run, real=True)
    generator = np.random.default_rng(seed)
    chosen = generator.choice(
        sample.n_events, size=events, p=intensity / intensity.sum(), replace=True
    )
    columns = sample.schema.columns
    values = np.concatenate([batch.values for batch in sample.batches(columns)], axis=1)
    return Dataset.from_arrays(scalars=dict(zip(columns, values[:, chosen], strict=True)))
