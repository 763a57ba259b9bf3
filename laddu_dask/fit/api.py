"""One call from a likelihood to a result."""

from __future__ import annotations

import operator
from typing import Any, Literal, NamedTuple

import numpy as np

from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.checkpoint import PathLike, Places, Recorded, open_recorded
from laddu_dask.fit.convergence import Verdict, judge, without_runaways
from laddu_dask.fit.evaluation import EvaluationLimit, Evaluator, point_text
from laddu_dask.fit.minimize import minimize
from laddu_dask.fit.objective import F64, Objective, Parameter, free_parameters
from laddu_dask.fit.progress import Progress, RichProgress, choose_progress
from laddu_dask.fit.result import FitResult
from laddu_dask.fit.runaway import faded, runaways
from laddu_dask.fit.scaling import sizes
from laddu_dask.fit.start import Initial, start_point, usable_start

METHODS = ("migrad",)


def fit(
    objective: Objective,
    initial: Initial | None = None,
    method: str = "migrad",
    progress: Progress | Literal["auto"] | None = None,
    max_evaluations: int | None = None,
    checkpoint: PathLike | None = None,
    resume: PathLike | None = None,
) -> FitResult:
    """Minimise -2 ln L and return the minimum with its errors.

    Parameters
    ----------
    objective
        A likelihood, or anything with the same few members.
    initial
        Start: None for the defaults, all values in order, or some values by name.
    method
        "migrad": Minuit's variable-metric method with the exact gradient, followed by Newton steps
        with the exact Hessian.
    progress
        Called with a `ProgressState` after each evaluation; "auto" shows a line in a terminal and
        lines in a log; None is quiet.
    max_evaluations
        Largest number of passes over the data; when reached, the best point so far is returned as
        not converged.
    checkpoint
        New file in which the answer of every evaluation is kept as soon as it is there, so that
        the fit can go on after the loss of its cluster or the end of its process.
    resume
        File of an interrupted fit. The same fit goes on from there, on any cluster, to the bits
        that it would have had without the interruption, and is kept in the same file; or in
        `checkpoint`, if that is another one. With the same file in both options the fit begins if
        there is no file yet, and goes on if there is: for jobs that are started again.

    Returns
    -------
    FitResult
        Honest in each case: `converged` is this package's own verdict from gradient and Hessian at
        the last point, and `message` says why.

    Raises
    ------
    ParameterError
        Unknown name, wrong length, NaN, start outside its bounds; unknown method; an option that
        is not of its kind.
    EvaluationError
        The likelihood has no value at the start nor around it.
    DataError
        The file of `resume` is missing, damaged, or of another fit: names what differs.
    OutputError
        The file of `checkpoint` exists, or one that a running fit is writing; no space for it.
    """
    if method not in METHODS:
        raise ParameterError(
            f"no minimiser {method!r}; available: {', '.join(METHODS)}", option="method"
        )
    limit = None if max_evaluations is None else _limit(max_evaluations)
    parameters = free_parameters(objective)
    if not parameters:
        raise ParameterError("nothing to fit: the likelihood has no free parameter")
    start = start_point(objective, parameters, initial)
    box = Box.of(parameters)
    show = choose_progress(progress)
    places = Places.of(checkpoint, resume)
    recorded = None
    if places.wanted:
        recorded = open_recorded(objective, parameters, start, method, places)
    try:
        if recorded is None:
            evaluator = Evaluator(objective, box, show, limit, start)
        else:
            evaluator = Evaluator(recorded, box, show, limit, start, recorded.clock)
        end = _search(evaluator, parameters, box, start)
        evaluator.finish()
    except Exception as error:
        if recorded is not None:
            error.add_note(_how_to_go_on(recorded))
        raise
    finally:
        if isinstance(show, RichProgress):
            show.close()
        if recorded is not None:
            recorded.close()
    if recorded is not None:
        verdict = end.verdict
        verdict = verdict._replace(warnings=(*verdict.warnings, *recorded.warnings))
        end = end._replace(verdict=verdict)
    return _result(evaluator, parameters, end, method)


def _how_to_go_on(recorded: Recorded) -> str:
    return (
        f"All evaluations up to here are in {recorded.path}; once the cause is removed, fit with "
        f"resume={str(recorded.path)!r} goes on from there"
    )


def _limit(given: Any) -> int:
    try:
        limit = operator.index(given)
    except TypeError:
        limit = 0
    if limit < 1 or isinstance(given, bool):
        raise ParameterError(
            f"max_evaluations is {given!r}; give an integer of at least 1, or None",
            option="max_evaluations",
        )
    return limit


class _End(NamedTuple):
    point: F64
    value: float
    verdict: Verdict


def _search(evaluator: Evaluator, parameters: tuple[Parameter, ...], box: Box, start: F64) -> _End:
    names = tuple(parameter.name for parameter in parameters)
    begin = start
    try:
        begin = usable_start(evaluator, box, start, sizes(parameters, start), names)
        end = _minimum(evaluator, parameters, box, begin)
    except EvaluationLimit:
        end = _unfinished(
            evaluator, box, begin, f"stopped at the limit of {evaluator.n_evaluations} evaluations"
        )
    if np.array_equal(begin, start):
        return end
    moved = point_text(dict(zip(names, begin.tolist(), strict=True)))
    warning = f"the likelihood has no value at the start; the fit began at {moved}"
    verdict = end.verdict._replace(warnings=(warning, *end.verdict.warnings))
    return end._replace(verdict=verdict)


def _minimum(evaluator: Evaluator, parameters: tuple[Parameter, ...], box: Box, begin: F64) -> _End:
    names = tuple(parameter.name for parameter in parameters)
    try:
        # An objective that falls without end drives the algebra to its limits; the verdict on
        # infinite or undefined numbers is "not converged".
        with np.errstate(over="ignore", invalid="ignore"):
            found = minimize(evaluator, parameters, box, begin)
            idle = found.free_spectrum(np.ones(len(names), dtype=bool)).idle
            away = faded(evaluator, box, begin, found.point, found.value, idle)
            verdict = judge(found, box, names, away)
            away |= runaways(
                evaluator,
                parameters,
                box,
                begin,
                found.point,
                found.value,
                verdict.covariance,
            )
    except EvaluationError as error:
        # The start was fine, so only the derivatives at the end can be missing.
        return _unfinished(evaluator, box, begin, str(error))
    verdict = without_runaways(verdict, away, names)
    return _End(box.wrap(found.point), found.value, verdict)


def _unfinished(evaluator: Evaluator, box: Box, begin: F64, reason: str) -> _End:
    point = begin if evaluator.best_point is None else evaluator.best_point
    verdict = Verdict(
        converged=False,
        message=f"not converged: {reason}; the values are the best so far and have no errors",
        edm=np.nan,
        covariance=np.full((len(point),) * 2, np.nan),
        limits=box.limits(point),
        warnings=(),
    )
    return _End(point, evaluator.best_value, verdict)


def _result(
    evaluator: Evaluator, parameters: tuple[Parameter, ...], end: _End, method: str
) -> FitResult:
    warnings = end.verdict.warnings
    failure = evaluator.last_failure
    if failure is not None:
        warnings += (
            f"the search met points without a likelihood {evaluator.n_failures} times, the last at "
            f"{point_text(failure.point)}: {failure.error}",
        )
    return FitResult(
        parameter_names=tuple(parameter.name for parameter in parameters),
        values=end.point,
        errors=np.sqrt(np.diag(end.verdict.covariance)),
        covariance=end.verdict.covariance,
        objective=end.value,
        edm=end.verdict.edm,
        converged=end.verdict.converged,
        message=end.verdict.message,
        n_evaluations=evaluator.n_evaluations,
        seconds=evaluator.seconds,
        warnings=warnings,
        bounds=tuple(parameter.bounds for parameter in parameters),
        units=tuple(parameter.unit for parameter in parameters),
        latex=tuple(parameter.latex for parameter in parameters),
        limits=end.verdict.limits,
        method=method,
    )
