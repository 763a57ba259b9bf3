"""Trees of four-vectors as AmpTools reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from laddu_dask.data.dataset import Dataset
from laddu_dask.data.mapped import ColumnMap, Given
from laddu_dask.data.paths import PathLike
from laddu_dask.data.root import read_root
from laddu_dask.errors import DataError

__all__ = ["amptools_columns", "read_amptools"]


def amptools_columns(final_state: Sequence[str], *, pol_in_beam: bool = False) -> ColumnMap:
    """The columns of an AmpTools tree, for ``read_root(..., columns=...)``.

    Parameters
    ----------
    final_state
        Names of the final-state particles, in the order of the tree; it may have more.
    pol_in_beam
        Whether the tree keeps the linear polarisation of the beam in `Px_Beam` and `Py_Beam`,
        as GlueX does. They become the scalars `pol_px` and `pol_py`, (P cos Phi, P sin Phi),
        unchanged, and the beam goes along z without a mass: (E, 0, 0, E).

    Returns
    -------
    ColumnMap
        `beam` of `E_Beam, Px_Beam, Py_Beam, Pz_Beam`, and particle i of the final state of
        `E_FinalState[i]`, `Px_FinalState[i]` and so on. Energies in GeV, as AmpTools has them.

    Raises
    ------
    DataError
        No final state, or a name used twice.
    """
    names = ("beam", *final_state)
    if len(names) == 1 or isinstance(final_state, str) or len(set(names)) < len(names):
        raise DataError(
            f"final_state is {final_state!r}; list the names of the particles of the final state, "
            "each once and none called 'beam'"
        )
    labels = ("E", "Px", "Py", "Pz")
    columns: dict[str, Given | Sequence[Given]] = {}
    columns["beam"] = tuple(f"{label}_Beam" for label in labels)
    if pol_in_beam:
        columns["beam"] = ("E_Beam", 0.0, 0.0, "E_Beam")
    for index, name in enumerate(final_state):
        columns[name] = tuple(f"{label}_FinalState[{index}]" for label in labels)
    if pol_in_beam:
        columns |= {"pol_px": "Px_Beam", "pol_py": "Py_Beam"}
    return columns


def read_amptools(
    source: PathLike | Iterable[PathLike],
    final_state: Sequence[str],
    tree: str | None = "kin",
    *,
    pol_in_beam: bool = False,
    weight: str | None = "Weight",
) -> Dataset:
    """Open AmpTools trees as one data set, without reading any events.

    Every event must have as many particles as the first, as in all trees that AmpTools writes.

    Parameters
    ----------
    source
        As `read_root` takes it.
    final_state, pol_in_beam
        As `amptools_columns` takes them.
    tree
        Name of the tree; None if each file has only one.
    weight
        Branch of the weights; None gives every event the weight one, as for a file without.

    Raises
    ------
    DataError
        As `read_root` and `amptools_columns` do.
    """
    columns = amptools_columns(final_state, pol_in_beam=pol_in_beam)
    return read_root(source, tree, columns, weight)
