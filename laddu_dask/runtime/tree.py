"""What tasks know of some partitions, and how two such results become one.

Nothing raises inside a tree of tasks: an error is a result like any other, goes up to the root, and
the one of the lowest partition arrives there, whichever was first. Sums are exact, so the shape of
the tree shows in no bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laddu_dask.errors import AssumptionError, LadduError
from laddu_dask.kernels import Accumulator
from laddu_dask.runtime.chunk_preparation import merged_findings
from laddu_dask.runtime.preparation import contradiction
from laddu_dask.runtime.worker_plugin import describe_error, rebuild_error

#: Results that become one: few enough that a node of the tree is no work, many enough that few
#: tasks are added to those that read events.
FAN_IN = 8


@dataclass(frozen=True)
class Outcome:
    """The result of some partitions of one pass.

    Attributes
    ----------
    partitions
        How many.
    sums
        Their sums, an accumulator per parameter set; of those partitions that have some.
    findings
        What events leave of assumptions that they contradict.
    label
        The pass, if there are findings.
    failed
        The lowest partition with any other error, and the error as plain data.
    """

    partitions: int
    sums: tuple[Accumulator, ...] = ()
    findings: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    failed: tuple[int, Mapping[str, Any]] | None = None

    @classmethod
    def of_error(cls, partition: int, error: Exception, worker: str) -> Outcome:
        """The result of a partition that has no sums."""
        if isinstance(error, AssumptionError):
            return cls(1, findings=dict(error.findings), label=error.label)
        return cls(1, failed=(partition, describe_error(error, worker)))

    def error(self) -> LadduError | None:
        """What the partitions complain about, if they do: contradictions last.

        Another form would be made of these, and could not sum what cannot be read.
        """
        if self.failed is not None:
            return rebuild_error(self.failed[1])
        if self.label:
            return contradiction(self.label, self.findings)
        return None


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """One result of several; these stay what they are, for a task may run again."""
    sums: list[Accumulator] = []
    findings: Mapping[str, str] = {}
    for outcome in outcomes:
        if not sums:
            sums = [Accumulator.from_bytes(total.to_bytes()) for total in outcome.sums]
        elif outcome.sums:
            for total, part in zip(sums, outcome.sums, strict=True):
                total.merge(part)
        findings = merged_findings(findings, outcome.findings)
    return Outcome(
        partitions=sum(outcome.partitions for outcome in outcomes),
        sums=tuple(sums),
        findings=findings,
        label=max(outcome.label for outcome in outcomes),
        failed=min(
            (outcome.failed for outcome in outcomes if outcome.failed is not None),
            key=lambda failed: failed[0],
            default=None,
        ),
    )
