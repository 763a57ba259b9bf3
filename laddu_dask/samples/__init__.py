"""Small real samples that ship with the package, for the demo, the tutorials and the tests."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["ksks_photoproduction"]


def ksks_photoproduction() -> Path:
    """Path of a simulated sample of gamma p -> K_S K_S p.

    10 000 events with a polarised beam on a target at rest, in single precision: four-momenta
    `beam`, `proton`, `kshort1`, `kshort2` in GeV (columns `<name>_px`, `_py`, `_pz`, `_e`, in this
    order), scalars `pol_magnitude` and `pol_angle` (rad), and a column `weight`. One row group.

    Returns
    -------
    pathlib.Path
        The Parquet file inside the installed package.

    Notes
    -----
    Provenance and licence: benchmark sample of the laddu project
    (https://github.com/denehoffman/laddu, `crates/laddu/benches`), which is distributed under the
    MIT licence or the Apache licence 2.0, at your choice. The file is unchanged.
    """
    return Path(str(files(__name__).joinpath("ksks_photoproduction.parquet")))
