"""Models written for other programs, read as expressions: nothing here evaluates anything."""

from laddu_dask.importers.laddu_defects import LadduDefectWarning
from laddu_dask.importers.laddu_table import from_laddu
from laddu_dask.importers.sympy_expression import from_sympy

__all__ = ["LadduDefectWarning", "from_laddu", "from_sympy"]
