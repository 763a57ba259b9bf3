"""What the compiler made of a model, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from laddu_dask.compiler import (
    Candidate,
    CompiledModel,
    IntegralForm,
    event_cost,
)
from laddu_dask.compiler.ir import Instruction, Region
from laddu_dask.kernels.cpu import how_it_runs

#: Lists are cut here.
_MOST_LINES = 24


def explain_model(
    parameters: Sequence[str],
    columns: Sequence[str],
    data: Sequence[Candidate],
    integral: IntegralForm,
) -> str:
    """Everything that the compiler decided.

    Parameters
    ----------
    parameters, columns
        Names of the free parameters and of the event columns that the model reads.
    data
        Forms of the sum of logarithms over the data.
    integral
        Form of the normalisation integral.
    """
    best = min(data, key=lambda candidate: candidate.cost)
    lines = [
        f"parameters: {', '.join(parameters) or 'none'}",
        f"event columns: {', '.join(columns) or 'none'}",
        f"sum of w ln I over the data: {best.name}, about {best.cost:.1f} ns per event",
        *(
            f"  instead of: {other.name}, about {other.cost:.1f} ns per event"
            for other in data
            if other is not best
        ),
        *_programs(best.model),
        f"  derivatives: {best.mode} mode, the cheaper one",
        f"  executor: {how_it_runs(best.model.programs.gradient)}",
    ]
    separable, residual = integral.separable, integral.residual
    if separable is None:
        lines.append("normalisation integral: not separable, every event in every evaluation")
    else:
        lines.append(
            f"normalisation integral: {separable.n_statistics} statistics, summed once over "
            f"{separable.statistics.n_cached} values of every event"
            + ("" if residual is None else ", and a rest that needs every event")
        )
    if residual is not None:
        lines.append(f"  {_in_short(residual)}")
    return "\n".join(lines)


def _programs(model: CompiledModel) -> Iterator[str]:
    programs, invariants = model.programs, model.invariants
    found = event_cost(programs)
    kept = len(found.cached)
    yield f"  operations of parameters only: {invariants.operations} per evaluation"
    yield f"  operations of events only: {found.prepare} per event, once"
    yield (
        f"  operations of both: {found.forward} forward and {found.backward} backward per event "
        f"and evaluation"
    )
    yield f"  sums over events: the value and {invariants.n_adjoints} derivatives"
    yield f"  kept: {kept} columns, {8 * kept} bytes per event ({8 * (kept + 1)} with a weight)"
    yield from _listed([f"c{row} = {text}" for row, text in enumerate(found.cached)])
    if found.recomputed:
        yield (
            f"  computed again from them: {len(found.recomputed)} values, by {found.recomputing} "
            "of the operations"
        )
        yield from _listed(found.recomputed)
    assumed = Counter(check.property for check in programs.checks)
    if assumed:
        texts = ", ".join(f"{count} {name}" for name, count in sorted(assumed.items()))
        yield f"  assumed about event values and checked: {texts}"


def _in_short(model: CompiledModel) -> str:
    found = event_cost(model.programs)
    return (
        f"{found.forward} forward and {found.backward} backward operations per event, on "
        f"{len(found.cached)} columns"
    )


def _listed(texts: Sequence[str]) -> Iterator[str]:
    for text in texts[:_MOST_LINES]:
        yield f"    {text}"
    if len(texts) > _MOST_LINES:
        yield f"    and {len(texts) - _MOST_LINES} more"


def source_lines(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[str]:
    """A program as text, one operation per line; regions are indented."""
    lines = []
    for index, (op, args, payload) in enumerate(instructions):
        operands = [f"v{arg}" for arg in args]
        if isinstance(payload, Region):
            inner = source_lines(payload.instructions, payload.outputs)
            lines += [f"v{index} = {op}({', '.join(operands)}):", *(f"    {x}" for x in inner)]
        else:
            operands += [] if payload is None else [str(payload)]
            lines.append(f"v{index} = {op}({', '.join(operands)})")
    return [*lines, "return " + ", ".join(f"v{output}" for output in outputs)]
