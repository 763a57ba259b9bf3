"""Fit a data set ten times larger than the memory it may use, and measure what it used.

Two worker processes get a budget of 12 MiB each. The files hold at least ten times as much as both
budgets together, so nobody keeps them in memory: every evaluation reads them again, a few row
groups at a time. What each worker occupied at its peak is measured by the operating system.

Run: python examples/larger_than_memory.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from distributed import Client, LocalCluster
from two_waves import check, model, write_samples

import laddu_dask as ld

MIB = 1 << 20
WORKERS = 2
BUDGET = 12 * MIB  # for each worker
TIMES_LARGER = 10
# Beyond the budget: what the allocators of Arrow and of the C library keep for reuse, and the
# messages of Dask. Much less than the share of the files that each worker reads.
SLACK = 48 * MIB

BATCHES = 180
BATCH_EVENTS = 16_384


def likelihood(data: Path, accepted_mc: Path, client: Client) -> ld.Likelihood:
    """One term on the cluster, within the budget."""
    term = ld.NLL(model(), data=ld.read_parquet(data), accepted_mc=ld.read_parquet(accepted_mc))
    # This intensity is separable: one pass over the Monte Carlo would do. "general" reads every
    # event in every evaluation, as an intensity with free masses must.
    execution = ld.Execution(
        cluster=client, storage="streaming", memory=BUDGET, normalization="general"
    )
    return ld.Likelihood([term], execution=execution)


def peaks(fitted: ld.Likelihood) -> dict[str, int]:
    """Peak resident memory in bytes of each worker process since it started."""
    return {worker.address: worker.peak_resident_bytes for worker in fitted.report().workers}


def main() -> None:
    """Write the samples, fit them, and check the memory of each worker."""
    with TemporaryDirectory() as name:
        folder, small = Path(name), Path(name, "small")
        small.mkdir()
        files = write_samples(folder, BATCHES, BATCH_EVENTS, seed=2, data_fraction=0.1)
        small_files = write_samples(small, WORKERS, 256, seed=3)
        size = sum(file.stat().st_size for file in files)
        print(f"{size / MIB:.0f} MiB of data for {WORKERS} workers of {BUDGET / MIB:.0f} MiB")
        assert size >= TIMES_LARGER * WORKERS * BUDGET

        with (
            LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            # A few events first: imports, compiled kernels and connections are then in place, and
            # what comes on top of them is due to the data.
            with likelihood(*small_files, client) as warm_up:
                warm_up.value_and_gradient(warm_up.default_parameters)
                baseline = peaks(warm_up)

            with likelihood(*files, client) as fitted:
                print(fitted.plan())
                check(fitted.fit())
                peak_after = peaks(fitted)

            for worker, peak in peak_after.items():
                allowed = baseline[worker] + BUDGET + SLACK
                print(
                    f"{worker}: {baseline[worker] / MIB:.0f} MiB before the data, peak "
                    f"{peak / MIB:.0f} MiB, allowed {allowed / MIB:.0f} MiB"
                )
                assert peak <= allowed


if __name__ == "__main__":  # worker processes import this file; only the first one runs the fit
    main()
