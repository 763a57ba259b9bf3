"""Histograms of data and fit, and figures of them."""

from laddu_dask.plot.figure import Panel, draw_projections
from laddu_dask.plot.projection import Histogram, pulls, weighted_histogram

__all__ = ["Histogram", "Panel", "draw_projections", "pulls", "weighted_histogram"]
