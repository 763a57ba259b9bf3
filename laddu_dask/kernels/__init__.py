"""Programs made executable: one protocol, a NumPy interpreter, compiled CPU kernels, exact sums."""

from laddu_dask.kernels.accumulator import Accumulator
from laddu_dask.kernels.backend import Backend, Kernel, padded
from laddu_dask.kernels.choice import get_backend

__all__ = ["Accumulator", "Backend", "Kernel", "get_backend", "padded"]
