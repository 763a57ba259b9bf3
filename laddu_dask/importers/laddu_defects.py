"""Where the values of a laddu expression are known to be wrong in laddu, and right here."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from laddu_dask.expr.node import Node

#: laddu's last coefficient of the barrier polynomial for l = 6, and the right one, (2l - 1)!!**2.
WRONG_L6, RIGHT_L6 = 18261468225.0, 108056025.0

_TEXTS = {
    "D1": (
        "a root or logarithm of event data is typed as real there, and its imaginary part is lost "
        "at events where the argument is negative (cpu, jit and auto back-ends); here it is kept"
    ),
    "D3": (
        "the Blatt-Weisskopf factor for l = 6 there has the constant 18261468225 in place of "
        "108056025, which is used here"
    ),
    "D13": (
        "a Wigner function of j > 10 is written out there, in rounded terms that cancel, and has "
        "lost digits; here it is the function ld.WignerD, up to the j that this offers"
    ),
    "D8": (
        "x/x, 0/x, 0*x and x - x are simplified there even where x is zero, infinite or NaN; here "
        "they are computed, and give NaN there"
    ),
}


class LadduDefectWarning(UserWarning):
    """An imported expression has other values here than in laddu, where these are wrong.

    Attributes
    ----------
    defect
        ``"D1"`` (imaginary parts lost), ``"D3"`` (barrier factor of l = 6), ``"D8"`` (x/x taken
        for 1) or ``"D13"`` (Wigner functions of j > 10).
    paths
        JSON paths of the nodes concerned.
    """

    def __init__(self, message: str, defect: str = "", paths: tuple[str, ...] = ()) -> None:
        super().__init__(message, defect, paths)
        self.defect = defect
        self.paths = paths

    def __str__(self) -> str:
        return str(self.args[0])


def tell(defect: str, places: Sequence[int], stacklevel: int) -> None:
    """Warn of one defect at the nodes with these numbers."""
    paths = tuple(f"$.nodes[{place}]" for place in places)
    shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    message = f"laddu defect {defect} at {shown}: {_TEXTS[defect]}"
    warnings.warn(LadduDefectWarning(message, defect, paths), stacklevel=stacklevel + 1)


#: Operations that give finite values of moderate ones, whatever these are.
_TAME = frozenset({"Add", "Sub", "Mul", "Neg", "Real", "Imag", "Conj", "NormSqr", "Sin", "Cos"})
_TAME_KINDS = frozenset({"Complex", "Vector", "Matrix", "Component", "MatrixElement", "Dot"})
#: So many factors of a numerator are compared with a denominator.
_FACTORS = 32


@dataclass(frozen=True)
class Kind:
    """What laddu takes the value of a node for, and what the value depends on.

    Attributes
    ----------
    is_complex
        Complex by laddu's rules of types.
    reads_events, has_free
        It depends on event columns, on free parameters.
    is_tame
        Finite at every event with finite columns, but for overflow.
    """

    is_complex: bool
    reads_events: bool
    has_free: bool
    is_tame: bool

    @classmethod
    def of(cls, kind: str, op: str | None, node: Node, operands: Sequence[Kind]) -> Kind:
        """The kind of a node from those of its operands."""
        if kind in {"Complex", "ComplexConst"}:
            is_complex = True
        elif op in {"Real", "Imag", "NormSqr", "Atan2"}:
            is_complex = False
        else:
            is_complex = any(one.is_complex for one in operands)
        free = node.op == "parameter" and not getattr(node.data, "fixed", False)
        tame = not operands or op in _TAME or kind in _TAME_KINDS
        return cls(
            is_complex,
            node.op == "column" or any(one.reads_events for one in operands),
            free or any(one.has_free for one in operands),
            tame and all(one.is_tame for one in operands),
        )

    def loses_phase(self, node: Node) -> bool:
        """Whether laddu, when it keeps this value per event, keeps only its real part."""
        return self.reads_events and not self.has_free and not self.is_complex and not node.is_real


def is_simplified(op: str | None, nodes: Sequence[Node], kinds: Sequence[Kind]) -> bool:
    """Whether laddu rewrites a binary operation although its result may be NaN.

    Finite columns are assumed: 0*x of a column is no matter.
    """
    first, second = nodes
    if op == "Mul":
        return (_is_zero(first) and not kinds[1].is_tame) or (
            _is_zero(second) and not kinds[0].is_tame
        )
    if op == "Sub":
        return first is second and not kinds[0].is_tame
    if op != "Div" or not (kinds[1].reads_events or kinds[1].has_free):
        return False
    return _is_zero(first) or second in _factors(first)


def _factors(node: Node) -> list[Node]:
    """The first factors of a product, itself included, found without following sums."""
    found = [node]
    for factor in found:
        if factor.op == "mul" and len(found) < _FACTORS:
            found.extend(factor.args)
    return found


def _is_zero(node: Node) -> bool:
    return node.op == "const" and node.data == 0
