"""Running programs over partitions: in this process or on a Dask cluster, with the same bits."""

from laddu_dask.runtime.adaptive import AdaptiveReducer
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.forms import ModelPass
from laddu_dask.runtime.model import Model
from laddu_dask.runtime.planning import Pass
from laddu_dask.runtime.queries import evaluate, evaluate_elements
from laddu_dask.runtime.reduction import Reducer
from laddu_dask.runtime.selection import EventCondition
from laddu_dask.runtime.sink import write_parquet

__all__ = [
    "AdaptiveReducer",
    "EventCondition",
    "Execution",
    "Model",
    "ModelPass",
    "Pass",
    "Reducer",
    "evaluate",
    "evaluate_elements",
    "write_parquet",
]
