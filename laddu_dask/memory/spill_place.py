"""What to say of the folder that events are spilled to, when it has no room for them."""

from __future__ import annotations

from dataclasses import dataclass

from laddu_dask.memory.sizes import exact_bytes


@dataclass(frozen=True)
class SpillPlace:
    """Where a process would spill events to.

    Attributes
    ----------
    folder
        The folder, in words.
    free
        Free bytes on its disk; 0 if it lies in memory; None if that is not known.
    in_memory
        Whether it is known to lie in memory.
    move
        How another folder is chosen, up to its name.
    """

    folder: str = "the folder for temporary files"
    free: int | None = None
    in_memory: bool = False
    move: str = "set TMPDIR to"

    def cure(self, needed: int) -> str:
        """What is in the way of so many bytes, and what to do about it."""
        otherwise = 'or choose storage="fastest"'
        if self.in_memory:
            return (
                f"{self.folder} lies in memory, where spilling would save nothing; {self.move} a "
                f"folder on a disk, {otherwise}"
            )
        if self.free is None:
            return f"{self.move} a folder on a disk with more room, {otherwise}"
        if self.free < needed:
            return (
                f"the disk of {self.folder} has {exact_bytes(self.free)} free; {self.move} a "
                f"folder on a disk with more room, {otherwise}"
            )
        return (
            f"the disk of {self.folder} has {exact_bytes(self.free)} free; raise "
            f"MemoryPlan(disk=...), {otherwise}"
        )
