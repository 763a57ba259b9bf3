"""Machine code that all kernels of a processor share: the loops around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from laddu_dask.kernels.native import Code, assemble, cache_key
from laddu_dask.kernels.object_cache import default_cache
from laddu_dask.kernels.target import Target

#: Effort that LLVM makes for it.
_LEVEL = 2


@functools.cache
def shared_function(name: str, text: Callable[[], str], kind: Any, target: Target) -> Any:
    """The function `name` of an assembly, of the cache on disk or made now.

    It keeps its code alive: threads that are the first to ask for it at the same time each get
    theirs.

    Parameters
    ----------
    name
        Of the function, and in the cache.
    text
        Gives the assembly.
    kind
        Its ctypes prototype.
    target
        The processor.
    """
    key = cache_key(name, target)
    made = default_cache().get(key)
    if made is None:
        made = assemble(text(), target, _LEVEL, passes=True)
        default_cache().put(key, made)
    code = Code(made, target)
    function = kind(code.address(name))
    function.code = code
    return function
