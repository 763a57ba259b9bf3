"""The exception family of the package.

Few classes with readable fields rather than many names: code that catches an error looks at what
went wrong (`error.column`, `error.event`, `error.requested`), people read the text, which says
what happened, where, the value, and the cure.
"""

from __future__ import annotations

from typing import Any


class LadduError(Exception):
    """Base of every error raised on purpose by this package.

    Parameters
    ----------
    message
        Full text for a person: what, where, the value, the cure.
    **context
        Machine-readable facts; each becomes an attribute of the exception. They survive pickling,
        so an error raised in a Dask worker arrives whole.
    """

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.context = dict(context)

    def __getattr__(self, name: str) -> Any:
        context = self.__dict__.get("context", {})
        if name in context:
            return context[name]
        raise AttributeError(
            f"{type(self).__name__} has no field {name!r}; it has {sorted(context)}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.context)


def _rebuild(kind: type[LadduError], message: str, context: dict[str, Any]) -> LadduError:
    return kind(message, **context)


class ExpressionError(LadduError, ValueError):
    """An expression cannot be built. Fields: `operation`, `shapes`."""


class ParameterError(LadduError, ValueError):
    """Unknown name, wrong vector length, conflicting definition, start outside its bounds."""


class DataError(LadduError, ValueError):
    """A data set cannot be opened, read or used. Fields as known: `file`, `column`, `event`."""


class EvaluationError(LadduError, ArithmeticError):
    """A model gave a value that a likelihood cannot use.

    Fields: `term`, `role`, `event`, `value`, `expression`, `names` (of parameters).
    """


class MemoryBudgetError(LadduError, ValueError):
    """A budget is malformed or too small. Fields: `resource`, `requested`, `remaining`."""


class ExecutionError(LadduError, RuntimeError):
    """Execution options cannot be honoured, or the cluster was lost. Field: `option`."""


class OutputError(LadduError, OSError):
    """A result cannot be written. Field: `file`."""


class AssumptionError(LadduError):
    """Events lack a property under which a model was compiled; the model is compiled again.

    Handled by the runtime and never seen by users. Fields: `label`, `findings`.
    """
