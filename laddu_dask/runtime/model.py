"""`Model`: an expression with its compiled forms, evaluated event by event."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import (
    Assumptions,
    CompiledModel,
    IntegralForm,
    KernelOptions,
    NormalForm,
    ParameterLayout,
    Precision,
    Probe,
    Transform,
    columns_read,
    compile_candidates,
    compile_form,
    compile_model,
    integrate,
    probe_integral,
    probe_model,
    require_scalar,
)
from laddu_dask.compiler.cost import LOAD
from laddu_dask.compiler.options import DEFAULT
from laddu_dask.data import Dataset
from laddu_dask.errors import DataError, ExpressionError
from laddu_dask.expr import Expr, ParameterSpec, as_expr, project
from laddu_dask.runtime.eventwise import evaluate_rows, plan_work
from laddu_dask.runtime.execution import Execution, execution_or_default
from laddu_dask.runtime.explanation import explain_model, source_lines
from laddu_dask.runtime.forms import PassSum
from laddu_dask.runtime.sink import write_parquet
from laddu_dask.runtime.values import (
    Finish,
    ValuesAndGradient,
    ValuesOfPoint,
    ValuesOfPoints,
    real_parts,
)
from laddu_dask.runtime.visiting import Consume, Reduction, visit
from laddu_dask.runtime.weighted_sums import ReductionEvaluation, weighted_sums

Parameters = Sequence[float] | npt.NDArray[np.float64] | Mapping[str, float] | None


class Model:
    """A scalar expression as a model; immutable and picklable.

    Parameters
    ----------
    expr
        The intensity, or any other scalar expression of parameters and event columns.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    ParameterError
        One parameter name with two definitions.
    """

    def __init__(self, expr: Expr) -> None:
        self.expr = as_expr(expr)
        self.layout = ParameterLayout.of(self.expr.node)
        require_scalar(self.expr)
        self._compiled: dict[tuple[Transform, KernelOptions], CompiledModel] = {}
        self._normal_forms: list[NormalForm] = []

    def __reduce__(self) -> tuple[Any, tuple[Expr]]:
        return Model, (self.expr,)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("laddu-dask-model", self.digest)

    @property
    def digest(self) -> str:
        """Content digest of the expression with all definitions of parameters."""
        return self.expr.node.digest.hex()

    def grouped(
        self,
        transform: Transform,
        assumptions: Assumptions,
        options: KernelOptions = DEFAULT,
    ) -> CompiledModel:
        """The fast form for a transform; valid where the assumptions hold."""
        return compile_form(self._normalized(assumptions), transform, options)

    def integral(self, assumptions: Assumptions, options: KernelOptions = DEFAULT) -> IntegralForm:
        """The sum over events of the real part, separated as far as possible."""
        return integrate(self._normalized(assumptions), options)

    def probe(self, assumptions: Assumptions, *, separate: bool) -> Probe:
        """Event values that facts about a data set may be about, in the form that is evaluated."""
        form = self._normalized(assumptions)
        return probe_integral(form) if separate else probe_model(form)

    def _normalized(self, assumptions: Assumptions) -> NormalForm:
        """The normal form; the last two are kept, for data and Monte Carlo may know other facts."""
        for form in self._normal_forms:
            if form.assumptions == assumptions:
                return form
        form = NormalForm(self.expr, assumptions)
        self._normal_forms = [form, *self._normal_forms[:1]]
        return form

    def compiled(self, transform: Transform, options: KernelOptions = DEFAULT) -> CompiledModel:
        """The form with the operations of the expression as written; made once."""
        options = replace(options, load=LOAD)  # whatever it is, all columns are kept
        key = transform, options
        if key not in self._compiled:
            self._compiled[key] = compile_model(self.expr, transform, options=options)
        return self._compiled[key]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters, in the order of all vectors."""
        return self.layout.names

    @property
    def parameters(self) -> tuple[ParameterSpec, ...]:
        """Definitions of all parameters, fixed ones included."""
        return self.layout.specs

    @property
    def default_parameters(self) -> npt.NDArray[np.float64]:
        """Start values of the free parameters."""
        return self.layout.defaults

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Event columns that the model reads."""
        return columns_read(self.expr)

    def project(self, tags: str | Iterable[str]) -> Model:
        """The model with only the tagged parts that carry one of `tags`.

        Raises
        ------
        ExpressionError
            Unknown tag.
        """
        return Model(project(self.expr, tags))

    def evaluate(
        self,
        dataset: Dataset | None = None,
        parameters: Parameters = None,
        execution: Execution | None = None,
        real: bool = False,
        lazy: bool = False,
    ) -> Any:
        """Value at every event.

        Parameters
        ----------
        dataset
            The events; not needed by a model without event columns.
        parameters
            Vector in the order of `parameter_names`, or a mapping; start values otherwise.
        execution
            Where and how.
        real
            Return real numbers.
        lazy
            Return a Dask array with a chunk per partition, computed when and where somebody asks:
            on threads of this process, or on a cluster, ``client.compute(values)``. Nothing is
            read, and nothing is gathered that is not asked for.

        Returns
        -------
        ndarray or dask.array.Array
            complex128 (or float64), shape (n_events,); a single number without a data set.

        Raises
        ------
        DataError
            Missing data set or column.
        EvaluationError
            `real` was asked for and some value has an imaginary part beyond rounding.
        """
        vector = self.layout.vector(parameters)
        execution = execution_or_default(execution)
        if dataset is None and not lazy:
            value, _ = self._without_events(vector, execution.precision)
            values = np.array([value])
            return (real_parts(values, execution.precision) if real else values)[0]
        finish = ValuesOfPoint(real, execution.precision)
        (found,) = self._at_events(
            dataset, [vector], execution, finish, [((), ())], real=real, lazy=lazy
        )
        return found

    def value_and_gradient(
        self,
        dataset: Dataset | None = None,
        parameters: Parameters = None,
        execution: Execution | None = None,
        lazy: bool = False,
    ) -> tuple[Any, Any]:
        """Value and derivative with respect to each free parameter at every event.

        Returns
        -------
        values, gradient
            complex128, shapes (n_events,) and (n_events, n_parameters); without a data set a
            number and shape (n_parameters,). Dask arrays with `lazy`, see `evaluate`; both come of
            one pass when they are computed together: ``dask.compute(values, gradient)``.
        """
        vector = self.layout.vector(parameters)
        execution = execution_or_default(execution)
        if dataset is None and not lazy:
            return self._without_events(vector, execution.precision)
        model = self.compiled("complex", execution.kernel_options)
        finish = ValuesAndGradient(model.invariants.jacobian(vector))
        shapes = [((), ()), ((), (len(vector),))]
        values, gradient = self._at_events(
            dataset, [vector], execution, finish, shapes, gradient=True, lazy=lazy
        )
        return values, gradient

    def evaluate_many(
        self,
        dataset: Dataset,
        points: Iterable[Parameters],
        execution: Execution | None = None,
        real: bool = False,
        lazy: bool = False,
    ) -> Any:
        """Value at every event for several parameter points; the events are read once.

        Returns
        -------
        ndarray or dask.array.Array
            complex128 (or float64), shape (points, n_events); each row has the bits that `evaluate`
            gives. A Dask array with `lazy`, chunked along the events.

        Raises
        ------
        DataError, EvaluationError
            As `evaluate` does.
        """
        vectors = [self.layout.vector(point) for point in points]
        execution = execution_or_default(execution)
        finish = ValuesOfPoints(real, execution.precision)
        (found,) = self._at_events(
            dataset, vectors, execution, finish, [((len(vectors),), ())], real=real, lazy=lazy
        )
        return found

    def _at_events(
        self,
        dataset: Dataset | None,
        vectors: Sequence[npt.NDArray[np.float64]],
        execution: Execution,
        finish: Finish,
        shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        *,
        lazy: bool,
        real: bool = False,
        gradient: bool = False,
    ) -> tuple[Any, ...]:
        """What is made of the rows of all events: now, or by tasks that are only described.

        `shapes` are those before and behind the axis of events.
        """
        if dataset is None:
            raise DataError("lazy=True is about the events of a data set; pass one")
        model = (
            self.compiled("complex", execution.kernel_options)
            if gradient
            else self._values(execution)
        )
        if not lazy:
            rows = evaluate_rows(model, dataset, vectors, execution, gradient=gradient)
            return finish(rows, 0)
        from laddu_dask.runtime.lazy import Output, lazy_arrays  # dask.array takes its time

        work, partitions = plan_work(model, dataset, vectors, execution, gradient=gradient)
        outputs = [
            Output(before, after, np.float64 if real else np.complex128) for before, after in shapes
        ]
        return lazy_arrays(work, dataset, partitions, finish, outputs)

    def write(
        self,
        dataset: Dataset,
        folder: str | os.PathLike[str],
        parameters: Parameters = None,
        execution: Execution | None = None,
        name: str = "value",
        overwrite: bool = False,
    ) -> Dataset:
        """Write the value at every event to Parquet, from where it is computed.

        The column is `name`, or ``name_re`` and ``name_im`` if the model may be complex. See
        `laddu_dask.write_parquet`, which writes several quantities in one pass.
        """
        quantities = {name: self.expr}
        return write_parquet(quantities, dataset, folder, parameters, execution, overwrite)

    def reduce(
        self,
        dataset: Dataset,
        parameters: Parameters = None,
        execution: Execution | None = None,
        reduction: Reduction = "linear",
    ) -> float:
        """Weighted sum over all events; they are read once, where they lie, and not kept.

        Parameters
        ----------
        dataset
            The events.
        parameters
            Vector in the order of `parameter_names`, or a mapping; start values otherwise.
        execution
            Where and how. On a cluster the sums of the partitions are merged by a tree of tasks.
            The sum is never separated from the events: `normalization` and `storage` do not matter.
        reduction
            As in `visit`, of the real part: ``"positive"`` reads the events twice.

        Returns
        -------
        float
            The exact sum of the sums of tiles, rounded once: the same bits however events are cut.

        Raises
        ------
        EvaluationError
            A value that cannot be summed, also one of weight zero; names the first such event.
        DataError
            A column is missing, or events are.
        """
        return self.reduce_many(dataset, [parameters], execution, reduction).item(0)

    def reduce_with_gradient(
        self,
        dataset: Dataset,
        parameters: Parameters = None,
        execution: Execution | None = None,
        reduction: Reduction = "linear",
    ) -> ReductionEvaluation:
        """The same with the derivative by each free parameter, shape (n_parameters,)."""
        (total,) = self._sums(dataset, [parameters], execution, reduction, "gradient")
        assert total.gradient is not None
        return ReductionEvaluation(total.value, total.gradient)

    def reduce_many(
        self,
        dataset: Dataset,
        points: Iterable[Parameters],
        execution: Execution | None = None,
        reduction: Reduction = "linear",
    ) -> npt.NDArray[np.float64]:
        """`reduce` at several parameter points in one pass, shape (points,), with the same bits."""
        sums = self._sums(dataset, points, execution, reduction, "value")
        return np.array([total.value for total in sums], dtype=np.float64)

    def reduce_many_with_gradient(
        self,
        dataset: Dataset,
        points: Iterable[Parameters],
        execution: Execution | None = None,
        reduction: Reduction = "linear",
    ) -> ReductionEvaluation:
        """The same with derivatives, shapes (points,) and (points, n_parameters)."""
        sums = self._sums(dataset, points, execution, reduction, "gradient")
        gradients = np.array([total.gradient for total in sums], dtype=np.float64)
        return ReductionEvaluation(
            np.array([total.value for total in sums], dtype=np.float64),
            gradients.reshape(len(sums), len(self.parameter_names)),
        )

    def _sums(
        self,
        dataset: Dataset,
        points: Iterable[Parameters],
        execution: Execution | None,
        reduction: Reduction,
        mode: Literal["value", "gradient"],
    ) -> list[PassSum]:
        vectors = [self.layout.vector(point) for point in points]
        execution = execution_or_default(execution)
        return weighted_sums(self, dataset, vectors, execution, reduction, mode)

    def visit(
        self,
        dataset: Dataset,
        points: Mapping[str, Parameters],
        consume: Consume,
        execution: Execution | None = None,
        reduction: Reduction | None = None,
    ) -> list[float]:
        """Show values to a function block by block, without ever holding those of all events.

        Parameters
        ----------
        dataset
            The events; read once, in order.
        points
            Parameter points by a name each, which stands in front of errors about it.
        consume
            Called as ``consume(offset, number of the point, values)``, in this thread: for each
            block in order, for each point in order. `offset` counts the events before the block,
            `values` are complex128. What it raises ends the visit and is passed on.
        execution
            Where and how; `chunk_events` sets the length of blocks.
        reduction
            Sum of the real part v with weights w: ``"linear"``: w v; ``"positive"``: w v, every v
            must be positive; ``"log"``: w ln v, likewise. A block is summed before it is shown.

        Returns
        -------
        list of float
            One sum per point, exact before its one rounding; empty without `reduction`.

        Raises
        ------
        EvaluationError
            A value that cannot be summed.
        DataError
            A column is missing.
        """
        vectors = {name: self.layout.vector(point) for name, point in points.items()}
        execution = execution_or_default(execution)
        return visit(self._values(execution), dataset, vectors, consume, execution, reduction)

    def _values(self, execution: Execution) -> CompiledModel:
        return self.compiled("complex", KernelOptions(precision=execution.precision))

    def _without_events(
        self, vector: npt.NDArray[np.float64], precision: Precision
    ) -> tuple[np.complex128, npt.NDArray[np.complex128]]:
        if self.columns:
            raise DataError(
                f"the model reads the event columns {', '.join(self.columns)}; pass a data set",
                columns=list(self.columns),
            )
        one_event = Dataset.from_arrays(weights=np.ones(1))
        values, gradient = self.value_and_gradient(
            one_event, vector, Execution(backend="interpreter", threads=1, precision=precision)
        )
        return values[0], gradient[0]

    def explain(self) -> str:
        """What the compiler made of the expression, in words and numbers.

        Before anything is known about the events: what a data set shows to be constant, equal or
        zero goes in addition.
        """
        return explain_model(
            self.parameter_names,
            self.columns,
            compile_candidates(self._normalized(Assumptions()), "log"),
            self.integral(Assumptions()),
        )

    def kernel_source(self, transform: Transform = "linear") -> str:
        """The value-and-gradient program of a fit as text, one operation per line.

        Indented lines are code for few events, in which the inputs are the operands of ``cold``
        after the condition.
        """
        if transform not in get_args(Transform):
            raise ExpressionError(
                f"kernel_source: unknown transform {transform!r}; choose one of "
                f"{', '.join(map(repr, get_args(Transform)))}",
                operation="kernel_source",
            )
        program = self.grouped(transform, Assumptions()).programs.gradient
        return "\n".join(source_lines(program.instructions, program.outputs))

    def __repr__(self) -> str:
        return f"<Model {self.expr!r} with {len(self.parameter_names)} free parameters>"
