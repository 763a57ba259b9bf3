"""The sum of likelihood terms: parameters, plan, value, gradient, fit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import ParameterLayout
from laddu_dask.errors import DataError, EvaluationError, ParameterError
from laddu_dask.expr import ParameterSpec
from laddu_dask.forks import renewed
from laddu_dask.likelihood.combination import Combination
from laddu_dask.likelihood.diagnosis import BadEvent, check_weights
from laddu_dask.likelihood.identity import identity_of
from laddu_dask.likelihood.recent import RecentSums, Sums
from laddu_dask.likelihood.report import LikelihoodReport, seen_by
from laddu_dask.likelihood.terms import UnbinnedTerm
from laddu_dask.memory import MemoryReport
from laddu_dask.runtime import AdaptiveReducer, Execution, ModelPass
from laddu_dask.runtime.execution import execution_or_default
from laddu_dask.runtime.forms import PassSum
from laddu_dask.runtime.payload import Mode

if TYPE_CHECKING:
    from laddu_dask.fit import FitResult

Vector = npt.NDArray[np.float64]
Parameters = Sequence[float] | Vector | Mapping[str, float] | None

Result = TypeVar("Result")

#: The data sets of a term, in the order of its passes.
_ROLES = ("data", "accepted_mc")


class Likelihood:
    """``-2 ln L`` of one or several terms that share parameters by name.

    Parameters
    ----------
    terms
        Terms such as `NLL`; names must be unique.
    execution
        Where and how to evaluate; in this process by default.

    Raises
    ------
    DataError
        A column that a model needs is missing, an accepted Monte Carlo sample is empty, or two
        terms share a name. Empty data are accepted: no event, so ``-2 ln L`` of an `NLL` is 0.0.
    ParameterError
        One parameter name with two definitions.

    Notes
    -----
    Nothing is read or allocated before the first evaluation. Value and gradient have the same bits
    for any number of partitions, threads or workers and for any storage or chunk size.

    Several threads may share a likelihood: their calls take turns, as each uses all threads or
    workers of the execution anyway, and the memory that was planned for one of them.
    """

    def __init__(self, terms: Sequence[UnbinnedTerm], execution: Execution | None = None) -> None:
        if isinstance(terms, UnbinnedTerm):
            raise TypeError("Likelihood takes a list of terms: ld.Likelihood([term])")
        self.terms = tuple(terms)
        if not self.terms:
            raise DataError("a likelihood needs at least one term")
        for term in self.terms:
            if not isinstance(term, UnbinnedTerm):
                raise TypeError(f"not a likelihood term: {term!r}")
            if sum(other.name == term.name for other in self.terms) > 1:
                raise DataError(
                    f"two terms are called {term.name!r}; give each term its own name=",
                    term=term.name,
                )
            term.check()
        self.execution = execution_or_default(execution)
        self.layout = ParameterLayout.merge(term.model.layout.specs for term in self.terms)
        position = {name: i for i, name in enumerate(self.layout.names)}
        self._places = [
            np.array([position[name] for name in term.model.parameter_names], dtype=np.intp)
            for term in self.terms
        ]
        passes = []
        for term in self.terms:
            passes.append(ModelPass(f"{term.name}/data", term.data, term.model, "log"))
            passes.append(
                ModelPass(f"{term.name}/accepted_mc", term.accepted_mc, term.model, "linear")
            )
        self._combination = Combination(self.terms, tuple(self._places), self.layout.names)
        self._reducer = AdaptiveReducer(passes, self.execution)
        self._turn = renewed(self, "_turn", threading.RLock)
        self._yields: list[float] | None = None
        self._recent = RecentSums()
        self._evaluations = 0
        self._evaluation_seconds = 0.0
        self._preparation_seconds = 0.0

    # parameters ----------------------------------------------------------------------------

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters, in the order of all vectors."""
        return self.layout.names

    @property
    def parameters(self) -> tuple[ParameterSpec, ...]:
        """Definitions of the free parameters, in the same order."""
        return self.layout.free

    @property
    def default_parameters(self) -> Vector:
        """Start values of the free parameters."""
        return self.layout.defaults

    def vector(self, parameters: Parameters = None) -> Vector:
        """A parameter vector from a sequence, a mapping of names, or None for the start values.

        Raises
        ------
        ParameterError
            Unknown name or wrong length.
        """
        return self.layout.vector(parameters)

    # evaluation ----------------------------------------------------------------------------

    def value(self, parameters: Parameters = None) -> float:
        """``-2 ln L`` at a parameter point.

        Bounds are not enforced: they limit fits, and the model may be looked at beyond them.

        Raises
        ------
        EvaluationError
            A data intensity that is not positive, an intensity that is not finite, or a
            normalisation integral that is not positive; names term, event, value and
            sub-expression.
        ParameterError
            Unknown name or wrong length.
        """
        return self._evaluate(self.vector(parameters), "value")[0]

    def value_and_gradient(self, parameters: Parameters = None) -> tuple[float, Vector]:
        """``-2 ln L`` and its derivative with respect to each free parameter, in one pass.

        Raises as `value` does.
        """
        value, gradient = self._evaluate(self.vector(parameters), "gradient")
        assert gradient is not None
        return value, gradient

    def value_many(self, points: Iterable[Parameters]) -> Vector:
        """``-2 ln L`` at several parameter points, in one pass over the events.

        Parameters
        ----------
        points
            Parameter points, each as for `value`; the rows of an array, for example. Each point
            needs 56 bytes per partition on the way back from workers.

        Returns
        -------
        ndarray
            Shape (points,); every element has the bits that `value` gives. Shape (0,) for no point.

        Raises
        ------
        EvaluationError
            As `value` does, for the first point that has no value; ``context["point"]`` is its
            number.
        """
        return np.array([value for value, _ in self._evaluate_many(points, "value")])

    def value_and_gradient_many(self, points: Iterable[Parameters]) -> tuple[Vector, Vector]:
        """The same with derivatives: shapes (points,) and (points, n).

        Bits of `value_and_gradient`; a point needs 56 bytes more per parameter and partition.
        """
        found = self._evaluate_many(points, "gradient")
        n = len(self.parameter_names)
        gradients = np.array([gradient for _, gradient in found], dtype=np.float64)
        return np.array([value for value, _ in found]), gradients.reshape(len(found), n)

    def delta(self, p: Parameters, q: Parameters) -> float:
        """``-2 ln L`` at `p` less that at `q`, both points in one pass, without cancellation.

        The sums over events are subtracted before they are rounded. Where the difference of two
        values keeps nothing below a unit in the last place of ``-2 ln L``, this keeps all: the
        result is the difference of the sums over events, rounded once. Of `NLL` it contains
        ``2 N ln(S / S')``, in which the logarithm is off by two units in its own last place at
        most. What stays are the roundings in the values of single events.

        Parameters
        ----------
        p, q
            Parameter points, each as for `value`. A point that was among the last few to be
            evaluated costs no pass.

        Returns
        -------
        float
            Exactly 0.0 for equal points; ``delta(q, p)`` is ``-delta(p, q)`` to the last bit; and
            ``delta(p, q) + delta(q, r)`` is ``delta(p, r)`` up to the roundings named above.

        Raises
        ------
        EvaluationError, ParameterError
            As `value` does.
        """
        return float(self.delta_many([p], q)[0])

    def delta_many(self, points: Iterable[Parameters], q: Parameters) -> Vector:
        """`delta` of several points from the same `q`, in one pass: a scan, for example.

        Shape (points,); every element has the bits that `delta` gives.
        """
        vectors = [*map(self.vector, points), self.vector(q)]
        for vector in vectors:
            self._check_numbers(vector)
        with self._turn:
            yields = self._prepare()
            *sums, reference = self._sums_at(vectors)
            differences = [self._combination.difference(own, reference, yields) for own in sums]
        return np.array(differences, dtype=np.float64)

    def hessian(self, parameters: Parameters = None) -> Vector:
        """Matrix of second derivatives of ``-2 ln L``, exact to rounding, in one pass.

        Forward mode over the gradient: all directions are summed while the events are read once,
        and the chain rule leads from sums over events to the parameters.

        Returns
        -------
        ndarray
            Symmetric, shape (n, n), in the order of `parameter_names`.

        Raises
        ------
        EvaluationError
            As `value` does, and where a second derivative is not finite.
        ParameterError
            Unknown name or wrong length.
        """
        vector = self.vector(parameters)
        sizes = [len(places) for places in self._places]
        terms = self._curve(vector, [np.eye(max(size, 1), size) for size in sizes])
        hessian = np.zeros((len(vector), len(vector)))
        for places, size, columns in zip(self._places, sizes, terms, strict=True):
            hessian[np.ix_(places, places)] += columns[:size]
        self._combination.check_derivatives(hessian, "second derivative")
        # Columns come from different directions and differ in rounding.
        return (hessian + hessian.T) / 2

    def hessian_vector_product(
        self, parameters: Parameters, direction: Sequence[float] | Vector
    ) -> Vector:
        """Product of the matrix of second derivatives with a direction, in one pass.

        Takes about three gradients, whatever the number of parameters.

        Parameters
        ----------
        parameters
            Where.
        direction
            One number per free parameter.

        Returns
        -------
        ndarray
            Shape (n,); `hessian` times `direction` up to rounding.

        Raises
        ------
        EvaluationError
            As `hessian` does.
        ParameterError
            Unknown name or wrong length, of the direction as well.
        """
        vector = self.vector(parameters)
        along = self.layout.vector(np.asarray(direction, dtype=np.float64))
        self._check_numbers(along)
        product = np.zeros(len(vector))
        terms = self._curve(vector, [along[np.newaxis, places] for places in self._places])
        for places, (row,) in zip(self._places, terms, strict=True):
            product[places] += row
        self._combination.check_derivatives(product, "second derivative")
        return product

    def _evaluate(self, vector: Vector, mode: Mode) -> tuple[float, Vector | None]:
        (found,) = self._evaluate_points([vector], mode)
        return found

    def _evaluate_many(
        self, points: Iterable[Parameters], mode: Mode
    ) -> list[tuple[float, Vector | None]]:
        return self._evaluate_points([self.vector(point) for point in points], mode)

    def _evaluate_points(
        self, vectors: Sequence[Vector], mode: Mode
    ) -> list[tuple[float, Vector | None]]:
        """Value, and gradient if the mode asks for it, at every point."""
        for vector in vectors:
            self._check_numbers(vector)
        if not vectors:
            return []
        with self._turn:
            return self._evaluate_in_turn(vectors, mode)

    def _evaluate_in_turn(
        self, vectors: Sequence[Vector], mode: Mode
    ) -> list[tuple[float, Vector | None]]:
        yields = self._prepare()

        def combined(sums: list[PassSum]) -> tuple[float, Vector | None]:
            return self._combination.value_and_gradient(sums, yields)

        return self._at_each_point(vectors, mode, combined)

    def _at_each_point(
        self, vectors: Sequence[Vector], mode: Mode, use: Callable[[list[PassSum]], Result]
    ) -> list[Result]:
        """What is made of the usable sums at every point; one pass for all of them."""
        started = time.perf_counter()
        local = [self._local(vector) for vector in vectors]
        found = []
        for k, (vector, sums) in enumerate(
            zip(vectors, self._reducer.reduce_many(mode, local), strict=True)
        ):
            try:
                found.append(use(self._usable_sums(vector, sums, mode)))
            except EvaluationError as error:
                if len(vectors) == 1:
                    raise
                context = {**error.context, "point": k}
                raise EvaluationError(f"parameter point {k}: {error}", **context) from error
        self._evaluations += 1
        self._evaluation_seconds += time.perf_counter() - started
        return found

    def _sums_at(self, vectors: Sequence[Vector]) -> list[Sums]:
        """The sums at every point; those that are remembered are not made again."""
        known = self._recent.recall(vectors)
        new = {v.tobytes(): v for v in vectors if v.tobytes() not in known}
        if new:
            made = self._at_each_point(list(new.values()), "value", lambda sums: sums)
            known.update(zip(new, made, strict=True))
        return [known[vector.tobytes()] for vector in vectors]

    def _local(self, vector: Vector) -> list[Vector]:
        """The parameters of each pass."""
        if len(self.terms) == 1:  # its parameters are those of the likelihood, in the same order
            return [vector for _ in _ROLES]
        own = [vector[places] for places in self._places]
        return [values for values in own for _ in _ROLES]

    def _usable_sums(self, vector: Vector, sums: list[PassSum], mode: Mode) -> list[PassSum]:
        """The same or those of the written form, remembered for differences."""

        def written() -> list[PassSum]:
            (found,) = self._reducer.reduce_written(mode, [self._local(vector)])
            return found

        usable = self._usable(vector, sums, written)
        if usable is sums:  # else derivatives alone may have been bad, and values stay as they are
            self._recent.remember(vector, sums)
        return usable

    def _curve(self, vector: Vector, directions: Sequence[Vector]) -> list[Vector]:
        """Second derivatives of each term; see `Combination.second`."""
        self._check_numbers(vector)
        with self._turn:
            return self._curve_in_turn(vector, directions)

    def _curve_in_turn(self, vector: Vector, directions: Sequence[Vector]) -> list[Vector]:
        yields = self._prepare()
        started = time.perf_counter()
        local = self._local(vector)
        along = [rows for rows in directions for _ in _ROLES]
        sums = self._usable(
            vector,
            self._reducer.curve(local, along),
            lambda: self._reducer.curve_written(local, along),
        )
        self._evaluations += 1
        self._evaluation_seconds += time.perf_counter() - started
        return self._combination.second(sums, yields, directions)

    def _usable(
        self, vector: Vector, sums: list[PassSum], written: Callable[[], list[PassSum]]
    ) -> list[PassSum]:
        """The sums, or those of the written form when only the order of operations was bad."""
        bad = self._bad_event(sums, vector)
        if bad is not None and bad.is_usable:
            sums = written()
            bad = self._bad_event(sums, vector)
        if bad is not None:
            raise bad.error()
        return sums

    def _check_numbers(self, vector: Vector) -> None:
        numbers = vector.tolist()
        if any(map(math.isnan, numbers)):
            names = [n for n, x in zip(self.parameter_names, numbers, strict=True) if math.isnan(x)]
            raise ParameterError(f"parameters are NaN: {', '.join(names)}", names=names)

    def _prepare(self) -> list[float]:
        """Open the session and sum the data weights, once."""
        if self._yields is None:
            started = time.perf_counter()
            sums = self._reducer.weights()
            self._yields = []
            for item, total in zip(self._reducer.passes, sums, strict=True):
                if total is not None:
                    check_weights(item, total)
                    if item.transform == "log":
                        self._yields.append(total.round()[0])
            self._preparation_seconds = time.perf_counter() - started
        return self._yields

    def _bad_event(self, sums: list[PassSum], vector: Vector) -> BadEvent | None:
        """The first event of the first pass that has one whose value cannot be summed."""
        for index, total in enumerate(sums):
            if total.first_bad is not None:
                term, role = self.terms[index // len(_ROLES)], _ROLES[index % len(_ROLES)]
                values = dict(zip(self.parameter_names, vector.tolist(), strict=True))
                precision = self.execution.precision
                return BadEvent.of(term, role, total.first_bad, values, precision)
        return None

    # plan, report, fit -----------------------------------------------------------------------

    def plan(self) -> MemoryReport:
        """Storage and chunk size of every data set, before anything is read. Prints as a table."""
        with self._turn:
            return self._reducer.plan()

    def report(self) -> LikelihoodReport:
        """Plan, counters and the measured memory of every process. Prints as a table."""
        with self._turn:
            self._prepare()
            workers = self._reducer.worker_info()
            return LikelihoodReport(
                plan=self._reducer.plan(now=True).with_measured(seen_by(workers)),
                workers=workers,
                evaluations=self._evaluations,
                evaluation_seconds=self._evaluation_seconds,
                preparation_seconds=self._preparation_seconds,
                events=sum(item.dataset.n_events for item in self._reducer.passes),
            )

    def identity(self) -> dict[str, str]:
        """What the bits of all numbers depend on, by name; events are counted at most.

        Checkpoints of fits compare it. Where and how the events are stored is not a part of it.
        """
        return identity_of(self.terms, self.execution)

    def fit(self, initial: Parameters = None, method: str = "migrad", **options: Any) -> FitResult:
        """Minimise; see `laddu_dask.fit.fit` for options and the result."""
        from laddu_dask.fit import fit

        if isinstance(initial, Mapping):
            # A fit knows of the free parameters only, and could not tell a fixed from a wrong name.
            for name in initial:
                if name not in self.parameter_names:
                    raise self.layout.unknown(name)
        return fit(self, initial, method, **options)

    def close(self) -> None:
        """Release prepared partitions and threads, or the cluster's copies of them.

        Waits for evaluations in other threads. The likelihood may be used again: it prepares again.
        """
        with self._turn:
            self._reducer.close()
            self._yields = None
            self._recent.clear()

    def __reduce__(self) -> tuple[type[Likelihood], tuple[object, ...]]:
        """Pickled as what it was made of; a copy prepares for itself."""
        return type(self), (self.terms, self.execution)

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(f"{type(term).__name__} {term.name!r}" for term in self.terms)
        return f"<Likelihood of {names} with {len(self.parameter_names)} free parameters>"
