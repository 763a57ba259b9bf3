"""The recorded two-wave sample as a likelihood, in every form that its events can have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import laddu_dask as ld

SAMPLES = Path(__file__).resolve().parents[1] / "data"
KAON_MASS = 0.497611
P4S = ("beam", "target", "ks1", "ks2")


@cache
def expected() -> dict[str, Any]:
    """Expected numbers by case."""
    cases: dict[str, Any] = json.loads((SAMPLES / "cases.json").read_text())
    return cases


@cache
def intensity() -> ld.Expr:
    """|f0 + mag exp(i pha) f2|^2 of a K_S K_S pair."""
    beam, target, k1, k2 = (ld.Vec4.event(name) for name in P4S)
    pair = k1 + k2
    angles = ld.helicity_angles(beam, target, pair, k1)

    def wave(mass: float, width: float, l: int, m: int) -> ld.Expr:
        return ld.relativistic_breit_wigner(
            pair.m2(), mass=mass, width=width, mass1=KAON_MASS, mass2=KAON_MASS, l=l
        ) * ld.spherical_harmonic(l, m, costheta=angles.costheta, phi=angles.phi)

    strength = ld.polar_complex(ld.parameter("mag", initial=0.7), ld.parameter("pha", initial=0.9))
    return (wave(1.5, 0.11, 0, 0) + strength * wave(1.27, 0.19, 2, 1)).norm_sqr()


@cache
def model() -> ld.Model:
    """The shape; one object, so that it is compiled once."""
    return ld.Model(intensity())


@cache
def scaled_model() -> ld.Model:
    """The shape with a rate."""
    return ld.Model(ld.parameter("scale", initial=40, bounds=(0, None)) * intensity())


@cache
def sample(name: str) -> ld.Dataset:
    """One of the shipped samples."""
    return ld.read_parquet(SAMPLES / f"{name}.parquet")


@cache
def asimov() -> ld.Dataset:
    """The accepted events, weighted so that the minimum is known: 1000 of the rate at the truth."""
    mc = sample("mc")
    rate = mc.weights() * model().evaluate(mc, real=True)
    return mc.with_weights(1000 * rate / rate.sum())


def two_waves(
    execution: ld.Execution | None = None,
    *,
    extended: bool = False,
    data: ld.Dataset | None = None,
    accepted_mc: ld.Dataset | None = None,
    normalization: Literal["auto", "general", "verify"] = "general",
) -> ld.Likelihood:
    """The likelihood of the case `two_waves`; every event in every evaluation by default."""
    kind = ld.ExtendedNLL if extended else ld.NLL
    term = kind(
        model(),
        data=sample("data") if data is None else data,
        accepted_mc=sample("mc") if accepted_mc is None else accepted_mc,
    )
    return ld.Likelihood([term], replace(execution or ld.Execution(), normalization=normalization))


def bits(likelihood: ld.Likelihood, parameters: Any = None) -> tuple[str, ...]:
    """Objective and gradient to the last bit, in hexadecimal."""
    value, gradient = likelihood.value_and_gradient(parameters)
    assert likelihood.value(parameters) == value
    return (value.hex(), *(component.hex() for component in gradient.tolist()))


# Forms of the same events ------------------------------------------------------------------


def table(name: str) -> pa.Table:
    """The columns that the model reads, and the weight."""
    columns = [f"{p4}_{component}" for p4 in P4S for component in ("e", "px", "py", "pz")]
    return pq.read_table(SAMPLES / f"{name}.parquet", columns=[*columns, "weight"])


@cache
def as_arrays(name: str) -> ld.Dataset:
    """The sample as NumPy arrays."""
    whole = table(name)
    columns = {key: whole[key].to_numpy() for key in whole.column_names}
    p4s = {
        p4: np.stack([columns[f"{p4}_{c}"] for c in ("e", "px", "py", "pz")], axis=1) for p4 in P4S
    }
    return ld.Dataset.from_arrays(p4s=p4s, weights=columns["weight"])


def as_groups(name: str, folder: Path, rows: int) -> ld.Dataset:
    """The sample rewritten in row groups of `rows`, columns in reverse order."""
    path = folder / f"{name}-{rows}.parquet"
    whole = table(name)
    pq.write_table(whole.select(whole.column_names[::-1]), path, row_group_size=rows)
    return ld.read_parquet(path)


def as_files(name: str, folder: Path, cuts: Sequence[int]) -> ld.Dataset:
    """The sample in several files, cut at `cuts`, each with row groups of its own size."""
    whole = table(name)
    edges = [0, *cuts, whole.num_rows]
    for number, (start, stop) in enumerate(pairwise(edges)):
        path = folder / f"{name}-part{number:02d}.parquet"
        pq.write_table(whole.slice(start, stop - start), path, row_group_size=101 + 50 * number)
    return ld.read_parquet(folder / f"{name}-part*.parquet")
