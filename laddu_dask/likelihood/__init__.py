"""Likelihood terms and their sum: objectives of -2 ln L with exact, order-free sums."""

from laddu_dask.likelihood.likelihood import Likelihood
from laddu_dask.likelihood.terms import NLL, ExtendedNLL

__all__ = ["NLL", "ExtendedNLL", "Likelihood"]
