"""Where a laddu expression comes from: text, a file, a parsed table, or a live object."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr

#: What the table of an expression consists of; laddu writes no version into it.
FIELDS = frozenset({"root", "nodes", "metadata"})


def malformed(path: str, problem: str) -> ExpressionError:
    """The error of a table that cannot be read, with the place in it as a JSON path."""
    return ExpressionError(
        f"from_laddu: {path}: {problem}", operation="from_laddu", shapes=[], json_path=path
    )


def read_table(source: object) -> Mapping[str, Any]:
    """The node table of any source that `from_laddu` takes.

    Raises
    ------
    ExpressionError
        No JSON, or another table than laddu 0.21.2 to 0.28 write.
    OSError
        The file cannot be read.
    TypeError
        No source of that kind.
    """
    table = _parsed(source)
    if not isinstance(table, Mapping):
        raise malformed("$", f"needs an object with root, nodes and metadata, got {table!r:.60}")
    if "format" in table:
        raise malformed(
            "$.format", f"{table['format']!r:.60} is not laddu's; ld.Expr.from_json reads our own"
        )
    if {"e", "px", "py", "pz"} == set(table) or {"x", "y", "z"} == set(table):
        raise malformed("$", f"a vector is several expressions; import {sorted(table)} one by one")
    for name in sorted(FIELDS - set(table)):
        raise malformed("$", f"there is no {name!r}, so this is no expression of laddu 0.21.2-0.28")
    for name in sorted(set(table) - FIELDS, key=str):
        raise malformed(
            f"$.{name}", "unknown: a version of laddu's format that is not known (0.21.2-0.28 are)"
        )
    return table


def _parsed(source: object) -> object:
    if isinstance(source, Expr):
        raise TypeError("from_laddu: this is an expression of this package already")
    if isinstance(source, Mapping):
        return source
    if isinstance(source, os.PathLike):
        return _decoded(Path(source).read_text(encoding="utf-8"))
    if isinstance(source, str):
        if source.lstrip()[:1] in {"{", "[", ""}:
            return _decoded(source)
        return _decoded(Path(source).read_text(encoding="utf-8"))
    # An expression or a model of laddu: asked for its table, so that laddu need not be imported.
    write = getattr(source, "to_json", None)
    if not callable(write):
        raise TypeError(
            "from_laddu: needs JSON text, a path, a parsed table, or an expression or model of "
            f"laddu 0.21.2 or later, got {type(source).__name__}"
        )
    return _decoded(write())


def _decoded(text: object) -> object:
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"from_laddu: to_json() gave {type(text).__name__}, not text")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise malformed("$", "nested too deeply; a table of nodes is flat") from None
    except ValueError as error:
        raise malformed("$", f"no JSON: {error}") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")
