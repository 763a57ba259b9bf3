"""The objective and every gradient component, to the last bit, however the work is cut.

One reference per backend; everything else must give its bits (DK-15, AX-66).
"""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from two_wave_case import as_arrays, as_files, as_groups, asimov, bits, sample, two_waves

import laddu_dask as ld

CHUNKS = (None, 1, 7, 1000, 5000)
PARTITIONS = (1, 3, 17)
STORAGES = ("resident", "spilled", "streaming")
CUTS = list(product(STORAGES, PARTITIONS, CHUNKS))
# The interpreter fills up a block of 1024 events for each chunk: small ones get a sample of their
# own below.
INTERPRETED = [cut for cut in CUTS if cut[2] not in (1, 7)]


@cache
def reference(backend: Any) -> tuple[str, ...]:
    """One partition, one thread, in memory, chunks as the planner likes."""
    with two_waves(
        ld.Execution(backend=backend, threads=1, partitions=1, storage="resident")
    ) as likelihood:
        return bits(likelihood)


@pytest.mark.parametrize(("storage", "partitions", "chunk"), CUTS)
def test_partitions_storage_and_chunks_compiled(storage: Any, partitions: int, chunk: Any) -> None:
    """DK-15, T-04 with the compiled kernels, two threads."""
    execution = ld.Execution(
        backend="cpu", storage=storage, partitions=partitions, chunk_events=chunk, threads=2
    )
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference("cpu")


@pytest.mark.parametrize(("storage", "partitions", "chunk"), INTERPRETED)
def test_partitions_storage_and_chunks_interpreted(
    storage: Any, partitions: int, chunk: Any
) -> None:
    """DK-15 with the interpreter, two threads."""
    execution = ld.Execution(
        backend="interpreter",
        storage=storage,
        partitions=partitions,
        chunk_events=chunk,
        threads=2,
    )
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference("interpreter")


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("storage", STORAGES)
def test_small_chunks_interpreted(storage: Any, chunk: int) -> None:
    """DK-15 with blocks that hold an event and 1023 copies of it, on the 600 data events."""
    data = sample("data")

    def likelihood(**options: Any) -> ld.Likelihood:
        execution = ld.Execution(backend="interpreter", storage=storage, **options)
        return two_waves(execution, accepted_mc=data)

    with likelihood() as whole, likelihood(chunk_events=chunk, partitions=3) as single:
        assert bits(single) == bits(whole)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("backend", "storage", "partitions", "chunk"),
    [
        *product(["cpu"], STORAGES, PARTITIONS, [None, 7, 1000, 5000]),
        *product(["cpu"], STORAGES, [3], [1]),
        *product(["interpreter"], STORAGES, PARTITIONS, [None, 1000]),
    ],
)
def test_on_a_cluster(
    client: Client, backend: Any, storage: Any, partitions: int, chunk: Any
) -> None:
    """DK-15: the bits of two worker processes are those of this process."""
    execution = ld.Execution(
        backend=backend,
        storage=storage,
        partitions=partitions,
        chunk_events=chunk,
        cluster=client,
    )
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference(backend)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_threads(backend: Any, threads: int) -> None:
    """DK-15: more threads than partitions, and fewer."""
    with two_waves(ld.Execution(backend=backend, threads=threads, partitions=3)) as likelihood:
        assert bits(likelihood) == reference(backend)


FORMS = {
    "arrays": lambda name, folder: as_arrays(name),
    "groups of 3": lambda name, folder: as_groups(name, folder, 3 if name == "data" else 64),
    "groups of 37": lambda name, folder: as_groups(name, folder, 37),
    "one group": lambda name, folder: as_groups(name, folder, 100_000),
    "files": lambda name, folder: as_files(name, folder, [1, 9, 250, 599]),
}


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("form", FORMS)
def test_where_the_rows_lie(form: str, storage: Any, backend: Any, tmp_path: Path) -> None:
    """DK-15: arrays, other row groups, other column order, several files."""
    data, mc = (FORMS[form](name, tmp_path) for name in ("data", "mc"))
    execution = ld.Execution(backend=backend, storage=storage, partitions=3, chunk_events=999)
    with two_waves(execution, data=data, accepted_mc=mc) as likelihood:
        assert bits(likelihood) == reference(backend)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_order_of_the_events(backend: Any) -> None:
    """Another order of the events is another order of additions within tiles: rounding only."""
    mc = as_arrays("mc")
    order = np.random.default_rng(5).permutation(mc.n_events)
    p4s = {
        p4: np.stack([mc.column(f"{p4}_{c}")[order] for c in ("e", "px", "py", "pz")], axis=1)
        for p4 in ("beam", "target", "ks1", "ks2")
    }
    shuffled = ld.Dataset.from_arrays(p4s=p4s, weights=mc.weights()[order])
    execution = ld.Execution(backend=backend)
    with two_waves(execution, accepted_mc=shuffled) as likelihood:
        value, gradient = likelihood.value_and_gradient()
    with two_waves(execution) as ordered:
        expected, slopes = ordered.value_and_gradient()
    assert value == pytest.approx(expected, rel=1e-15)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-13)


@settings(max_examples=10, deadline=None)
@given(
    partitions=st.sampled_from([1, 2, 5, 13, 100, 601, 10**9]),
    chunk=st.one_of(st.none(), st.integers(60, 6000)),
    threads=st.integers(1, 3),
    storage=st.sampled_from(STORAGES),
)
def test_random_cuts(partitions: int, chunk: int | None, threads: int, storage: Any) -> None:
    """DK-15: also with more partitions asked for than tiles, and than events, to fill them."""
    execution = ld.Execution(
        backend="cpu",
        partitions=partitions,
        chunk_events=chunk,
        threads=threads,
        storage=storage,
    )
    with two_waves(execution, accepted_mc=as_arrays("data")) as likelihood:
        assert bits(likelihood) == small_reference()


@cache
def small_reference() -> tuple[str, ...]:
    """The data as their own accepted events."""
    with two_waves(ld.Execution(backend="cpu"), accepted_mc=as_arrays("data")) as likelihood:
        return bits(likelihood)


def test_backends_agree_to_rounding() -> None:
    """The compiled functions are not NumPy's: equal to 1e-12, and the sums of each are exact."""
    compiled, interpreted = (
        np.array([float.fromhex(number) for number in reference(backend)])
        for backend in ("cpu", "interpreter")
    )
    assert compiled == pytest.approx(interpreted, rel=1e-12)


def test_a_fit_has_the_same_bits_too() -> None:
    """DK-11: equal evaluations make equal fits, here over cuts and storages."""

    def fitted(**options: Any) -> tuple[str, ...]:
        with two_waves(ld.Execution(**options), data=asimov()) as likelihood:
            result = likelihood.fit([0.4, 0.3])
        numbers = [result.objective, *result.values, *result.covariance.flat]
        return (str(result.n_evaluations), *(float(number).hex() for number in numbers))

    usual = fitted()
    assert fitted(partitions=17, threads=1) == usual
    assert fitted(storage="streaming", partitions=3, chunk_events=777) == usual


@pytest.mark.parametrize("signs", ["negative", "mixed"])
def test_an_undefined_value_has_no_sign(signs: str) -> None:
    """What is assumed of a column with a NaN in it does not depend on the partition it is in."""
    x = np.linspace(-1.0, -0.1, 5000)
    x[1234] = np.nan
    if signs == "mixed":
        x[3000:4000] *= -1
    column, coupling = ld.scalar("x"), ld.parameter("c", initial=0.7)
    defined = column**2 >= 0
    intensity = ld.where(defined, (coupling * column.sqrt() + 0.3).norm_sqr(), 0.5) + 0.1
    sample = ld.Dataset.from_arrays(scalars={"x": x})
    found = set()
    for partitions, chunk in ((1, None), (1, 1000), (3, 7), (17, None)):
        execution = ld.Execution(partitions=partitions, chunk_events=chunk, normalization="general")
        term = ld.NLL(ld.Model(intensity), data=sample, accepted_mc=sample)
        with ld.Likelihood([term], execution) as likelihood:
            value, gradient = likelihood.value_and_gradient()
            found.add((value.hex(), *(float(g).hex() for g in gradient)))
    assert len(found) == 1
