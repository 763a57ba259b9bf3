"""Event data: schemas, and sources as fragments that workers read by themselves.

A `Dataset` holds no events of a file, only a description of where its rows lie. The description
is checked on the client before any work starts and shipped to workers in cut fragments, which
they read batch by batch.
"""

from laddu_dask.data.amptools import amptools_columns, read_amptools
from laddu_dask.data.arrays import ArrayFragment
from laddu_dask.data.arrow import from_arrow
from laddu_dask.data.batches import BatchFragment
from laddu_dask.data.column_report import ColumnReport, ColumnUse
from laddu_dask.data.conditions import Condition, Verdict, as_condition
from laddu_dask.data.dataset import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.data.fragment import Batch, Fragment
from laddu_dask.data.mapped import ColumnMap, MappedFragment, StoredColumn
from laddu_dask.data.parquet import read_parquet
from laddu_dask.data.parquet_fragment import ParquetFragment
from laddu_dask.data.ranges import RangeFragment
from laddu_dask.data.reweighted import Reweighted
from laddu_dask.data.root import read_root
from laddu_dask.data.root_fragment import RootFragment
from laddu_dask.data.root_sink import write_root
from laddu_dask.data.schema import P4_LABELS, Schema, p4_columns
from laddu_dask.data.selected import SelectedFragment
from laddu_dask.data.uniforms import row_uniforms

__all__ = [
    "DEFAULT_BATCH_ROWS",
    "P4_LABELS",
    "ArrayFragment",
    "Batch",
    "BatchFragment",
    "ColumnMap",
    "ColumnReport",
    "ColumnUse",
    "Condition",
    "Dataset",
    "Fragment",
    "MappedFragment",
    "ParquetFragment",
    "RangeFragment",
    "Reweighted",
    "RootFragment",
    "Schema",
    "SelectedFragment",
    "StoredColumn",
    "Verdict",
    "amptools_columns",
    "as_condition",
    "from_arrow",
    "p4_columns",
    "read_amptools",
    "read_parquet",
    "read_root",
    "row_uniforms",
    "write_root",
]
