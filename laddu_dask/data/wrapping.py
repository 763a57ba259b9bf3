"""What a fragment that changes another one leaves as it is."""

from __future__ import annotations

from laddu_dask.data.fragment import Fragment

__all__ = ["Wrapping"]


class Wrapping:
    """Rows of another fragment, which messages are about."""

    base: Fragment

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def file(self) -> str | None:
        return self.base.file
