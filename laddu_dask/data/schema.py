"""Which event columns a data set offers, and the errors for the ones it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

from laddu_dask.errors import DataError

__all__ = ["P4_LABELS", "Schema", "p4_columns"]

P4_LABELS = ("e", "px", "py", "pz")
"""Components of a four-momentum in the order of the package: (E, px, py, pz)."""


def p4_columns(name: str) -> tuple[str, str, str, str]:
    """Physical columns of the four-momentum `name`: `name_e`, `name_px`, `name_py`, `name_pz`."""
    e, px, py, pz = (f"{name}_{label}" for label in P4_LABELS)
    return e, px, py, pz


@dataclass(frozen=True)
class Schema:
    """Ordered names of the columns of a data set.

    Parameters
    ----------
    columns
        Numeric columns that expressions may use, in the order of the source. The four columns
        `<p4>_e`, `<p4>_px`, `<p4>_py`, `<p4>_pz` (lower case, all four) form the four-momentum
        `<p4>`; every other column is a scalar.
    weight
        Name of the column of event weights; None when every event counts once.
    unusable
        Pairs (column, type) of columns that exist but cannot enter an expression, such as text;
        kept so that an error can say why.

    Raises
    ------
    DataError
        If a name occurs twice.
    """

    columns: tuple[str, ...]
    weight: str | None = None
    unusable: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        weight = () if self.weight is None else (self.weight,)
        for name in (*self.columns, *weight, *(name for name, _ in self.unusable)):
            if name in seen:
                raise DataError(
                    f"the column name {name!r} occurs twice; rename one of the two columns",
                    column=name,
                )
            seen.add(name)

    @property
    def has_weight(self) -> bool:
        return self.weight is not None

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.columns)}

    @cached_property
    def p4s(self) -> tuple[str, ...]:
        """Names of the complete four-momenta, in order of their first component here."""
        stems = dict.fromkeys(_stem(name) for name in self.columns)
        return tuple(
            stem for stem in stems if stem and all(name in self for name in p4_columns(stem))
        )

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Columns that belong to no complete four-momentum."""
        parts = {name for p4 in self.p4s for name in p4_columns(p4)}
        return tuple(name for name in self.columns if name not in parts)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def index(self, name: str) -> int:
        """Position of column `name`; DataError if there is no such column."""
        if name not in self:
            self.require([name], wanted_by="this look-up")
        return self._positions[name]

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        """Columns for a list of names of columns or four-momenta, without repeats."""
        expanded: dict[str, None] = {}
        for name in names:
            p4 = name not in self and name in self.p4s
            expanded.update(dict.fromkeys(p4_columns(name) if p4 else (name,)))
        return tuple(expanded)

    def restricted(self, columns: Sequence[str], *, source: str = "the data set") -> Schema:
        """The schema with only these columns (and the weight).

        `columns` may name four-momenta. DataError if one of them does not exist; the weight may
        be listed, it is there anyway.
        """
        wanted = tuple(name for name in self.expand(columns) if name != self.weight)
        self.require(wanted, wanted_by="columns=", source=source)
        return replace(self, columns=wanted, unusable=())

    def require(
        self, columns: Iterable[str], *, wanted_by: str, source: str = "the data set"
    ) -> None:
        """Check that all `columns` exist and are numeric.

        Raises
        ------
        DataError
            Names every missing column (whole four-momenta by their name), what exists, and near
            misses. Fields: `column` (the first), `columns` (all), `wanted_by`.
        """
        missing = tuple(dict.fromkeys(name for name in columns if name not in self))
        if not missing:
            return
        lines = [f"{wanted_by} needs columns that {source} does not offer:"]
        told: set[str] = set()
        for name in missing:
            if name in told:
                continue
            stem = _stem(name)
            whole = stem and set(p4_columns(stem)) <= set(missing)
            if stem and whole:
                told.update(p4_columns(stem))
                lines.append(
                    f"  four-momentum {stem!r} ({', '.join(p4_columns(stem))})"
                    + _suggestion(stem, self.p4s)
                )
            else:
                lines.append(f"  column {name!r}" + self._reason(name))
        lines.append(f"It offers {self.describe()}.")
        raise DataError("\n".join(lines), column=missing[0], columns=missing, wanted_by=wanted_by)

    def describe(self) -> str:
        """One phrase: the four-momenta, the scalars and the weight."""
        parts = []
        if self.p4s:
            parts.append(f"four-momenta {', '.join(self.p4s)}")
        if self.scalars:
            parts.append(f"scalars {', '.join(self.scalars)}")
        parts.append("unit weights" if self.weight is None else f"weight {self.weight!r}")
        return "; ".join(parts)

    def _reason(self, name: str) -> str:
        if name == self.weight:
            return (
                " is the event weight, not an input of the model; read with weight=None to use it "
                "as a scalar"
            )
        for other, kind in self.unusable:
            if other == name:
                return f" has type {kind}; only integers and floating point numbers can be used"
        stem = _stem(name)
        if stem and any(part in self for part in p4_columns(stem)):
            return f": the four-momentum {stem!r} is incomplete"
        return _suggestion(name, self.columns)


def _stem(column: str) -> str | None:
    """The four-momentum that a column would be a component of, by its name."""
    stem, separator, label = column.rpartition("_")
    return stem if stem and separator and label in P4_LABELS else None


def _suggestion(name: str, existing: Sequence[str]) -> str:
    lowered = {other.lower(): other for other in existing}
    near = [lowered[key] for key in get_close_matches(name.lower(), lowered, n=2, cutoff=0.6)]
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
