"""What a fragment that changes another one leaves as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laddu_dask.data.fragment import Fragment
from laddu_dask.data.pieces import is_in_memory

if TYPE_CHECKING:
    from laddu_dask.data.footer import FileStamp

__all__ = ["SameRows", "Wrapping"]


class Wrapping:
    """Rows of another fragment, which messages are about."""

    base: Fragment

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def file(self) -> str | None:
        return self.base.file


class SameRows(Wrapping):
    """All rows of another fragment, in their order, with something changed about each."""

    @property
    def rows(self) -> int:
        return self.base.rows

    @property
    def offset(self) -> int:
        return self.base.offset

    @property
    def stamp(self) -> FileStamp | None:
        return self.base.stamp

    @property
    def in_memory(self) -> bool:
        return is_in_memory(self.base)

    def locate(self, row: int) -> int:
        return self.base.locate(row)
