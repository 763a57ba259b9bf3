"""The choice of a backend by name."""

from __future__ import annotations

import functools

from laddu_dask.errors import ExecutionError
from laddu_dask.kernels.backend import Backend


@functools.cache
def get_backend(name: str) -> Backend:
    """The backend called ``"interpreter"`` or ``"cpu"``.

    Raises
    ------
    ExecutionError
        Another name.
    """
    if name == "interpreter":
        from laddu_dask.kernels.interpreter import InterpreterBackend

        return InterpreterBackend()
    if name == "cpu":
        from laddu_dask.kernels.cpu import CpuBackend

        return CpuBackend()
    raise ExecutionError(
        f"unknown backend {name!r}; this version has 'interpreter' and 'cpu'", option="backend"
    )
