"""Expressions to programs: real IR, dependency classes, derivatives. Pure Python and data."""

from laddu_dask.compiler.assembly import CompiledModel, Transform
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.conditions import ConditionProgram, compile_condition
from laddu_dask.compiler.describe import EventCost, event_cost
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.facts import Facts, propose
from laddu_dask.compiler.integral import (
    IntegralForm,
    IntegratedSum,
    SeparableIntegral,
    compile_integral,
    integrate,
    probe_integral,
)
from laddu_dask.compiler.invariants import Invariants
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.model import (
    Candidate,
    compile_candidates,
    compile_elements,
    compile_form,
    compile_model,
    probe_model,
)
from laddu_dask.compiler.modes import Autodiff
from laddu_dask.compiler.normal_form import NormalForm, columns_read, require_scalar
from laddu_dask.compiler.options import KernelOptions
from laddu_dask.compiler.precision import Precision
from laddu_dask.compiler.probe import Probe
from laddu_dask.compiler.program import Program

__all__ = [
    "Assumptions",
    "Autodiff",
    "Candidate",
    "CompiledModel",
    "ConditionProgram",
    "EventCost",
    "EventPrograms",
    "Facts",
    "IntegralForm",
    "IntegratedSum",
    "Invariants",
    "KernelOptions",
    "NormalForm",
    "ParameterLayout",
    "Precision",
    "Probe",
    "Program",
    "SeparableIntegral",
    "Transform",
    "columns_read",
    "compile_candidates",
    "compile_condition",
    "compile_elements",
    "compile_form",
    "compile_integral",
    "compile_model",
    "event_cost",
    "integrate",
    "probe_integral",
    "probe_model",
    "propose",
    "require_scalar",
]
