"""Fits: minimisation of -2 ln L, errors, and an honest result."""

from laddu_dask.fit.api import fit
from laddu_dask.fit.hessian import hessian
from laddu_dask.fit.objective import Objective, Parameter
from laddu_dask.fit.progress import PlainProgress, Progress, ProgressState, RichProgress, quiet
from laddu_dask.fit.result import FitResult

__all__ = [
    "FitResult",
    "Objective",
    "Parameter",
    "PlainProgress",
    "Progress",
    "ProgressState",
    "RichProgress",
    "fit",
    "hessian",
    "quiet",
]
