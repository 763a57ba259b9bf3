"""Memory of GPUs, as the driver tells through `pynvml` where that is installed."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


def device_memory() -> dict[str, int]:
    """Free bytes of each GPU of this machine, by its identity ("GPU-...").

    Empty where there is none, or where `pynvml` or the driver is missing: a machine without a
    working GPU is an ordinary machine.
    """
    nvml = _driver()
    if nvml is None:
        return {}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}
    try:
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())
        ]
        return {
            _text(nvml.nvmlDeviceGetUUID(handle)): int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
            for handle in handles
        }
    finally:
        nvml.nvmlShutdown()


@cache
def _driver() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _text(identity: str | bytes) -> str:
    """Older versions answer in bytes."""
    return identity.decode() if isinstance(identity, bytes) else identity
