"""What is taken for granted about event values, and checked while preparing.

Textbook formulas are complex by type and real on most data sets: q, rho, sqrt(s). Assuming the
sign of an argument removes half of the work. Every partition checks every assumption; a violation
weakens it for the whole data set, the model is compiled again and prepared again. The outcome is
what holds for all events together, so it does not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from laddu_dask.compiler.facts import Facts
from laddu_dask.compiler.precision import RANGES, Precision, is_moderate
from laddu_dask.compiler.questions import Kind, Question

#: Property that an event value is assumed to have. ``open``: none.
Property = Literal["nonnegative", "negative", "finite", "constant", "equal", "opposite", "open"]

#: Stands for the range of all columns among the findings about events.
RANGE = b"range"


class Check(NamedTuple):
    """An assumption that was used.

    Attributes
    ----------
    value
        IR value, or output row of the prepare program.
    property
        What must hold for every event; NaN satisfies the sign properties, since it stays NaN.
    digest
        Term, or event value, that the assumption is about.
    other
        The value that it is equal or opposite to: again IR value or output row.
    number
        The constant that it is.
    """

    value: int
    property: Property
    digest: bytes
    other: int | None = None
    number: float = 0.0

    def moved(self, place: Callable[[int], int]) -> Check:
        """The check with its values renamed."""
        other = None if self.other is None else place(self.other)
        return self._replace(value=place(self.value), other=other)

    def question(self, precision: Precision) -> Question:
        """What to ask about the rows of a prepare program.

        A value of NaN has no sign: whatever is assumed, it stays NaN.
        """
        if self.property == "finite":
            return Question("large", self.value, high=RANGES[precision].largest)
        if self.property == "constant":
            return Question("differs", self.value, low=self.number)
        if self.property in ("negative", "nonnegative"):
            return Question("sign", self.value)
        assert self.other is not None
        kind: Kind = "unequal" if self.property == "equal" else "unopposite"
        return Question(kind, self.value, other=self.other)

    def finding(self, answer: int, precision: Precision) -> Property | None:
        """What the answer for some events leaves of the assumption, if they contradict it."""
        if self.property == "nonnegative":
            return (None, None, "negative", "open")[answer]
        if self.property == "constant" and not is_moderate(self.number, precision):
            return "open"
        return "open" if answer & 1 else None


class Guard(NamedTuple):
    """The same about a parameter-only value; checked in every evaluation.

    Where it does not hold, the expression is evaluated as written.
    """

    value: int
    property: Property


@dataclass(frozen=True)
class Assumptions:
    """Properties by term; what is not listed is assumed to be not negative, and finite.

    Attributes
    ----------
    weakened
        Weaker properties that violations have left.
    facts
        What the first events of the data set suggest beyond that.
    """

    weakened: Mapping[bytes, Property] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    def sign(self, digest: bytes) -> Property:
        """Assumed sign of a value."""
        return self.weakened.get(digest, "nonnegative")

    def is_open(self, digest: bytes) -> bool:
        """Whether nothing may be assumed about a value."""
        return self.weakened.get(digest) == "open"

    def weaken(self, findings: Mapping[bytes, Property]) -> Assumptions:
        """Assumptions that also allow what some events have shown.

        A value found negative everywhere in one place and assumed negative elsewhere stays so;
        anything else that contradicts what is assumed leaves it open.
        """
        weakened = dict(self.weakened)
        for digest, found in findings.items():
            known = weakened.get(digest)
            weakened[digest] = found if known is None else "open"
        return replace(self, weakened=weakened)
