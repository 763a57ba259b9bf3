"""Reductions in the fastest form that is valid, with the written form to fall back on.

Models are regrouped under assumptions about their values, and integrals are separated from their
events where that is possible. Violations by events weaken the assumptions of that data set once and
for all; a violation by parameters, or a sum spoiled by an event that the written form can sum,
sends that one evaluation to the written form. Either way the result is a function of data and
parameters alone: it does not depend on what was evaluated before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import Assumptions, CompiledModel, IntegratedSum, Precision
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.compiler.cost import LOAD
from laddu_dask.errors import AssumptionError, LadduError, MemoryBudgetError
from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.memory import Decision, MemoryReport
from laddu_dask.runtime.counting import count_events
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.first_events import first_events, with_facts
from laddu_dask.runtime.forms import (
    ModelPass,
    PassForm,
    PassSum,
    choose_form,
    curvature_frontiers,
    frontier_of,
    stacked,
)
from laddu_dask.runtime.payload import Mode
from laddu_dask.runtime.planning import Pass
from laddu_dask.runtime.reduction import Reducer
from laddu_dask.runtime.worker_info import WorkerInfo

Array = npt.NDArray[np.float64]
Result = TypeVar("Result")

#: Cost of a column, in nanoseconds, where memory is short: roots and reciprocals are computed again
#: in every evaluation, which is still far faster than to read the source again.
THRIFTY = 1.2

#: Separable and general integral may differ by rounding, not by more. Statistics are doubles.
VERIFY_TOLERANCE: dict[Precision, float] = {"f64": 1e-9, "f32": 5e-4}


class AdaptiveReducer:
    """Reduces several model passes.

    Parameters
    ----------
    passes
        The passes; their order is that of all results.
    execution
        Where and how.
    once
        Whether the events are reduced once; see `laddu_dask.runtime.reduction.Reducer`.
    """

    def __init__(
        self, passes: Sequence[ModelPass], execution: Execution, *, once: bool = False
    ) -> None:
        self.passes = tuple(passes)
        self.execution = execution
        self._once_only = once
        self._assumptions = [Assumptions() for _ in self.passes]
        self._integrals: list[IntegratedSum | None] = [None for _ in self.passes]
        self._integrated = False
        self._options = execution.kernel_options
        self._separates = [execution.normalization != "general" for _ in self.passes]
        self._forms = [self._form(i) for i in range(len(self.passes))]
        self.reducer = self._open()
        self._written: tuple[list[CompiledModel], Reducer] | None = None
        self._once: dict[str, Decision] = {}
        self._first_events: list[dict[str, Array] | None] | None = None

    def _form(self, index: int) -> PassForm:
        form = choose_form(
            self.passes[index],
            self._assumptions[index],
            self._options,
            separate=self._separates[index],
            verify=self.execution.normalization == "verify",
        )
        return form.evaluated_by(get_backend(self.execution.backend_name).evaluator)

    def _open(self) -> Reducer:
        """A reducer of everything that needs the events in every evaluation."""
        self._running = [
            (index, model) for index, form in enumerate(self._forms) for model in form.per_event
        ]
        passes = []
        for index, model in self._running:
            item = self.passes[index]
            passes.append(Pass(item.label, item.dataset, model.programs))
        return Reducer(passes, self.execution, once=self._once_only)

    # planning ------------------------------------------------------------------------------

    def plan(self, *, now: bool = False) -> MemoryReport:
        """Decisions in the order of the passes, made before any event is read.

        Only events whose number is not known are read, to count them.
        """
        self._count()
        self._separate_what_fits()
        self._keep_what_fits()
        plan = self.reducer.plan(now=now)
        decisions = list(plan.decisions)
        result = []
        for index, form in enumerate(self._forms):
            result += [decisions.pop(0) for _ in form.per_event]
            if not form.per_event:
                result.append(self._plan_statistics(index))
        return MemoryReport(result, plan.pools, plan.processes, plan.notes)

    def _count(self) -> None:
        count_events((item.dataset for item in self.passes), self.execution)

    def _separate_what_fits(self) -> None:
        """Leave an integral whole if a chunk of its many statistics exceeds the budget."""
        for index, form in enumerate(self._forms):
            if form.separable is not None:
                try:
                    self._plan_statistics(index)
                except MemoryBudgetError:
                    self._sum_every_event(index)

    def _keep_what_fits(self) -> None:
        """Compute more again from fewer columns, if these fit in memory and the others do not.

        Not in single precision: columns are rounded there, and results must not depend on memory.
        """
        if self.execution.precision != "f64":
            return
        if self.execution.storage in ("spilled", "streaming") or self._options.load != LOAD:
            return
        before = self._not_kept()
        if before == 0:
            return
        self._use(THRIFTY)
        if self._not_kept() >= before:
            self._use(LOAD)

    def _not_kept(self) -> float:
        """Data sets that memory has no room for; infinite if that is not allowed."""
        try:
            decisions = self.reducer.plan().decisions
        except MemoryBudgetError:
            return math.inf
        return sum(decision.resident_events < decision.events for decision in decisions)

    def _use(self, load: float) -> None:
        self._options = replace(self._options, load=load)
        for index in range(len(self.passes)):
            self._rebuild(index)

    def _sum_every_event(self, index: int) -> None:
        self._separates[index] = False
        self._renew(index)

    def _plan_statistics(self, index: int) -> Decision:
        label = self.passes[index].label
        if label not in self._once:
            reducer = self._statistics_reducer(index)
            try:
                (decision,) = reducer.plan().decisions
            finally:
                reducer.close()
            why = "its integral is separable, so the events are read once and not kept"
            self._once[label] = replace(decision, reason=why)
        return self._once[label]

    def _statistics_reducer(self, index: int) -> Reducer:
        form, item = self._forms[index], self.passes[index]
        assert form.separable is not None
        once = [Pass(item.label, item.dataset, form.separable.statistics)]
        return Reducer(once, replace(self.execution, storage="streaming"), once=True)

    # sums ----------------------------------------------------------------------------------

    def weights(self) -> list[Accumulator | None]:
        """Sum of weights of every pass; None for one whose events are not needed any more."""

        def attempt() -> list[Accumulator | None]:
            self._integrate()
            nothing = [np.zeros(0)] * len(self.reducer.passes)
            sums = self.reducer.reduce("weights", nothing)
            result: list[Accumulator | None] = []
            for form in self._forms:
                own = [sums.pop(0) for _ in form.per_event]
                result.append(own[0] if own else None)
            return result

        return self._under_valid_assumptions(attempt)

    def reduce(self, mode: Mode, parameters: Sequence[Array]) -> list[PassSum]:
        """Sum and, with mode ``"gradient"``, its derivative, of every pass.

        Parameters
        ----------
        mode
            ``"value"`` or ``"gradient"``.
        parameters
            Free parameters of the model of each pass.
        """
        (found,) = self.reduce_many(mode, [parameters])
        return found

    def reduce_many(self, mode: Mode, points: Sequence[Sequence[Array]]) -> list[list[PassSum]]:
        """The same at several points, which share one pass over the events.

        Bit for bit what each would give by itself: a point whose guards do not hold is evaluated in
        the written form, and only that one.
        """
        found = self._under_valid_assumptions(lambda: self._reduce(mode, points))
        left = [point for point, sums in zip(points, found, strict=True) if sums is None]
        written = iter(self.reduce_written(mode, left) if left else ())
        done = []
        for point, sums in zip(points, found, strict=True):
            if sums is None:
                done.append(next(written))
            else:
                done.append(sums if mode == "value" else self._with_finite_gradients(point, sums))
        return done

    def _with_finite_gradients(
        self, parameters: Sequence[Array], sums: list[PassSum]
    ) -> list[PassSum]:
        """Derivatives of the written form where those of a separable integral are not finite.

        Its value stays: it is the same number whether derivatives are wanted or not.
        """
        spoiled = [
            index
            for index, (integral, total) in enumerate(zip(self._integrals, sums, strict=True))
            if integral is not None and not total.has_finite_gradient
        ]
        if spoiled:
            (written,) = self.reduce_written("gradient", [parameters])
            for index in spoiled:
                kept = sums[index]
                sums[index] = written[index]._replace(value=kept.value, unrounded=kept.unrounded)
        return sums

    def _reduce(self, mode: Mode, points: Sequence[Sequence[Array]]) -> list[list[PassSum] | None]:
        """None for a point where a guard does not hold."""
        self._integrate()
        ready: dict[int, tuple[list[PassSum | None], list[Array]]] = {}
        for k, parameters in enumerate(points):
            parts = self._separable_parts(parameters, mode)
            frontiers = None if parts is None else self._frontiers(parameters)
            if parts is not None and frontiers is not None:
                ready[k] = parts, frontiers
        result: list[list[PassSum] | None] = [None for _ in points]
        if ready:
            each = zip(*(frontiers for _, frontiers in ready.values()), strict=True)
            sums = self.reducer.reduce_many(mode, [stacked(rows) for rows in each])
            for position, (k, (parts, _)) in enumerate(ready.items()):
                own = [
                    PassSum.of(total[position], model, points[k][index], mode)
                    for total, (index, model) in zip(sums, self._running, strict=True)
                ]
                result[k] = self._joined(own, parts)
        return result

    def _frontiers(self, parameters: Sequence[Array]) -> list[Array] | None:
        """What the reducer's kernels read of the parameters; None where a form is not valid."""
        frontiers = []
        for index, model in self._running:
            frontier = frontier_of(model, parameters[index])
            if frontier is None:
                return None
            frontiers.append(frontier)
        return frontiers

    def curve(self, parameters: Sequence[Array], directions: Sequence[Array]) -> list[PassSum]:
        """Sum, derivative, and second derivatives along directions, of every pass.

        Parameters
        ----------
        parameters
            Free parameters of the model of each pass.
        directions
            Directions for each pass, shape (directions, parameters), at least one; all share one
            pass over the events.
        """
        found = self._under_valid_assumptions(lambda: self._curve(parameters, directions))
        return self.curve_written(parameters, directions) if found is None else found

    def _curve(
        self, parameters: Sequence[Array], directions: Sequence[Array]
    ) -> list[PassSum] | None:
        """None where a guard does not hold."""
        self._integrate()
        parts = self._separable_parts(parameters, "gradient")
        if parts is None or not all(part is None or part.has_finite_gradient for part in parts):
            return None
        models = [(model, parameters[index]) for index, model in self._running]
        along = [directions[index] for index, _ in self._running]
        frontiers = []
        for (model, values), rows in zip(models, along, strict=True):
            found = curvature_frontiers(model, values, rows)
            if found is None:
                return None
            frontiers.append(found)
        sums = self.reducer.reduce_many("curvature", frontiers)
        own = [
            PassSum.curved_along(total, model, values, rows)
            for total, (model, values), rows in zip(sums, models, along, strict=True)
        ]
        for index, (integral, part) in enumerate(zip(self._integrals, parts, strict=True)):
            if integral is not None and part is not None:
                curved = [integral.curve(parameters[index], row) for row in directions[index]]
                parts[index] = part._replace(curved=np.array(curved))
        return self._joined(own, parts)

    def _separable_parts(
        self, parameters: Sequence[Array], mode: Mode
    ) -> list[PassSum | None] | None:
        """What statistics give to each pass; None where one of the forms is not valid."""
        parts: list[PassSum | None] = []
        for integral, values in zip(self._integrals, parameters, strict=True):
            part = None
            if integral is not None:
                part = PassSum.integrated(integral, values, mode)
                if part is None:
                    return None
            parts.append(part)
        return parts

    def _joined(self, sums: list[PassSum], parts: Sequence[PassSum | None]) -> list[PassSum]:
        """The passes as sums of their parts; `sums` are those of the reducer."""
        result = []
        for item, form, part in zip(self.passes, self._forms, parts, strict=True):
            own = [sums.pop(0) for _ in form.per_event]
            if form.reference is not None:
                tolerance = VERIFY_TOLERANCE[self.execution.precision]
                _verify(item, [*own[:-1], part], own.pop(), tolerance)
            result.append(PassSum.total([*own, *([] if part is None else [part])]))
        return result

    # written form --------------------------------------------------------------------------

    def reduce_written(self, mode: Mode, points: Sequence[Sequence[Array]]) -> list[list[PassSum]]:
        """`reduce_many` by the operations of the written form."""
        models, reducer = self._written_form()
        frontiers = [
            np.stack([model.invariants.frontier(point[i]) for point in points])
            for i, model in enumerate(models)
        ]
        sums = reducer.reduce_many(mode, frontiers)
        return [
            [
                PassSum.of(total[k], model, values, mode)
                for total, model, values in zip(sums, models, point, strict=True)
            ]
            for k, point in enumerate(points)
        ]

    def curve_written(
        self, parameters: Sequence[Array], directions: Sequence[Array]
    ) -> list[PassSum]:
        """`curve` by the operations of the written form."""
        models, reducer = self._written_form()
        frontiers = []
        for model, values, rows in zip(models, parameters, directions, strict=True):
            found = curvature_frontiers(model, values, rows)
            assert found is not None, "the written form is always valid"
            frontiers.append(found)
        sums = reducer.reduce_many("curvature", frontiers)
        return [
            PassSum.curved_along(total, model, values, rows)
            for total, model, values, rows in zip(sums, models, parameters, directions, strict=True)
        ]

    def _written_form(self) -> tuple[list[CompiledModel], Reducer]:
        """Its data are streamed: this is the exception, and the memory belongs to the rule."""
        if self._written is None:
            options = self.execution.kernel_options
            models = [item.model.compiled(item.transform, options) for item in self.passes]
            passes = [
                Pass(item.label, item.dataset, model.programs)
                for item, model in zip(self.passes, models, strict=True)
            ]
            streamed = replace(self.execution, storage="streaming")
            self._written = models, Reducer(passes, streamed, once=self._once_only)
        return self._written

    def _integrate(self) -> None:
        """Sum the statistics that are not known yet, from the start if that changes a form."""
        while not self._integrated:
            self._separate_what_fits()
            self._keep_what_fits()
            self._integrated = all(map(self._is_integrated, range(len(self.passes))))

    def _is_integrated(self, index: int) -> bool:
        """Whether a pass needs no more statistics, now that they have been summed."""
        form = self._forms[index]
        if form.separable is None or self._integrals[index] is not None:
            return True
        reducer = self._statistics_reducer(index)
        try:
            (sums,) = reducer.reduce("value", [np.zeros(0)])
        finally:
            reducer.close()
        if sums.first_bad is None:
            self._integrals[index] = form.separable.of(sums.round())
            return True
        # An event that is not finite: the general form says which, and what went wrong.
        self._sum_every_event(index)
        return False

    # assumptions ---------------------------------------------------------------------------

    def _under_valid_assumptions(self, attempt: Callable[[], Result]) -> Result:
        """Weaken assumptions that events violate until none is left that they do."""
        self._look_at_first_events()
        while True:
            try:
                return attempt()
            except AssumptionError as error:
                index = [item.label for item in self.passes].index(error.label)
                findings = {bytes.fromhex(d): found for d, found in error.findings.items()}
                self._assumptions[index] = self._assumptions[index].weaken(findings)
                self._renew(index)

    def _look_at_first_events(self) -> None:
        """Take the facts that they suggest into the assumptions, once."""
        if self._first_events is not None:
            return
        self._count()
        self._first_events = [
            first_events(item.dataset, item.model.columns) for item in self.passes
        ]
        for index in range(len(self.passes)):
            suggested = self._suggested(index)
            if suggested.facts:
                self._assumptions[index] = suggested
                self._rebuild(index)

    def _suggested(self, index: int) -> Assumptions:
        """The assumptions with facts about the values of the form that they lead to."""
        item, known = self.passes[index], self._assumptions[index]
        events = None if self._first_events is None else self._first_events[index]
        if events is None or known.is_open(RANGE):
            return known
        separate = item.transform == "linear" and self._separates[index]
        return with_facts(
            known,
            lambda assumptions: item.model.probe(assumptions, separate=separate),
            events,
            self.execution.backend_name,
        )

    def _renew(self, index: int) -> None:
        self._assumptions[index] = self._suggested(index)
        self._rebuild(index)

    def _rebuild(self, index: int) -> None:
        self._forms[index] = self._form(index)
        self._integrals[index] = None
        self._integrated = False
        self._once.pop(self.passes[index].label, None)
        self.reducer.close()
        self.reducer = self._open()

    # end -------------------------------------------------------------------------------------

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Memory and threads of every process that holds partitions."""
        return self.reducer.worker_info()

    def close(self) -> None:
        """Release everything but the statistics, which are a few numbers."""
        self.reducer.close()
        if self._written is not None:
            self._written[1].close()
            self._written = None


def _verify(
    item: ModelPass, parts: Sequence[PassSum | None], reference: PassSum, tolerance: float
) -> None:
    total = PassSum.total([part for part in parts if part is not None])
    error = abs(total.value - reference.value)
    if reference.first_bad is None and not error <= tolerance * abs(reference.value):
        raise LadduError(
            f"{item.label}: the separated integral is {total.value!r}, the sum over events "
            f"{reference.value!r}; use normalization='general' and report this",
            label=item.label,
        )
