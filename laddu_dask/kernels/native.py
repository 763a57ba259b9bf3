"""LLVM assembly made executable in this process."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from laddu_dask.kernels.target import Target

#: Linking changes LLVM's tables of this process, and llvmlite guards single calls only. A fork
#: waits, or its process would begin with LLVM and llvmlite's own lock in the middle of a call.
_AT_WORK = threading.RLock()
os.register_at_fork(
    before=_AT_WORK.acquire,
    after_in_parent=_AT_WORK.release,
    after_in_child=_AT_WORK.release,
)


@functools.cache
def _generator() -> str:
    """Digest of the sources that make code, so that a cache never outlives a change of them."""
    state = hashlib.blake2b(llvmlite.__version__.encode(), digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        state.update(path.read_bytes())
    return state.hexdigest()


def cache_key(name: str, target: Target) -> str:
    """Key of code in the cache: what it is, for which processor, and what made it."""
    return f"{name}|{target.key}|{_generator()}"


def assemble(text: str, target: Target, level: int, *, passes: bool = False) -> bytes:
    """Object code of a module.

    Parameters
    ----------
    text
        LLVM assembly.
    target
        Processor.
    level
        Effort of code generation, 0 to 3. Level 0 is several times faster to make, and several
        times slower to run.
    passes
        Whether to optimise the assembly first. Kernels are straight-line code without anything to
        find there; loops written with variables in memory need it.
    """
    with _AT_WORK:
        return _assembled(text, target, level, passes)  # LLVM's objects are gone when it returns


def _assembled(text: str, target: Target, level: int, passes: bool) -> bytes:
    module = llvm.parse_assembly(text, llvm.create_context())
    machine = target.machine(level)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    if passes:
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


class Code:
    """Loaded machine code; it must outlive every call of its functions.

    Parameters
    ----------
    object_code
        What `assemble` made, on this machine or one like it.
    target
        The processor that it was made for.
    """

    def __init__(self, object_code: bytes, target: Target) -> None:
        with _AT_WORK:
            self._engine = _linked(object_code, target)

    def address(self, name: str) -> int:
        """Where a function begins."""
        with _AT_WORK:
            return int(self._engine.get_function_address(name))

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None:
            with _AT_WORK:
                engine.close()


def _linked(object_code: bytes, target: Target) -> Any:
    module = llvm.parse_assembly("", llvm.create_context())
    engine = llvm.create_mcjit_compiler(module, target.machine(2))
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    return engine
