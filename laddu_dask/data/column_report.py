"""What became of every column of the files of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from laddu_dask.data.agreement import NUMBER
from laddu_dask.data.schema import Schema

__all__ = ["ColumnReport", "ColumnUse", "report_columns"]

Use: TypeAlias = Literal["column", "weight", "left out", "no number"]

_EXACT = ("double", "float64")
_MISSING = "missing"


@dataclass(frozen=True)
class ColumnUse:
    """One column of the files.

    Parameters
    ----------
    stored
        Its name in the files.
    types
        Its types there, each once, in the order of the files; ``missing`` where it is not.
    use
        ``column``: expressions may read it. ``weight``: the event weights. ``left out``: nobody
        asked for it. ``no number``: it cannot be read, and is an error where it is needed.
    names
        What expressions call it; several if a map names it more than once.
    scales
        What it is multiplied by under each of these names.
    """

    stored: str
    types: tuple[str, ...]
    use: Use
    names: tuple[str, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def is_converted(self) -> bool:
        """Whether float64 is made of another type, exactly, or a scale multiplies it."""
        if self.use not in ("column", "weight"):
            return False
        return any(kind not in _EXACT for kind in self.types) or any(
            scale != 1.0 for scale in self.scales
        )

    def __str__(self) -> str:
        if self.use == "left out":
            return "left out"
        if self.use == "no number":
            return "not a number, refused if needed"
        parts = [] if all(kind in _EXACT for kind in self.types) else ["made float64"]
        if self.use == "weight":
            return ", ".join(["event weight", *parts])
        named = [
            name if scale == 1.0 else f"{name} (times {scale!r})"
            for name, scale in zip(self.names, self.scales, strict=True)
        ]
        return ", ".join([f"read as {' and '.join(named)}", *parts])


@dataclass(frozen=True)
class ColumnReport:
    """All columns of the files; printing it gives a table."""

    columns: tuple[ColumnUse, ...]

    @property
    def ignored(self) -> tuple[ColumnUse, ...]:
        """Columns that nothing reads: left out, or no numbers."""
        return tuple(use for use in self.columns if use.use in ("left out", "no number"))

    @property
    def converted(self) -> tuple[ColumnUse, ...]:
        """Columns of other types than float64, and those with a scale."""
        return tuple(use for use in self.columns if use.is_converted)

    def renamed(self, plan: Sequence[tuple[str, str, float]]) -> ColumnReport:
        """The report after a map: (our name, stored name, scale) of each column that it reads."""
        columns = []
        for use in self.columns:
            if use.use == "column":
                entries = [(ours, scale) for ours, stored, scale in plan if stored == use.stored]
                names, scales = zip(*entries, strict=True)
                use = replace(use, names=names, scales=scales)
            columns.append(use)
        return ColumnReport(tuple(columns))

    def __str__(self) -> str:
        rows = [("column", "type", "becomes")]
        rows += [(use.stored, " or ".join(use.types), str(use)) for use in self.columns]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def report_columns(
    stored: Sequence[Mapping[str, str]], types: Mapping[str, str], schema: Schema
) -> ColumnReport:
    """What a schema makes of the columns of files.

    Parameters
    ----------
    stored
        Type of each column, for every file.
    types
        The same of the first file, but `NUMBER` for every number.
    schema
        What is offered of them.
    """
    uses = []
    for name in dict.fromkeys(name for file in stored for name in file):
        found = tuple(dict.fromkeys(file.get(name, _MISSING) for file in stored))
        if name == schema.weight:
            uses.append(ColumnUse(name, found, "weight"))
        elif name in schema:
            uses.append(ColumnUse(name, found, "column", (name,), (1.0,)))
        else:
            is_number = types.get(name, NUMBER) == NUMBER
            uses.append(ColumnUse(name, found, "left out" if is_number else "no number"))
    return ColumnReport(tuple(uses))
