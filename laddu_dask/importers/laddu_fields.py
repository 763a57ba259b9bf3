"""Checked access to one node of a laddu table: every field with its place in the text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from laddu_dask.importers.laddu_source import malformed


class Fields:
    """The content of one node.

    Parameters
    ----------
    path
        JSON path of the content, for messages.
    content
        Object whose fields are read.
    place
        Number of the node; operands must have smaller ones.
    """

    __slots__ = ("content", "path", "place")

    def __init__(self, path: str, content: object, place: int, names: set[str]) -> None:
        if not isinstance(content, Mapping):
            raise malformed(path, f"needs an object, got {content!r:.60}")
        for name in sorted(names - set(content)):
            raise malformed(path, f"there is no {name!r}")
        for name in sorted(set(content) - names, key=str):
            raise malformed(f"{path}.{name}", "unknown field")
        self.path = path
        self.content: Mapping[str, Any] = content
        self.place = place

    def operand(self, name: str) -> int:
        """Number of an operand."""
        return self._number(f"{self.path}.{name}", self.content[name], self.place)

    def operands(self, name: str) -> list[int]:
        """Numbers of a list of operands."""
        listed = self.content[name]
        path = f"{self.path}.{name}"
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            raise malformed(path, f"needs a list of operands, got {listed!r:.60}")
        return [self._number(f"{path}[{i}]", one, self.place) for i, one in enumerate(listed)]

    def count(self, name: str) -> int:
        """An index or a size."""
        value = self.content[name]
        if type(value) is not int or value < 0:
            raise malformed(f"{self.path}.{name}", f"needs an integer >= 0, got {value!r:.60}")
        return value

    def text(self, name: str) -> str:
        """A name that is not empty."""
        return text(f"{self.path}.{name}", self.content[name])

    def _number(self, path: str, value: object, end: int) -> int:
        if type(value) is not int or not 0 <= value < end:
            raise malformed(
                path, f"operand {value!r:.60} is no earlier node than node {self.place}"
            )
        return value


def text(path: str, value: object) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise malformed(path, f"needs a name, got {value!r:.60}")
    return value


def real(path: str, value: object) -> float:
    """A finite number. JSON has no others: laddu writes null for NaN and for infinities."""
    if value is None:
        raise malformed(
            path,
            "laddu writes NaN and both infinities as null, so that the value is lost; "
            "write a finite number instead",
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed(path, f"needs a number, got {value!r:.60}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise malformed(path, f"{value!r:.60} is beyond the range of doubles")
    return number
