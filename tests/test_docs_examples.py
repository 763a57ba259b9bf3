"""The examples of the documentation pages run as they stand, from top to bottom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot

DOCS = Path(__file__).parent.parent / "docs"
DATA = Path(__file__).parent / "data"


def run_page(name: str) -> dict[str, Any]:
    """Every Python block of a page, one after the other; the names in the end."""
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def test_where_events_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for piece, rows in enumerate((120, 98)):
        np.save(f"run{piece}.npy", np.full((rows, 6), float(piece)))
    columns = {f"{c}_beam": np.ones(4) for c in ("E", "px", "py", "pz")}
    columns |= {f"{c}_k_MeV": np.full(4, 500.0) for c in ("E", "px", "py", "pz")}
    columns |= {f"{c}_FinalState": np.ones((4, 2)) for c in ("E", "Px", "Py", "Pz")}
    with uproot.recreate("tree.root") as file:
        file["kin"] = {**columns, "m": np.arange(4.0), "w": np.ones(4)}
    names = run_page("data.md")
    assert names["renamed"].column("k_px").tolist() == [0.5] * 4
    assert names["renamed"].column("mass").tolist() == [0.0, 1.0, 2.0, 3.0]
    assert names["data"].n_events == 1000
    assert names["runs"].column("mass").tolist() == [0.0] * 120 + [1.0] * 98
    assert names["runs"].sum_weights() == 98
    assert names["mc"].n_events == 10**8
    mass, t = names["mass"], names["t"]
    assert names["window"].n_events == np.sum((mass > 1.0) & (mass < 1.4) & (t < 0.5))


def test_asking_a_model_about_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page("evaluation.md")
    mass, weight = names["mass"], names["mc"].weights()
    expected = (1.0 + 0.4 * mass) ** 2
    assert names["brightest"] == pytest.approx(expected.max(), rel=1e-14)
    assert names["total"] == pytest.approx(np.sum(weight * expected), rel=1e-12)
    assert names["values"][0] == names["total"]
    assert len(list((tmp_path / "with-intensity").glob("part-*.parquet"))) >= 1


def test_models_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = json.loads((DATA / "laddu_json" / "tagged.json").read_text(encoding="utf-8"))
    (tmp_path / "intensity.json").write_text(json.dumps(sample["table"]), encoding="utf-8")
    names = run_page("importing.md")
    assert names["model"].parameter_names == tuple(sample["parameters"])
    assert set(names["ld"].Model(names["shape"]).parameter_names) == {"m", "width"}


def test_angular_momentum() -> None:
    names = run_page("waves.md")
    assert [wave.label for wave in names["waves"]] == ["3S1", "3D1"]
    assert len(names["amplitudes"]) == 4


def test_reactions() -> None:
    names = run_page("reactions.md")
    beam, target, k1, k2 = (
        names["ld"].Vec4.event(name) for name in ("beam", "target", "ks1", "ks2")
    )
    written_out = names["ld"].helicity_angles(beam, target, k1 + k2, k1)
    assert names["costheta"].node is written_out.costheta.node
    assert names["phi"].node is written_out.phi.node
