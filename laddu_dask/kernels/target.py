"""The processor that machine code is made for.

Kernels are written in vectors of a fixed number of lanes; LLVM splits them to the registers of the
target: one of AVX-512, two of AVX2, four of NEON or SSE2. The split changes no operation, so every
target gives the same bits. Without fused multiply-add in hardware the C library's function does it,
correctly and slowly.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from laddu_dask.errors import ExecutionError

#: Environment variable that names a target; workers of a mixed cluster may need a common one.
VARIABLE = "LADDU_DASK_TARGET"
#: Processor and the features that it must have, by name of the target.
_NAMED = {
    "avx512": ("x86-64-v4", ("avx512f", "avx512dq", "avx512vl", "fma")),
    "avx2": ("x86-64-v3", ("avx2", "fma")),
    "sse2": ("x86-64", ("sse2",)),
}


@dataclass(frozen=True)
class Target:
    """A processor.

    Attributes
    ----------
    name
        ``"host"`` or one of the named targets.
    triple, cpu, features
        As LLVM knows them.
    """

    name: str
    triple: str
    cpu: str
    features: str

    @property
    def processor(self) -> str:
        """The processor that will run the code, whatever it is restricted to."""
        return str(llvm.get_host_cpu_name())

    @property
    def tuning(self) -> str:
        """Processor whose scheduling model LLVM uses, or none in particular.

        That of the newest x86 processors has LLVM schedule once more after it has chosen registers,
        which takes half of the time to compile and makes no kernel faster.
        """
        return "x86-64-v4" if self.triple.startswith("x86_64") else ""

    @functools.cached_property
    def key(self) -> str:
        """Identifies the machine code that is made for this target."""
        return "|".join((self.triple, self.cpu, self.features, *map(str, llvm.llvm_version_info)))

    def machine(self, level: int) -> Any:
        """LLVM's code generator at an optimisation level from 0 to 3."""
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=level, codemodel="jitdefault", jit=True
        )


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def find_target(name: str) -> Target:
    """A target that this machine can run.

    Parameters
    ----------
    name
        ``"host"``: all that this processor can do; or ``"avx512"``, ``"avx2"``, ``"sse2"``.

    Raises
    ------
    ExecutionError
        Unknown name, or this processor lacks what the target needs.
    """
    _initialize()
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    if name == "host":
        return Target(name, triple, llvm.get_host_cpu_name(), features.flatten())
    if name not in _NAMED:
        raise ExecutionError(
            f"unknown target {name!r} in {VARIABLE}; choose one of host, {', '.join(_NAMED)}",
            option=VARIABLE,
        )
    cpu, needed = _NAMED[name]
    missing = [feature for feature in needed if not features.get(feature)]
    if missing:
        raise ExecutionError(
            f"target {name!r} needs {', '.join(missing)}, which this processor "
            f"({llvm.get_host_cpu_name()}) has not; unset {VARIABLE}",
            option=VARIABLE,
        )
    return Target(name, triple, cpu, "")


@functools.cache
def current_target() -> Target:
    """The target that the environment asks for; the host if it asks for none. Read once."""
    return find_target(os.environ.get(VARIABLE) or "host")
