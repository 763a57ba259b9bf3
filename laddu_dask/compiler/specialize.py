"""Puts facts about the events of a data set into a lowered graph.

Where parameters meet a constant event value they meet a number, and equal values become one. What
depends on parameters alone by that leaves the event loop. ``0 x`` goes only where x is a polynomial
of values whose finiteness the run checks, as everywhere (`laddu_dask.compiler.algebra`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from laddu_dask.compiler.assumptions import Assumptions, Check, Guard, Property
from laddu_dask.compiler.boundary import boundary
from laddu_dask.compiler.facts import event_digests
from laddu_dask.compiler.ir import EVENT, MIXED, PARAMETER, Graph, Payload, live
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.pairs import Pair
from laddu_dask.compiler.precision import is_moderate

#: Finite when their operands are.
_POLYNOMIAL = frozenset({"add", "sub", "mul", "neg", "abs"})
#: Values that are looked at to decide whether a product with zero is finite.
_MOST_VALUES = 64
#: Putting facts in may uncover further event values, for example of ``(p 0 + x) y``.
_MOST_ROUNDS = 4


def event_values(form: Lowered) -> list[int]:
    """Event values that parameters meet: the subjects of facts."""
    return boundary(form.graph, form.roots, EVENT)


def known_values(graph: Graph, values: Sequence[int], assumptions: Assumptions) -> dict[int, Check]:
    """Those of some event values that are a constant, or repeat one before them."""
    facts, first = assumptions.facts, dict[bytes, tuple[int, bool]]()
    digests = event_digests(graph, values) if facts else {}
    found: dict[int, Check] = {}
    for value, digest in digests.items():
        if assumptions.is_open(digest):
            continue
        number = facts.constants.get(digest)
        if number is not None and is_moderate(number):
            found[value] = Check(value, "constant", digest, number=number)
        elif digest in facts.families:
            family, opposite = facts.families[digest]
            other, turned = first.setdefault(family, (value, opposite))
            if other != value:
                relation: Property = "equal" if turned == opposite else "opposite"
                found[value] = Check(value, relation, digest, other)
    return found


def specialize(form: Lowered, assumptions: Assumptions) -> Lowered:
    """The form with what is known about the events."""
    for _ in range(_MOST_ROUNDS if assumptions.facts else 0):
        copy = _Copy(form, assumptions)
        if not copy.replaced:
            return form
        form = copy.result()
    return form


class _Copy:
    """Copies a graph, with other values in place of some that mixed operations read."""

    def __init__(self, form: Lowered, assumptions: Assumptions) -> None:
        self._form, self._assumptions = form, assumptions
        self._graph = Graph()
        self._checks: list[Check] = []
        self._guards: list[Guard] = []
        self._plain: dict[int, int] = {}  # the same value in the copy
        self._read: dict[int, int] = {}  # what mixed operations read instead
        self.replaced = known_values(form.graph, event_values(form), assumptions)

    def result(self) -> Lowered:
        """The copy."""
        form, g = self._form, self._graph
        for value in live(form.graph, form.subjects):
            op, args, payload = form.graph.ops[value]
            if form.graph.kinds[value] == MIXED:
                copied = self._operation(op, [self._read[arg] for arg in args], payload)
                self._plain[value] = self._read[value] = copied
                continue
            operands = (self._plain[arg] for arg in args)
            self._plain[value] = self._read[value] = g.emit(op, *operands, payload=payload)
            if value in self.replaced:
                self._replace(value)
        roots = Pair(*(None if part is None else self._read[part] for part in form.root))
        return Lowered(
            g,
            roots,
            (*(check.moved(self._plain.__getitem__) for check in form.checks), *self._checks),
            (*(g_._replace(value=self._plain[g_.value]) for g_ in form.guards), *self._guards),
            None if form.accepted is None else self._read[form.accepted],
        )

    def _replace(self, value: int) -> None:
        g, check = self._graph, self.replaced[value].moved(self._plain.__getitem__)
        self._checks.append(check)
        if check.other is None:
            self._read[value] = g.const(check.number)
        else:
            self._read[value] = check.other if check.property == "equal" else g.neg(check.other)

    def _operation(self, op: str, args: list[int], payload: Payload) -> int:
        g = self._graph
        if op in {"add", "sub"}:
            a, b = args
            if self._is_zero(b):
                return a
            if self._is_zero(a):
                return b if op == "add" else g.neg(b)
        if op == "mul":
            for x, y in (args, reversed(args)):
                if self._is_zero(x) and self._is_finite(y):
                    return g.const(0.0)
        rule = _RULES.get(op)
        return rule(g, *args) if rule else g.emit(op, *args, payload=payload)

    def _is_zero(self, value: int) -> bool:
        return self._graph.literal(value) == 0

    def _is_finite(self, value: int) -> bool:
        """Whether a value is finite if others are, whose finiteness the run checks from now on."""
        g = self._graph
        seen: set[int] = set()
        stack = [value]
        while stack:
            part = stack.pop()
            if part in seen:
                continue
            seen.add(part)
            if len(seen) > _MOST_VALUES:
                return False
            if g.kinds[part] == MIXED:
                if g.ops[part][0] not in _POLYNOMIAL:
                    return False
                stack.extend(g.ops[part][1])
        events = [part for part in seen if g.kinds[part] == EVENT]
        digests = event_digests(g, events)
        if any(self._assumptions.is_open(digest) for digest in digests.values()):
            return False
        if not all(math.isfinite(x) for x in map(g.literal, seen) if x is not None):
            return False
        self._checks += [Check(part, "finite", digests[part]) for part in sorted(events)]
        self._guards += [
            Guard(part, "finite") for part in sorted(seen) if g.kinds[part] == PARAMETER
        ]
        return True


_RULES: dict[str, Callable[..., int]] = {
    "add": Graph.add,
    "sub": Graph.sub,
    "mul": Graph.mul,
    "div": Graph.div,
    "neg": Graph.neg,
    "select": Graph.select,
}
