"""Opening a ROOT file: its tree, the types of the branches, and where their blocks end.

A tree is a TTree or an RNTuple, read by uproot. The blocks of a TTree are the baskets of each
branch, those of an RNTuple its clusters. Only headers are read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.agreement import NUMBER
from laddu_dask.data.footer import FileStamp, changed, check_unchanged, first_line
from laddu_dask.data.refusals import cure_of_refusal
from laddu_dask.data.root_checksums import check_page_lists, check_pages
from laddu_dask.errors import DataError

__all__ = [
    "Element",
    "RootHeader",
    "RootTree",
    "open_tree",
    "opened",
    "read_header",
    "require_uproot",
]

_TREES = ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")
_RNTUPLE_NUMBERS = {"float", "double"} | {
    f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_DAMAGED = "It may be cut short, damaged, or of another kind; copy or write it again."
_ARRAY = "std::array<"
_LISTED = 5


@dataclass(frozen=True)
class Element:
    """Where a column lies: a branch, and which of its elements if it has several per event."""

    branch: str
    index: int | None = None


@dataclass(frozen=True)
class RootTree:
    """An open tree.

    Parameters
    ----------
    path
        The file.
    tree
        What uproot gives.
    rows
        Entries.
    columns
        Element of each column that is a number, by name.
    refused
        Types of branches that are none, by name.
    ragged
        Those of them that have a number of numbers that may change from event to event.
    """

    path: str
    tree: Any
    rows: int
    columns: Mapping[str, Element]
    refused: Mapping[str, str]
    ragged: frozenset[str]

    def type_of(self, branch: str) -> str:
        """Type of a branch as ROOT calls it."""
        return str(self.tree[branch].typename)

    def ends(self, branch: str) -> list[int]:
        """Rows at which blocks of a branch end, ascending; the last is `rows`.

        DataError if they do not make up the rows of the tree.
        """
        if hasattr(self.tree, "cluster_summaries"):
            found = [
                int(part.num_first_entry) + int(part.num_entries)
                for part in self.tree.cluster_summaries
            ]
        else:
            found = [int(end) for end in self.tree[branch].entry_offsets[1:]]
        found = [end for end in dict.fromkeys(found) if end != 0]
        last = ", ".join(map(str, found[-_LISTED:])) or "none"
        if found != sorted(found) or (found[-1] if found else 0) != self.rows:
            raise DataError(
                f"branch {branch!r} of {self.path} has blocks that do not make up the "
                f"{self.rows} rows of the tree: they end at {last}. {_DAMAGED}",
                file=self.path,
                column=branch,
            )
        return found

    def common_ends(self) -> list[int]:
        """Rows at which blocks of all branches of numbers end."""
        names = {element.branch for element in self.columns.values()}
        shared = [set(self.ends(name)) for name in sorted(names)] or [{self.rows}]
        return sorted(set.intersection(*shared))

    def numbers(self, branch: str, start: int, stop: int) -> NDArray[Any]:
        """The rows [start, stop): shape (n,), or (n, k) with k numbers per event."""
        self._check(branch, start, stop)
        found = self.tree[branch].array(
            entry_start=start, entry_stop=stop, library="np", **self._options
        )
        values: NDArray[Any] = np.asarray(found)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def ragged_numbers(
        self, branch: str, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """How many numbers each of the rows has, and all of them one after the other."""
        import awkward as ak  # comes with uproot

        self._check(branch, start, stop)
        found = self.tree[branch].array(
            entry_start=start, entry_stop=stop, library="ak", **self._options
        )
        counts = np.asarray(ak.to_numpy(ak.num(found, axis=1)), dtype=np.int64)
        flat = np.asarray(ak.to_numpy(ak.flatten(found, axis=1)))
        return counts, flat.astype(flat.dtype.newbyteorder("="), copy=False)

    def _check(self, branch: str, start: int, stop: int) -> None:
        if hasattr(self.tree, "cluster_summaries"):
            check_pages(self.tree, branch, start, stop)

    @property
    def _options(self) -> dict[str, Any]:
        return {} if hasattr(self.tree, "cluster_summaries") else {"array_cache": None}


@dataclass(frozen=True)
class RootHeader:
    """What the client knows of a file.

    Parameters
    ----------
    stamp, tree
        The file's state, and the name of its tree with the cycle.
    types
        Of each column: `NUMBER`, or what else it is.
    stored
        The same in words of ROOT, numbers too.
    ends
        Rows at which blocks of all branches of numbers end.
    lengths
        Numbers per event of the arrays of changing length whose elements are wanted.
    """

    stamp: FileStamp
    tree: str
    types: Mapping[str, str]
    stored: Mapping[str, str]
    ends: tuple[int, ...]
    lengths: tuple[tuple[str, int], ...]


def read_header(path: str, name: str, tree: str | None, elements: frozenset[str]) -> RootHeader:
    """What the client learns of a file before any events are read.

    Parameters
    ----------
    path, name
        The file, and what to call it.
    tree
        Name of the tree, with a cycle (``kin;2``) or without; None if there is only one.
    elements
        Branches of changing length of which single elements are wanted: their length is that of
        the first event, and every event must have it.

    Raises
    ------
    DataError
        uproot is missing, the file cannot be read, or it has no such tree or several.
    """
    with opened(path) as file:
        state = os.stat(path)
        key = _only_tree(file, path, tree)
        found = _described(file[key], path)
        stamp = FileStamp(path, name, state.st_size, state.st_mtime_ns, found.rows)
        lengths = []
        for branch in sorted(elements & found.ragged) if found.rows else ():
            lengths.append((branch, int(found.ragged_numbers(branch, 0, 1)[0][0])))
        ends = found.common_ends()
        stored = {name: found.type_of(element.branch) for name, element in found.columns.items()}
    types = dict.fromkeys(found.columns, NUMBER) | dict(found.refused)
    stored |= found.refused
    for branch, length in lengths:
        names = [f"{branch}[{index}]" for index in range(length)]
        types |= dict.fromkeys(names, NUMBER)
        stored |= dict.fromkeys(names, stored.pop(branch))
    return RootHeader(stamp, key, types, stored, tuple(ends), tuple(lengths))


@contextmanager
def open_tree(stamp: FileStamp, tree: str) -> Iterator[RootTree]:
    """The tree `tree` of a file that must be in the state of the stamp."""
    check_unchanged(stamp)
    with opened(stamp.path) as file:
        if tree not in file:
            raise changed(stamp, f"it has no tree {tree!r}")
        found = _described(file[tree], stamp.path)
        if found.rows != stamp.rows:
            raise changed(stamp, f"it has {found.rows} rows, then it had {stamp.rows}")
        yield found
    check_unchanged(stamp)


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file; whatever goes wrong with it inside is a DataError that names it."""
    uproot = require_uproot()
    try:
        if os.stat(path).st_size == 0:
            raise DataError(f"{path} is empty (0 bytes), not a ROOT file", file=path)
        # Read, not mapped: a mapped file that another process cuts short ends this one. The
        # mapping of the path keeps a colon in it from being taken for the end of the path.
        source = uproot.source.file.MultithreadedFileSource
        with uproot.open({path: None}, handler=source, object_cache=None, array_cache=None) as file:
            promised, size = int(file.file.fEND), os.stat(path).st_size
            if size < promised:
                raise DataError(
                    f"{path} is cut short: it has {size} bytes of the {promised} that its header "
                    "promises; copy or write it again",
                    file=path,
                )
            yield file
    except DataError:
        raise
    except Exception as error:
        # uproot has no family of errors: a damaged file ends in whatever its bytes lead to, from
        # struct.error and AssertionError to MemoryError and RecursionError.
        cure = cure_of_refusal(error) or _DAMAGED
        raise DataError(
            f"{path} cannot be read as a ROOT file: {type(error).__name__}: {first_line(error)}. "
            + cure,
            file=path,
        ) from error


def require_uproot() -> Any:
    """The module uproot; DataError that says what to install if there is none."""
    try:
        import uproot
    except ModuleNotFoundError as error:
        raise DataError(
            "ROOT files need uproot, which is not installed; run: pip install 'laddu-dask[root]'"
        ) from error
    return uproot


def _only_tree(file: Any, path: str, wanted: str | None) -> str:
    """Name with cycle of the tree that is meant; without a cycle the newest."""
    kinds = file.classnames(recursive=True, cycle=True)
    newest: dict[str, int] = {}
    for key, kind in kinds.items():
        if kind in _TREES:
            name, _, cycle = key.rpartition(";")
            newest[name] = max(newest.get(name, 0), int(cycle))
    if wanted is not None:
        name, separator, cycle = wanted.rpartition(";")
        key = wanted if separator else f"{wanted};{newest.get(wanted, 0)}"
        if kinds.get(key) in _TREES:
            return key
        what = f"has no tree {wanted!r}"
        if key in kinds:
            what = f"has {wanted!r}, but that is a {kinds[key]}, not a tree"
        raise DataError(f"{path} {what}; it has {_listed(newest)}", file=path, tree=wanted)
    if len(newest) != 1:
        cure = "name the one that is meant: tree=..." if newest else "it holds no events to read"
        raise DataError(f"{path} has {_listed(newest)}; {cure}", file=path, trees=tuple(newest))
    ((name, number),) = newest.items()
    return f"{name};{number}"


def _listed(trees: Mapping[str, int]) -> str:
    if not trees:
        return "no TTree and no RNTuple"
    return f"the tree{'s' if len(trees) > 1 else ''} {', '.join(map(repr, trees))}"


def _described(tree: Any, path: str) -> RootTree:
    columns: dict[str, Element] = {}
    refused: dict[str, str] = {}
    ragged: set[str] = set()
    rntuple = hasattr(tree, "cluster_summaries")
    if rntuple:
        check_page_lists(tree)
    names = [field.name for field in tree.fields] if rntuple else list(tree.keys())
    for name in names:
        if name in columns or name in refused or f"{name}[0]" in columns:
            raise DataError(f"{path} has two branches called {name!r}", file=path, column=name)
        kind = tree[name].typename
        shape = _rntuple_shape(kind) if rntuple else _branch_shape(tree[name])
        if shape == ():
            columns[name] = Element(name)
        elif shape is not None and len(shape) == 1 and shape[0] >= 0:
            columns |= {f"{name}[{index}]": Element(name, index) for index in range(shape[0])}
        else:
            refused[name] = str(kind)
            if shape == (-1,):
                ragged.add(name)
    rows = int(tree.num_entries)
    if rows < 0:
        raise DataError(f"{path} promises {rows} rows. {_DAMAGED}", file=path)
    return RootTree(path, tree, rows, columns, refused, frozenset(ragged))


def _branch_shape(branch: Any) -> tuple[int, ...] | None:
    """Shape of an entry of real numbers, -1 for a length that may change; None for all else."""
    from uproot.interpretation.jagged import AsJagged
    from uproot.interpretation.numerical import AsDtype

    how = branch.interpretation
    if isinstance(how, AsJagged) and type(how.content) is AsDtype and not how.header_bytes:
        return (-1,) if how.content.to_dtype.kind in "iuf" else None
    if type(how) is not AsDtype:
        return None
    base, shape = how.to_dtype.base, tuple(int(length) for length in how.to_dtype.shape)
    return shape if base.kind in "iuf" and base.itemsize <= 8 else None


def _rntuple_shape(kind: str) -> tuple[int, ...] | None:
    """The same for a field of an RNTuple, by the name of its type."""
    if kind in _RNTUPLE_NUMBERS:
        return ()
    if kind.startswith("std::vector<") and kind[len("std::vector<") : -1] in _RNTUPLE_NUMBERS:
        return (-1,)
    content, _, length = kind.removeprefix(_ARRAY).removesuffix(">").rpartition(",")
    if kind.startswith(_ARRAY) and content in _RNTUPLE_NUMBERS and length.isdigit():
        return (int(length),)
    return None
