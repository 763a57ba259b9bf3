"""Event data: schemas, arrays and Parquet files as fragments that workers read by themselves.

A `Dataset` holds no events of a file, only a description of where its rows lie. The description
is checked on the client before any work starts and shipped to workers in cut fragments, which
they read batch by batch.
"""

from laddu_dask.data.arrays import ArrayFragment
from laddu_dask.data.dataset import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.data.fragment import Batch, Fragment
from laddu_dask.data.parquet import read_parquet
from laddu_dask.data.parquet_fragment import ParquetFragment
from laddu_dask.data.reweighted import Reweighted
from laddu_dask.data.schema import P4_LABELS, Schema, p4_columns

__all__ = [
    "DEFAULT_BATCH_ROWS",
    "P4_LABELS",
    "ArrayFragment",
    "Batch",
    "Dataset",
    "Fragment",
    "ParquetFragment",
    "Reweighted",
    "Schema",
    "p4_columns",
    "read_parquet",
]
