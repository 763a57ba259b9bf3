"""Amplitude analysis of data that outgrow one machine.

>>> import laddu_dask as ld

Models are expressions of parameters and event columns; a likelihood compiles them once and
evaluates value and gradient over partitions of the data, in this process or on a Dask cluster, with
sums whose bits do not depend on how the work was cut.
"""

from importlib.metadata import version

from laddu_dask.data import Dataset, read_parquet
from laddu_dask.errors import (
    DataError,
    EvaluationError,
    ExecutionError,
    ExpressionError,
    LadduError,
    MemoryBudgetError,
    OutputError,
    ParameterError,
)
from laddu_dask.expr import (
    Expr,
    ParameterSpec,
    Predicate,
    acos,
    atan2,
    cis,
    complex,
    cparameter,
    dot,
    matrix,
    p4_component,
    parameter,
    polar_complex,
    scalar,
    solve,
    vector,
    where,
)
from laddu_dask.fit import FitResult
from laddu_dask.likelihood import NLL, ExtendedNLL, Likelihood
from laddu_dask.memory import MemoryBudget, MemoryPlan
from laddu_dask.physics import (
    Angles,
    BarrierKind,
    Mandelstam,
    Sheet,
    Vec3,
    Vec4,
    WignerD,
    blatt_weisskopf,
    blatt_weisskopf_custom,
    breit_wigner,
    gottfried_jackson_angles,
    helicity_angles,
    linearly_polarized_intensity,
    mandelstam,
    production_angles,
    production_plane_angle,
    q,
    relativistic_breit_wigner,
    relativistic_breit_wigner_custom,
    rho,
    spherical_harmonic,
    zlm,
)
from laddu_dask.runtime import Execution, Model

__version__ = version("laddu-dask")

__all__ = [
    "NLL",
    "Angles",
    "BarrierKind",
    "DataError",
    "Dataset",
    "EvaluationError",
    "Execution",
    "ExecutionError",
    "Expr",
    "ExpressionError",
    "ExtendedNLL",
    "FitResult",
    "LadduError",
    "Likelihood",
    "Mandelstam",
    "MemoryBudget",
    "MemoryBudgetError",
    "MemoryPlan",
    "Model",
    "OutputError",
    "ParameterError",
    "ParameterSpec",
    "Predicate",
    "Sheet",
    "Vec3",
    "Vec4",
    "WignerD",
    "acos",
    "atan2",
    "blatt_weisskopf",
    "blatt_weisskopf_custom",
    "breit_wigner",
    "cis",
    "complex",
    "cparameter",
    "dot",
    "gottfried_jackson_angles",
    "helicity_angles",
    "linearly_polarized_intensity",
    "mandelstam",
    "matrix",
    "p4_component",
    "parameter",
    "polar_complex",
    "production_angles",
    "production_plane_angle",
    "q",
    "read_parquet",
    "relativistic_breit_wigner",
    "relativistic_breit_wigner_custom",
    "rho",
    "scalar",
    "solve",
    "spherical_harmonic",
    "vector",
    "where",
    "zlm",
]
