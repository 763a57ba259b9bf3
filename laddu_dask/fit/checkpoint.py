"""Fits that go on where they were interrupted, to the same bits.

Nothing of a minimiser is stored. A fit is a function of what its objective answers, so the answers
are: every point and what was found there, in a journal. To resume is to run the same fit again and
to answer from the journal as long as it has answers; the minimiser then stands, to the last bit,
where it stood. This needs no help from a minimiser, and cannot forget a part of its state.

What the fit is of is written down with it and compared. Whether the data are the same is found
out, beyond their numbers of events, by evaluating the first point again.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from laddu_dask.errors import DataError, EvaluationError, OutputError, ParameterError
from laddu_dask.fit.journal import Journal, create_journal, read_journal
from laddu_dask.fit.objective import (
    F64,
    Comparable,
    Identified,
    Objective,
    Parameter,
    TwiceDifferentiable,
)
from laddu_dask.fit.versions import fit_versions

Kind = Literal["value", "gradient", "hessian", "delta"]
PathLike = str | os.PathLike[str]

_KINDS: tuple[Kind, ...] = ("value", "gradient", "hessian", "delta")
_HEAD = struct.Struct("<BBdI")
_LISTED = 4


class Answer(NamedTuple):
    """What an objective said at a point.

    Attributes
    ----------
    kind
        What it was asked for.
    seconds
        Duration of the fit up to then, interruptions left out.
    point
        Bytes of the point; of both points of a difference.
    body
        Bytes of the value, of the value and the gradient, of the Hessian, or of the difference;
        or, of an error, its text and context as JSON.
    failed
        Whether it is an error.
    """

    kind: Kind
    seconds: float
    point: bytes
    body: bytes
    failed: bool

    def encode(self) -> bytes:
        """As a record of a journal."""
        head = _HEAD.pack(_KINDS.index(self.kind), self.failed, self.seconds, len(self.point))
        return head + self.point + self.body

    @classmethod
    def decode(cls, record: bytes) -> Answer:
        """Inverse of `encode`."""
        kind, failed, seconds, length = _HEAD.unpack_from(record)
        stop = _HEAD.size + length
        return cls(
            _KINDS[kind], seconds, record[_HEAD.size : stop], record[stop:], failed=bool(failed)
        )

    def numbers(self) -> F64:
        """The numbers of the answer.

        Raises
        ------
        EvaluationError
            The one that the objective raised.
        """
        if self.failed:
            error = json.loads(self.body)
            raise EvaluationError(error["text"], **error["context"])
        return np.frombuffer(self.body, dtype="<f8").astype(np.float64)


class Clock:
    """Seconds that a fit took, over all its runs."""

    def __init__(self) -> None:
        self._offset = -time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() + self._offset

    def forward(self, seconds: float) -> None:
        """Go on from `seconds`, unless it is later already."""
        self._offset = max(self._offset, seconds - time.perf_counter())


class Recorded:
    """An objective whose answers are kept: those of the journal first, then its own.

    Parameters
    ----------
    objective
        What to ask when the journal has no answer.
    journal
        Where new answers go; closed by `close`.
    answers
        Those that the journal has already.

    Attributes
    ----------
    clock
        Duration of the fit.
    warnings
        What went differently from the interrupted fit.
    """

    def __init__(self, objective: Objective, journal: Journal, answers: Sequence[Answer]) -> None:
        self._objective = objective
        self._journal = journal
        self._answers = deque(answers)
        self._used = 1  # the description of the fit
        self.clock = Clock()
        self.warnings: tuple[str, ...] = ()

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """See `Objective`."""
        return self._objective.parameter_names

    @property
    def parameters(self) -> Sequence[Parameter]:
        """See `Objective`."""
        return self._objective.parameters

    @property
    def default_parameters(self) -> F64:
        """See `Objective`."""
        return self._objective.default_parameters

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._journal.path

    def value(self, p: F64, /) -> float:
        """See `Objective`."""
        return float(self._answer("value", p)[0])

    def value_and_gradient(self, p: F64, /) -> tuple[float, F64]:
        """See `Objective`."""
        numbers = self._answer("gradient", p)
        return float(numbers[0]), numbers[1:]

    def _answer(self, kind: Kind, p: F64) -> F64:
        point = np.ascontiguousarray(p, dtype="<f8").tobytes()
        if self._answers:
            known = self._answers.popleft()
            if (known.kind, known.point) == (kind, point):
                self._used += 1
                self.clock.forward(known.seconds)
                return known.numbers()
            self._part()
        found = ask(self._objective, kind, p, self.clock)
        self._journal.append(found.encode())
        self._used += 1
        return found.numbers()

    def _part(self) -> None:
        """The minimiser wants something else than it did: the rest of the journal is void.

        Libraries of linear algebra may round differently on another processor.
        """
        self._answers.clear()
        self._journal.keep(self._used)
        self.warnings = (
            f"the resumed fit left the path of the interrupted one after {self._used - 1} "
            "evaluations, as happens on another kind of processor: the minimum is as good, its "
            "last bits may differ",
        )

    def check(self) -> None:
        """Ask again what was asked first.

        Raises
        ------
        DataError
            The answer is another one.
        """
        if not self._answers:
            return
        first = self._answers[0]
        point = np.frombuffer(first.point, dtype="<f8").astype(np.float64)
        again = ask(self._objective, first.kind, point, self.clock)
        self.clock = Clock()  # this was no part of the fit
        if first.failed == again.failed and (first.failed or first.body == again.body):
            return
        raise DataError(
            f"the checkpoint {self.path} is of other data: at its first point -2 ln L was "
            f"{_text(first)} and is {_text(again)} now. Use the same events and weights, or begin "
            "a new fit",
            file=str(self.path),
            differences=["events or weights"],
        )

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


class _Twice(Recorded):
    """The same of an objective that knows its second derivatives."""

    def hessian(self, p: F64, /) -> F64:
        """See `TwiceDifferentiable`."""
        n = len(p)
        return self._answer("hessian", p).reshape(n, n)


class _Compared(Recorded):
    """The same of an objective that knows its differences."""

    def delta(self, p: F64, q: F64, /) -> float:
        """See `Comparable`."""
        return float(self._answer("delta", np.concatenate([p, q]))[0])


class _TwiceCompared(_Twice, _Compared):
    """The same of an objective that knows both."""


_CLASSES: dict[tuple[bool, bool], type[Recorded]] = {
    (False, False): Recorded,
    (True, False): _Twice,
    (False, True): _Compared,
    (True, True): _TwiceCompared,
}


def ask(objective: Objective, kind: Kind, p: F64, clock: Clock) -> Answer:
    """Ask an objective; that it has no value is an answer, anything else it raises is not."""
    at = np.ascontiguousarray(p, dtype="<f8").tobytes()
    try:
        if kind == "value":
            numbers = np.array([objective.value(p)], dtype="<f8")
        elif kind == "gradient":
            value, gradient = objective.value_and_gradient(p)
            numbers = np.array([value, *gradient], dtype="<f8")
        elif kind == "hessian":
            numbers = np.array(cast(TwiceDifferentiable, objective).hessian(p), dtype="<f8")
        else:
            one, other = p[: len(p) // 2], p[len(p) // 2 :]
            difference = cast(Comparable, objective).delta(one, other)
            numbers = np.array([difference], dtype="<f8")
    except EvaluationError as error:
        context = {name: _plain(value) for name, value in error.context.items()}
        body = json.dumps({"text": str(error), "context": context}).encode()
        return Answer(kind, clock(), at, body, failed=True)
    return Answer(kind, clock(), at, numbers.tobytes(), failed=False)


def _plain(value: Any) -> Any:
    """A field of an error as JSON has it: numbers, text and lists; the rest by its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(answer: Answer) -> str:
    if answer.failed:
        return "undefined"
    value, *gradient = answer.numbers().tolist()
    return f"{value!r} with the gradient {gradient!r}" if gradient else repr(value)


# opening -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Places:
    """What `fit(checkpoint=..., resume=...)` asks for.

    Attributes
    ----------
    checkpoint
        File to write; None continues in `resume`.
    resume
        File to go on from.
    """

    checkpoint: Path | None
    resume: Path | None

    @classmethod
    def of(cls, checkpoint: PathLike | None, resume: PathLike | None) -> Places:
        """Check the two options; other ways to write one file are made the same.

        Raises
        ------
        ParameterError
            One of them is not the path of a file.
        """
        written, read = _path("checkpoint", checkpoint), _path("resume", resume)
        if written is not None and read is not None and _are_one(written, read):
            written = read
        return cls(written, read)

    @property
    def wanted(self) -> bool:
        """Whether anything is to be written down."""
        return self.checkpoint is not None or self.resume is not None

    @property
    def file(self) -> Path:
        """Where the fit is written down."""
        path = self.checkpoint or self.resume
        assert path is not None
        return path

    @property
    def source(self) -> Path | None:
        """The file to go on from; None begins a new fit.

        One and the same file in both options may be missing: then it is the first of the runs
        that this script is meant to have.
        """
        if self.resume is None or (self.resume == self.checkpoint and not self.resume.exists()):
            return None
        return self.resume


def _path(option: str, given: PathLike | None) -> Path | None:
    if given is None:
        return None
    try:
        path = os.fsdecode(given)
    except TypeError:
        path = ""
    if not path:
        raise ParameterError(f"{option}={given!r} is not the path of a file", option=option)
    return Path(path)


def _are_one(one: Path, other: Path) -> bool:
    """Whether two paths, whatever links and dots are in them, lead to the same place."""
    return os.path.realpath(one) == os.path.realpath(other) or (
        one.exists() and other.exists() and os.path.samefile(one, other)
    )


def open_recorded(
    objective: Objective, parameters: Sequence[Parameter], start: F64, method: str, places: Places
) -> Recorded:
    """The objective with its answers written down.

    Raises
    ------
    DataError
        The checkpoint is of another fit, or damaged; names the differences.
    OutputError
        The checkpoint exists already, is in use, or cannot be written.
    """
    description = describe_fit(objective, parameters, start, method)
    source = places.source
    if source is not None:
        _compare(source, read_journal(source).records, description)
    if source != places.file:
        _refuse_existing(places.file)
        header = json.dumps(description).encode()
        create_journal(places.file, [header] if source is None else read_journal(source).records)
    journal = Journal(places.file)
    knows = isinstance(objective, TwiceDifferentiable), isinstance(objective, Comparable)
    recorded = _CLASSES[knows](objective, journal, [Answer.decode(r) for r in journal.records[1:]])
    try:
        recorded.check()
    except BaseException:
        recorded.close()
        raise
    return recorded


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise OutputError(
            f"the checkpoint {path} exists: go on from it with resume={str(path)!r}, remove it, "
            "or choose another name",
            file=str(path),
        )


def describe_fit(
    objective: Objective, parameters: Sequence[Parameter], start: F64, method: str
) -> dict[str, str]:
    """Everything that the path of a minimiser depends on, by what it is called in messages.

    The limit of evaluations is not among it: it says how far to go along the path.
    """
    found = {"the minimiser": method}
    found |= {f"the version of {name}": version for name, version in fit_versions().items()}
    found["the free parameters"] = ", ".join(objective.parameter_names)
    for parameter, value in zip(parameters, start.tolist(), strict=True):
        name = parameter.name
        found[f"the start of {name!r}"] = repr(value)
        found[f"the definition of {name!r}"] = (
            f"bounds {parameter.bounds}, scale {parameter.scale}, periodic {parameter.periodic}"
        )
    if isinstance(objective, Identified):
        found |= objective.identity()
    return found


def _compare(path: Path, records: Sequence[bytes], here: Mapping[str, str]) -> None:
    there = json.loads(records[0])
    names = [*here, *(name for name in there if name not in here)]
    different = [name for name in names if there.get(name) != here.get(name)]
    if not different:
        return
    told = [
        f"{name} ({there.get(name, 'nothing')} there, {here.get(name, 'nothing')} here)"
        for name in different[:_LISTED]
    ]
    more = len(different) - len(told)
    raise DataError(
        f"the checkpoint {path} is of another fit. They differ in {'; '.join(told)}"
        f"{f'; and in {more} more' if more else ''}. Make them equal, or begin a new fit with "
        "another checkpoint=",
        file=str(path),
        differences=different,
    )
