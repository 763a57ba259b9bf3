"""Options that cannot be honoured are refused by name when they are written down."""

from __future__ import annotations

import os
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask import Execution, MemoryPlan
from laddu_dask.errors import ExecutionError, ExpressionError, MemoryBudgetError


def test_what_this_version_does_not_serve() -> None:
    """Never replaced in silence by something else."""
    with pytest.raises(ExecutionError, match="backend='gpu' is not available") as caught:
        Execution(backend="gpu")
    assert caught.value.option == "backend"
    assert "choose backend='cpu'" in str(caught.value)


@pytest.mark.parametrize("option", ["backend", "precision", "autodiff", "normalization", "storage"])
@pytest.mark.parametrize("value", ["fast", "", None, 3, "CPU", ["cpu"]])
def test_words_that_do_not_exist(option: str, value: Any) -> None:
    """The words that do are listed."""
    with pytest.raises(ExecutionError, match=f"^{option}=.* is not one of '") as caught:
        Execution(**{option: value})
    assert caught.value.option == option


@pytest.mark.parametrize("option", ["threads", "chunk_events", "partitions"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, float("nan")])
def test_numbers_that_cannot_be_counts(option: str, value: Any) -> None:
    with pytest.raises(ExecutionError, match=f"{option} must be a positive integer") as caught:
        Execution(**{option: value})
    assert caught.value.option == option


@pytest.mark.parametrize("option", ["threads", "chunk_events", "partitions"])
def test_counts_of_any_integer_type(option: str) -> None:
    """NumPy's too; what is kept is Python's."""
    kept = getattr(Execution(**{option: np.int64(2)}), option)
    assert kept == 2
    assert type(kept) is int


@pytest.mark.parametrize(
    ("cluster", "what"),
    [
        ("nonsense", "'nonsense' is neither an address nor a scheduler file"),
        ("", "'' is neither"),
        ("head-node:", "'head-node:' is neither"),
        ("tcp://", "'tcp://' is neither"),
        ("scheduler.yaml", "'scheduler.yaml' is neither"),
        (4, "4 is a int"),
        (b"tcp://head-node:8786", "is a bytes"),
        (["tcp://head-node:8786"], "is a list"),
    ],
)
def test_what_is_not_a_cluster(cluster: Any, what: str) -> None:
    """Refused when it is written down, with the value and the forms that there are."""
    with pytest.raises(ExecutionError) as caught:
        Execution(cluster=cluster)
    text = str(caught.value)
    assert text.startswith("cluster=")
    assert what in text
    for form in ("distributed Client", '"tcp://host:8786"', "scheduler file", "cluster object"):
        assert form in text
    assert caught.value.option == "cluster"


@pytest.mark.parametrize(
    "cluster",
    ["tcp://10.0.0.1:8786", "tls://head-node:8786", "head-node:8786", "[::1]:8786", "s.json"],
)
def test_what_looks_like_a_cluster(cluster: str) -> None:
    """Whether anybody answers there is asked when something is evaluated."""
    execution = Execution(cluster=cluster)
    assert execution.cluster == cluster
    assert pickle.loads(pickle.dumps(execution)).cluster == cluster


@pytest.mark.parametrize("address", [None, "<Not Connected>"])
def test_a_cluster_without_an_address_cannot_be_pickled(address: str | None) -> None:
    """The error names the cluster and the cure."""
    execution = Execution(cluster=SimpleNamespace(scheduler_address=address, get_client=print))
    with pytest.raises(ExecutionError, match="a SimpleNamespace works in its own") as caught:
        pickle.dumps(execution)
    assert 'Execution(cluster="tcp://host:8786")' in str(caught.value)
    assert caught.value.option == "cluster"


def test_misspelt_options() -> None:
    """Python's own error names the option."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'chunk_event'"):
        Execution(chunk_event=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("memory", ["lots", "12 parsecs", -1, 0, "0%", "101%", True])
def test_malformed_budgets(memory: Any) -> None:
    with pytest.raises(MemoryBudgetError, match="is not a memory budget") as caught:
        Execution(memory=memory)
    assert caught.value.requested == memory


def test_defaults() -> None:
    """Compiled kernels, the threads this process may use, memory as a plan."""
    usual = Execution()
    assert usual.backend_name == "cpu"
    assert usual.local_threads == len(os.sched_getaffinity(0))
    assert usual.memory == MemoryPlan()
    assert Execution(backend="interpreter").backend_name == "interpreter"
    assert Execution(threads=3).local_threads == 3
    assert Execution(memory="2 GiB").memory == MemoryPlan(host="2 GiB")
    assert Execution(memory="2 GiB") == Execution(memory=MemoryPlan(host=2**31))


def test_immutable() -> None:
    """One object can serve several likelihoods."""
    with pytest.raises(AttributeError):
        Execution().threads = 3  # type: ignore[misc]


def test_what_is_no_execution_is_refused() -> None:
    """Also what is false, which must not pass for the default."""
    model = ld.Model(ld.parameter("a", initial=1.0) + 1)
    data = ld.Dataset.from_arrays(weights=np.ones(3))
    term = ld.NLL(model, data=data, accepted_mc=data)
    wrong: Any
    for wrong in ("cpu", {}, 0):
        with pytest.raises(ExecutionError, match="execution must be an Execution or None"):
            model.evaluate(data, None, wrong)
        with pytest.raises(ExecutionError, match="execution must be an Execution or None"):
            ld.Likelihood([term], execution=wrong)


def test_only_known_transforms_have_a_source() -> None:
    wrong: Any = "bad"
    with pytest.raises(ExpressionError, match="unknown transform 'bad'"):
        ld.Model(ld.parameter("a", initial=1.0) + 1).kernel_source(wrong)
