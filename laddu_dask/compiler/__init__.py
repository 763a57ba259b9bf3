"""Expressions to programs: real IR, dependency classes, derivatives. Pure Python and data."""

from laddu_dask.compiler.invariants import Invariants
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.model import CompiledModel, EventPrograms, Transform, compile_model
from laddu_dask.compiler.program import Program

__all__ = [
    "CompiledModel",
    "EventPrograms",
    "Invariants",
    "ParameterLayout",
    "Program",
    "Transform",
    "compile_model",
]
