"""Small ROOT files for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import uproot

N = 300


def contents() -> dict[str, Any]:
    """Columns of every kind that is a number."""
    random = np.random.default_rng(5)
    return {
        "x": random.random(N),
        "f": random.random(N).astype(np.float32),
        "i": random.integers(-(2**53), 2**53, N),
        "h": random.integers(0, 2**16, N).astype(np.uint16),
        "a": random.random((N, 3)),
        "weight": np.ones(N),
    }


def write(
    path: Path,
    columns: Mapping[str, Any],
    *,
    form: str = "ttree",
    tree: str = "kin",
    rows: int = 100,
) -> Path:
    """Write columns as a tree whose blocks have so many rows."""
    total = len(next(iter(columns.values())))
    with uproot.recreate(path) as file:
        types = {name: _type(values) for name, values in columns.items()}
        made = file.mktree(tree, types) if form == "ttree" else None
        for start in range(0, total, rows):
            part = {name: values[start : start + rows] for name, values in columns.items()}
            if made is None:
                made = file.mkrntuple(tree, part)
            else:
                made.extend(part)
    return path


def _type(values: Any) -> Any:
    if not isinstance(values, np.ndarray):
        return values.type.content
    return (values.dtype, values.shape[1:]) if values.ndim > 1 else values.dtype
