"""Expressions that laddu wrote, with the values that it, or a better calculation, gave.

Each file holds the version of laddu, event columns, parameters, complex values (event), their
gradients (event, parameter), and the node table. Values are laddu's own where it has no defect.
Where it has, they are those of laddu with the defect gone: `defect_d1` with its phase space made
complex by hand, `defect_d3` with the right constant; those of `defect_d8` are NaN at one event.
`defect_d13` and `model_b` were calculated with 40 digits or more: laddu 0.28.1 gives for the latter
something else than for the sum of its terms, by a relative 1e-4. The gradients of `functions` are
differences of its values, for those of laddu miss a part where a complex factor meets a squared
modulus.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parents[1] / "data" / "laddu_json"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Sample:
    """One file: columns (n,), values (n,), gradients (n_parameters, n)."""

    table: dict[str, Any]
    columns: dict[str, NDArray[Any]]
    parameters: dict[str, float]
    values: NDArray[Any]
    gradients: NDArray[Any]


def sample(name: str) -> Sample:
    """The file with this name."""
    content = json.loads((FOLDER / f"{name}.json").read_text())
    columns = {key: np.array(value) for key, value in content["columns"].items()}
    pairs = np.array(content["gradients"], dtype=float)
    return Sample(
        content["table"],
        columns,
        content["parameters"],
        np.array([complex(*pair) for pair in content["values"]]),
        (pairs[..., 0] + 1j * pairs[..., 1]).T,
    )
