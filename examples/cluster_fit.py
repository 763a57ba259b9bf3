"""Fit the same likelihood in this process and on a Dask cluster: equal to the last bit.

The cluster here is two worker processes on this machine. On a real one, pass the address of its
scheduler (`cluster="tcp://host:8786"`), a scheduler file, or a `distributed.Client`; nothing else
changes, except that the files must be readable under the same path by every worker.

Run: python examples/cluster_fit.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from distributed import Client, LocalCluster
from two_waves import check, model, write_samples

import laddu_dask as ld


def main() -> None:
    """Write two samples, fit twice, and compare."""
    with TemporaryDirectory() as folder:
        data, accepted_mc = write_samples(Path(folder), batches=4, batch_events=20_000, seed=1)
        term = ld.NLL(model(), data=ld.read_parquet(data), accepted_mc=ld.read_parquet(accepted_mc))
        with ld.Likelihood([term]) as here:
            start = here.default_parameters
            value, gradient = here.value_and_gradient(start)

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
            ld.Likelihood([term], execution=ld.Execution(cluster=client)) as there,
        ):
            cluster_value, cluster_gradient = there.value_and_gradient(start)
            print(f"-2 ln L here        {value.hex()}\n-2 ln L on workers  {cluster_value.hex()}")
            assert cluster_value == value
            assert np.array_equal(cluster_gradient, gradient)

            check(there.fit())
            print(there.report())


if __name__ == "__main__":  # worker processes import this file; only the first one runs the fit
    main()
