"""The definition of a parameter in a laddu table."""

from __future__ import annotations

from typing import Any

from laddu_dask.errors import ParameterError
from laddu_dask.expr.parameters import ParameterSpec, define_parameter
from laddu_dask.importers.laddu_fields import Fields, real, text
from laddu_dask.importers.laddu_source import malformed

_OPTIONAL_TEXTS = ("unit", "latex", "description")
_FIELDS = {"name", "state", "initial", "bounds", "periodic", "scale", *_OPTIONAL_TEXTS}


def parameter_of(path: str, content: object, place: int) -> ParameterSpec:
    """The parameter that a ``ScalarParam`` defines: a default start is 0, a range starts midway.

    Raises
    ------
    ExpressionError
        A field that laddu does not write, or a definition that contradicts itself.
    """
    fields = Fields(path, content, place, _FIELDS)
    periodic, scale = fields.content["periodic"], fields.content["scale"]
    if not isinstance(periodic, bool):
        raise malformed(f"{path}.periodic", f"needs true or false, got {periodic!r:.60}")
    options: dict[str, Any] = {
        "bounds": _ends(f"{path}.bounds", fields.content["bounds"], place),
        "periodic": periodic,
        "scale": None if scale is None else real(f"{path}.scale", scale),
    }
    for name in _OPTIONAL_TEXTS:
        value = fields.content[name]
        if value is not None and not isinstance(value, str):
            raise malformed(f"{path}.{name}", f"needs text or null, got {value!r:.60}")
        options[name] = value
    state = fields.content["state"]
    initial = _initial(f"{path}.initial", fields.content["initial"], place)
    if state == "Free":
        options["initial"] = initial
    else:
        held = Fields(f"{path}.state", state, place, {"Fixed"})
        options["fixed"] = real(f"{path}.state.Fixed", held.content["Fixed"])
    try:
        return define_parameter(text(f"{path}.name", fields.content["name"]), **options)
    except ParameterError as error:
        raise malformed(path, str(error)) from error


def _initial(path: str, value: object, place: int) -> float | tuple[float, float]:
    if value == "Default":
        return 0.0
    if isinstance(value, dict) and "Uniform" in value:
        span = Fields(path, value, place, {"Uniform"}).content["Uniform"]
        ends = Fields(f"{path}.Uniform", span, place, {"min", "max"}).content
        low, high = (real(f"{path}.Uniform.{end}", ends[end]) for end in ("min", "max"))
        return low, high
    if isinstance(value, dict):
        return real(f"{path}.Value", Fields(path, value, place, {"Value"}).content["Value"])
    raise malformed(path, f"needs 'Default', 'Value' or 'Uniform', got {value!r:.60}")


def _ends(path: str, value: object, place: int) -> tuple[float | None, float | None]:
    ends = Fields(path, value, place, {"min", "max"}).content
    low, high = (
        None if ends[end] is None else real(f"{path}.{end}", ends[end]) for end in ("min", "max")
    )
    return low, high
