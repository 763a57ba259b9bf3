"""Values in normal form; `laddu_dask.compiler.algebra` makes them."""

from __future__ import annotations

from dataclasses import dataclass, field

Factor = tuple["Term", int]


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A value in normal form; identity is equality.

    Attributes
    ----------
    op
        ``literal parameter column add mul pow power sqrt log exp sin cos tan asin atan sinh cosh
        tanh atan2 abs minimum maximum conj re im norm_sqr complex where solve`` and the
        conditions ``lt le eq and or not``. ``pow`` has an integer exponent.
    args
        Operands.
    data
        Literal, name or exponent; for sqrt, log and power whether the argument (the base) is real
        and not negative; for solve the component and the number of unknowns.
    kind
        Dependency class.
    real
        Real by construction.
    digest
        Content digest; the order of operands.
    """

    op: str
    args: tuple[Term, ...]
    data: object
    kind: int
    real: bool
    digest: bytes = field(repr=False)

    @property
    def literal(self) -> complex | float | None:
        """The number, if this is a literal."""
        return self.value if self.op == "literal" else None

    @property
    def value(self) -> complex | float:
        """The number of a literal."""
        assert isinstance(self.data, (float, complex))
        return self.data

    @property
    def exponent(self) -> int:
        """The exponent of an integer power."""
        assert self.op == "pow"
        assert isinstance(self.data, int)
        return self.data
