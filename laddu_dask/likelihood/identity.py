"""What a likelihood is, in words that can be compared with those of another day."""

from __future__ import annotations

from collections.abc import Sequence

from laddu_dask.data import Dataset
from laddu_dask.likelihood.terms import UnbinnedTerm
from laddu_dask.runtime import Execution

#: Options on which the last bits depend.
_OPTIONS = ("backend_name", "precision", "autodiff", "normalization")


def identity_of(terms: Sequence[UnbinnedTerm], execution: Execution) -> dict[str, str]:
    """Kinds, models and data sets of the terms, and the options that change bits.

    A data set is known by the number of its events, not by where it lies: files may be copied, and
    a copy has another time. Equal events are recognised by the value of the likelihood.
    """
    found = {"the terms": ", ".join(f"{type(t).__name__} {t.name!r}" for t in terms)}
    for term in terms:
        found[f"the model of {term.name!r}"] = term.model.digest
        for role, dataset in (("data", term.data), ("accepted_mc", term.accepted_mc)):
            found[f"the {role} of {term.name!r}"] = _describe(dataset)
    for option in _OPTIONS:
        found[f"the option {option.removesuffix('_name')}"] = str(getattr(execution, option))
    return found


def _describe(dataset: Dataset) -> str:
    weight = dataset.schema.weight
    return f"{dataset.n_events} events " + ("without weights" if weight is None else "with weights")
