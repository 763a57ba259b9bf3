"""Fit two interfering waves in this process: no cluster, no scheduler, no open port.

Run: python examples/local_fit.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from two_waves import check, model, write_samples

import laddu_dask as ld


def main() -> None:
    """Write two samples, fit, and compare with the truth."""
    with TemporaryDirectory() as folder:
        data, accepted_mc = write_samples(Path(folder), batches=4, batch_events=20_000, seed=1)
        term = ld.NLL(
            model(),
            data=ld.read_parquet(data),
            accepted_mc=ld.read_parquet(accepted_mc),
            name="K_S K_S",
        )
        with ld.Likelihood([term]) as likelihood:
            print(likelihood.plan())
            check(likelihood.fit())


if __name__ == "__main__":
    main()
