"""Reductions in the fastest form that is valid, with the written form to fall back on.

Models are regrouped under assumptions about their values. Violations by events weaken the
assumptions of that data set once and for all; a violation by parameters, or a sum spoiled by an
event that the written form can sum, sends that one evaluation to the written form. Either way the
result is a function of data and parameters alone: it does not depend on what was evaluated before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import Assumptions, CompiledModel, Invariants, Transform
from laddu_dask.data import Dataset
from laddu_dask.errors import AssumptionError
from laddu_dask.kernels import Accumulator
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.model import Model
from laddu_dask.runtime.payload import Mode
from laddu_dask.runtime.reduction import Pass, Reducer

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelPass:
    """A reduction of a model over a data set.

    Attributes
    ----------
    label
        Names the pass in plans and errors, for example ``signal/data``.
    dataset
        The events.
    model
        The model.
    transform
        What is summed.
    """

    label: str
    dataset: Dataset
    model: Model
    transform: Transform


class AdaptiveReducer:
    """Reduces several model passes.

    Parameters
    ----------
    passes
        The passes; their order is that of all results.
    execution
        Where and how.
    """

    def __init__(self, passes: Sequence[ModelPass], execution: Execution) -> None:
        self.passes = tuple(passes)
        self.execution = execution
        self._assumptions = [Assumptions() for _ in self.passes]
        self._grouped = [self._compile(i) for i in range(len(self.passes))]
        self.reducer = self._open(self._grouped, execution)
        self._written: tuple[list[CompiledModel], Reducer] | None = None

    def _compile(self, index: int) -> CompiledModel:
        item = self.passes[index]
        return item.model.grouped(item.transform, self._assumptions[index])

    def _open(self, models: Sequence[CompiledModel], execution: Execution) -> Reducer:
        return Reducer(
            [
                Pass(item.label, item.dataset, model.programs)
                for item, model in zip(self.passes, models, strict=True)
            ],
            execution,
        )

    def weights(self) -> list[Accumulator]:
        """Sum of weights of every pass."""
        nothing = [np.zeros(0)] * len(self.passes)
        while True:
            try:
                return self.reducer.reduce("weights", nothing)
            except AssumptionError as error:
                self._weaken(error)

    def reduce(
        self, mode: Mode, parameters: Sequence[Array]
    ) -> tuple[list[Accumulator], list[Invariants]]:
        """Sums of every pass, and the invariants that lead back from them to the parameters.

        Parameters
        ----------
        mode
            ``"value"`` or ``"gradient"``.
        parameters
            Free parameters of the model of each pass.
        """
        while True:
            frontiers = [
                model.invariants.valid_frontier(values)
                for model, values in zip(self._grouped, parameters, strict=True)
            ]
            valid = [frontier for frontier in frontiers if frontier is not None]
            if len(valid) < len(frontiers):
                return self.reduce_written(mode, parameters)
            try:
                sums = self.reducer.reduce(mode, valid)
            except AssumptionError as error:
                self._weaken(error)
            else:
                return sums, [model.invariants for model in self._grouped]

    def reduce_written(
        self, mode: Mode, parameters: Sequence[Array]
    ) -> tuple[list[Accumulator], list[Invariants]]:
        """The same by the operations of the written form.

        Its data are streamed: this is the exception, and the memory belongs to the rule.
        """
        if self._written is None:
            models = [item.model.compiled(item.transform) for item in self.passes]
            execution = replace(self.execution, storage="streaming")
            self._written = models, self._open(models, execution)
        models, reducer = self._written
        frontiers = [
            model.invariants.frontier(values)
            for model, values in zip(models, parameters, strict=True)
        ]
        return reducer.reduce(mode, frontiers), [model.invariants for model in models]

    def _weaken(self, error: AssumptionError) -> None:
        """Compile the pass again for what its events have shown."""
        index = [item.label for item in self.passes].index(error.label)
        findings = {bytes.fromhex(digest): found for digest, found in error.findings.items()}
        self._assumptions[index] = self._assumptions[index].weaken(findings)
        self._grouped[index] = self._compile(index)
        self.reducer.close()
        self.reducer = self._open(self._grouped, self.execution)

    def close(self) -> None:
        """Release everything."""
        self.reducer.close()
        if self._written is not None:
            self._written[1].close()
            self._written = None
