"""How to run: the options that every evaluation takes."""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from laddu_dask.compiler import Autodiff, KernelOptions, Precision
from laddu_dask.errors import ExecutionError
from laddu_dask.memory import MemoryPlan
from laddu_dask.runtime.cluster_form import picklable_form, refuse_other_forms
from laddu_dask.runtime.partitions import Partitioning

BackendName = Literal["auto", "interpreter", "cpu", "gpu"]
Normalization = Literal["auto", "general", "verify"]
Storage = Literal["fastest", "resident", "spilled", "streaming"]

#: Words that the interface reserves and this version does not serve yet. They are refused rather
#: than replaced by something else.
_NOT_YET = {
    ("backend", "gpu"): "choose backend='cpu'",
}


@dataclass(frozen=True)
class Execution:
    """Where and how a likelihood or model is evaluated.

    Attributes
    ----------
    backend
        ``"cpu"``: compiled kernels; ``"interpreter"``: NumPy, nothing compiled; ``"auto"``: cpu.
    precision
        ``"f64"``: double precision; ``"f32"``: prepared columns are kept as floats, which halves
        their memory, and each value and its derivatives are worked out in floats, to 6e-8 at best.
        Preparation, logarithms, weights and sums are doubles in both, and results are as
        reproducible. A fit needs ``"f64"`` where parameters change the objective by less than 1e-7
        of its size. See docs/reproducibility.md.
    autodiff
        How kernels differentiate: ``"reverse"``: one sweep from the value down; ``"forward"``: a
        tangent for each of the values that parameters enter by; ``"auto"``: forward where it does
        no more work and its kernel costs less, which takes very few parameters. The derivatives are
        the same to rounding.
    normalization
        ``"auto"``: what is separable in a normalisation integral is summed once, and costs nothing
        per event from then on; ``"general"``: every accepted event in every evaluation;
        ``"verify"``: both, compared.
    storage
        ``"resident"``: prepared columns stay in memory; ``"spilled"``: they are written to disk
        once, in the folder for temporary files or the local directory of Dask workers, and mapped
        in every pass; ``"streaming"``: every pass reads the source; ``"fastest"``: each partition
        the first of these ways that there is room for.
    threads
        Threads of this process; None takes the processors that this process may use. On a cluster
        the workers' own thread counts hold.
    chunk_events
        Most events worked on at once by a thread, at most 131072; None lets the planner decide. The
        planner may go lower. Results do not depend on it.
    memory
        Budget of this process, or of each worker: ``"2 GiB"``, ``"50%"``, a number of bytes, a
        `MemoryPlan` (of the disk for spilled events too), or None for most of what is available.
    cluster
        None: in this process, without scheduler or open port. Else a Dask client, the address of a
        scheduler, the path of a scheduler file, or a Dask cluster object. A client or a cluster
        object is pickled as the address of its scheduler, to which the copy connects by itself.
    partitions
        Number of partitions of each data set; None chooses. Results do not depend on it. Fewer are
        made when there would be less than 1024 events, the unit of all sums, in each.
    partitioning
        ``"contiguous"``: nearly equal partitions, cut between row groups where one ends nearby;
        ``"file_groups"``: whole files, one to a partition unless `partitions` asks for fewer, but
        for the up to 512 events at an end that complete a unit of the neighbour's; ``"rows"``:
        equal numbers of rows, wherever files and row groups end. Results do not depend on it.
    patience
        Seconds without a sign of progress from a cluster after which an evaluation fails. It must
        exceed the time that a worker takes for its share of one.
    """

    backend: BackendName = "auto"
    precision: Precision = "f64"
    autodiff: Autodiff = "auto"
    normalization: Normalization = "auto"
    storage: Storage = "fastest"
    threads: int | None = None
    chunk_events: int | None = None
    memory: Any = None
    cluster: Any = field(default=None, compare=False)
    partitions: int | None = None
    partitioning: Partitioning = "contiguous"
    patience: float = 300.0

    def __post_init__(self) -> None:
        for option, words in (
            ("backend", BackendName),
            ("precision", Precision),
            ("autodiff", Autodiff),
            ("normalization", Normalization),
            ("storage", Storage),
            ("partitioning", Partitioning),
        ):
            value = getattr(self, option)
            if value not in get_args(words):
                raise ExecutionError(
                    f"{option}={value!r} is not one of {', '.join(map(repr, get_args(words)))}",
                    option=option,
                )
            advice = _NOT_YET.get((option, value))
            if advice:
                raise ExecutionError(
                    f"{option}={value!r} is not available in this version; {advice}", option=option
                )
        for option in ("threads", "chunk_events", "partitions"):
            value = getattr(self, option)
            if value is not None:
                object.__setattr__(self, option, _count(option, value))
        object.__setattr__(self, "patience", _seconds("patience", self.patience))
        if self.cluster is not None:
            refuse_other_forms(self.cluster)
        object.__setattr__(self, "memory", MemoryPlan.parse(self.memory))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cluster": picklable_form(self.cluster)}

    @property
    def backend_name(self) -> str:
        """The backend that ``"auto"`` stands for."""
        return "cpu" if self.backend == "auto" else self.backend

    @property
    def kernel_options(self) -> KernelOptions:
        """What of it compiled kernels depend on."""
        return KernelOptions(autodiff=self.autodiff, precision=self.precision)

    @property
    def local_threads(self) -> int:
        """Threads in this process."""
        if self.threads is not None:
            return self.threads
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def execution_or_default(execution: Any) -> Execution:
    """An execution, the default one for None.

    Raises
    ------
    ExecutionError
        Something else.
    """
    if execution is None:
        return Execution()
    if not isinstance(execution, Execution):
        raise ExecutionError(
            f"execution must be an Execution or None, got {execution!r}; write for example "
            "execution=laddu_dask.Execution(backend='cpu')",
            option="execution",
        )
    return execution


def _count(option: str, value: Any) -> int:
    """A positive integer of any integer type, NumPy's among them."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ExecutionError(
            f"{option} must be a positive integer or None, got {value!r}", option=option
        )
    return number


def _seconds(option: str, value: Any) -> float:
    """A positive finite number."""
    number = float(value) if isinstance(value, int | float) else math.nan
    if isinstance(value, bool) or not 0.0 < number < math.inf:
        raise ExecutionError(
            f"{option} must be a positive number of seconds, got {value!r}", option=option
        )
    return number
