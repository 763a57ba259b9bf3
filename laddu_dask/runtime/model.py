"""`Model`: an expression with its compiled forms, evaluated event by event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

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
    compile_elements,
    compile_form,
    compile_model,
    integrate,
    probe_integral,
    probe_model,
    require_scalar,
)
from laddu_dask.compiler.cost import LOAD
from laddu_dask.compiler.ir import Instruction, Region
from laddu_dask.compiler.options import DEFAULT
from laddu_dask.data import Dataset
from laddu_dask.errors import DataError, EvaluationError, ExpressionError
from laddu_dask.expr import Expr, ParameterSpec, as_expr, project
from laddu_dask.runtime.eventwise import evaluate_rows
from laddu_dask.runtime.execution import Execution, execution_or_default
from laddu_dask.runtime.explanation import explain_model
from laddu_dask.runtime.visiting import Consume, Reduction, complex_rows, visit

Parameters = Sequence[float] | npt.NDArray[np.float64] | Mapping[str, float] | None

#: An imaginary part up to this share of the modulus is rounding, not physics.
REAL_TOLERANCE: dict[Precision, float] = {"f64": 1e-12, "f32": 1e-5}


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

        Returns
        -------
        ndarray
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
        if dataset is None:
            value, _ = self._without_events(vector, execution.precision)
            values = np.array([value])
        else:
            model = self._values(execution)
            (rows,) = evaluate_rows(model, dataset, [vector], execution, gradient=False)
            values = complex_rows(rows[0], rows[1])
        result = _as_real(values, execution.precision) if real else values
        return result if dataset is not None else result[0]

    def value_and_gradient(
        self,
        dataset: Dataset | None = None,
        parameters: Parameters = None,
        execution: Execution | None = None,
    ) -> tuple[Any, npt.NDArray[np.complex128]]:
        """Value and derivative with respect to each free parameter at every event.

        Returns
        -------
        values, gradient
            complex128, shapes (n_events,) and (n_events, n_parameters); without a data set a
            number and shape (n_parameters,).
        """
        vector = self.layout.vector(parameters)
        execution = execution_or_default(execution)
        if dataset is None:
            return self._without_events(vector, execution.precision)
        model = self.compiled("complex", execution.kernel_options)
        (rows,) = evaluate_rows(model, dataset, [vector], execution, gradient=True)
        n = model.invariants.n_adjoints
        adjoints = complex_rows(rows[2 : 2 + n], rows[2 + n : 2 + 2 * n])
        gradient = _chain(adjoints, model.invariants.jacobian(vector))
        return complex_rows(rows[0], rows[1]), gradient

    def evaluate_many(
        self,
        dataset: Dataset,
        points: Iterable[Parameters],
        execution: Execution | None = None,
        real: bool = False,
    ) -> Any:
        """Value at every event for several parameter points; the events are read once.

        Returns
        -------
        ndarray
            complex128 (or float64), shape (points, n_events); each row has the bits that `evaluate`
            gives.

        Raises
        ------
        DataError, EvaluationError
            As `evaluate` does.
        """
        vectors = [self.layout.vector(point) for point in points]
        execution = execution_or_default(execution)
        rows = evaluate_rows(self._values(execution), dataset, vectors, execution, gradient=False)
        values = complex_rows(rows[:, 0], rows[:, 1])
        if not real:
            return values
        each = [_as_real(row, execution.precision) for row in values]
        return np.array(each).reshape(values.shape)

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
        return "\n".join(_source(program.instructions, program.outputs))

    def __repr__(self) -> str:
        return f"<Model {self.expr!r} with {len(self.parameter_names)} free parameters>"


def _source(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[str]:
    lines = []
    for index, (op, args, payload) in enumerate(instructions):
        operands = [f"v{arg}" for arg in args]
        if isinstance(payload, Region):
            inner = _source(payload.instructions, payload.outputs)
            lines += [f"v{index} = {op}({', '.join(operands)}):", *(f"    {x}" for x in inner)]
        else:
            operands += [] if payload is None else [str(payload)]
            lines.append(f"v{index} = {op}({', '.join(operands)})")
    return [*lines, "return " + ", ".join(f"v{output}" for output in outputs)]


def evaluate_elements(
    expr: Expr,
    dataset: Dataset,
    parameters: Parameters = None,
    execution: Execution | None = None,
) -> npt.NDArray[np.complex128]:
    """Values of all elements of a vector or matrix at every event, in one pass.

    What the elements share is computed once: ``ld.vector([a, b, c])`` is the way to evaluate
    several quantities together.

    Parameters
    ----------
    expr
        A vector or matrix; a scalar counts as one element.
    dataset
        The events.
    parameters
        Vector in the order of first appearance, or a mapping; start values otherwise.
    execution
        Where and how.

    Returns
    -------
    ndarray
        complex128, shape (elements, n_events), a matrix in row-major order.

    Raises
    ------
    DataError
        A column is missing.
    ParameterError
        Unknown name or wrong length.
    """
    execution = execution_or_default(execution)
    model = compile_elements(as_expr(expr), execution.kernel_options)
    vector = model.layout.vector(parameters)
    (rows,) = evaluate_rows(model, dataset, [vector], execution, gradient=False)
    return complex_rows(rows[0::2], rows[1::2])


def _chain(
    adjoints: npt.NDArray[np.complex128], jacobian: npt.NDArray[np.float64]
) -> npt.NDArray[np.complex128]:
    """Adjoints (n_adjoints, events) times Jacobian, shape (events, n_parameters).

    Summed in the order of the frontier, so that an event's gradient does not depend on the others.
    An adjoint of zero says that the event did not take a branch, whose slope may be infinite.
    """
    parts = []
    with np.errstate(all="ignore"):
        for part in (adjoints.real, adjoints.imag):  # a complex product would make inf + NaN i
            total = np.zeros((adjoints.shape[1], jacobian.shape[1]))
            for adjoint, slopes in zip(part, jacobian, strict=True):
                taken = (adjoint != 0)[:, np.newaxis]
                product = np.zeros_like(total)
                total += np.multiply(adjoint[:, np.newaxis], slopes, out=product, where=taken)
            parts.append(total)
    return complex_rows(parts[0], parts[1])


def _as_real(values: npt.NDArray[np.complex128], precision: Precision) -> npt.NDArray[np.float64]:
    large = np.abs(values.imag) > REAL_TOLERANCE[precision] * np.abs(values)
    if large.any():
        event = int(np.argmax(large))
        raise EvaluationError(
            f"real=True, but the value {values[event]} of event {event} is complex; take .real() "
            "or .norm_sqr() in the expression",
            event=event,
            value=complex(values[event]),
        )
    return values.real.copy()
