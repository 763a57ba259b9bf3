"""Immutable expression graphs: the language in which models are written.

Nothing here evaluates anything; `laddu_dask.compiler` turns a graph into programs.
"""

from laddu_dask.expr.expression import Expr, Predicate, as_expr
from laddu_dask.expr.functions import (
    acos,
    atan2,
    cis,
    complex,
    cparameter,
    dot,
    matmul,
    matrix,
    matvec,
    maximum,
    minimum,
    p4_component,
    parameter,
    polar_complex,
    prod,
    project,
    scalar,
    solve,
    sum,
    tags,
    vector,
    where,
)
from laddu_dask.expr.node import Node
from laddu_dask.expr.parameters import ParameterSpec

__all__ = [
    "Expr",
    "Node",
    "ParameterSpec",
    "Predicate",
    "acos",
    "as_expr",
    "atan2",
    "cis",
    "complex",
    "cparameter",
    "dot",
    "matmul",
    "matrix",
    "matvec",
    "maximum",
    "minimum",
    "p4_component",
    "parameter",
    "polar_complex",
    "prod",
    "project",
    "scalar",
    "solve",
    "sum",
    "tags",
    "vector",
    "where",
]
