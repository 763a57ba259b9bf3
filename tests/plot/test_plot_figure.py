"""Figures of projections."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laddu_dask.errors import DataError, ExecutionError, OutputError
from laddu_dask.plot import Panel, draw_projections


def panel(title: str = "mass") -> Panel:
    edges = np.linspace(1.0, 2.0, 11)
    total = 50 * np.exp(-(((edges[:-1] - 1.45) / 0.2) ** 2)) + 1
    data = np.round(total + 3 * np.sin(9 * edges[:-1]))
    data[3], data[-1] = 95.0, 0.0
    return Panel(
        title=title,
        label=r"$m(K_S K_S)$",
        unit="GeV",
        edges=edges,
        data=data,
        errors=np.sqrt(data),
        total=total,
        components={"f0": 0.7 * total, "f2": 0.3 * total, "interference": -0.05 * total},
    )


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


@pytest.mark.parametrize(("n", "shape"), [(1, (1, 1)), (3, (3, 1)), (4, (2, 2)), (5, (3, 2))])
def test_png(n: int, shape: tuple[int, int], tmp_path: Path) -> None:
    """Panels of 4.2 by 3.9 inches at 150 dots per inch, three in a row."""
    path = draw_projections([panel(f"panel {k}") for k in range(n)], tmp_path / "fit.png")
    assert png_size(path) == (shape[0] * 630, shape[1] * 585)
    assert os.listdir(tmp_path) == ["fit.png"]


@pytest.mark.parametrize(("name", "head"), [("fit.pdf", b"%PDF"), ("fit.svg", b"<?xml")])
def test_other_formats(name: str, head: bytes, tmp_path: Path) -> None:
    assert draw_projections([panel()], tmp_path / name).read_bytes().startswith(head)


def test_labels(tmp_path: Path) -> None:
    """Axis with unit, counts per bin width, legend with data, fit and components."""
    given = replace(panel("Mass spectrum"), label="mass")
    path = draw_projections([given], tmp_path / "fit.svg")
    # Text is drawn as paths with the source in a comment.
    text = path.read_text(encoding="utf-8")
    for words in ("Mass spectrum", "mass (GeV)", "Events / 0.1 GeV", "pull", "data", "fit", "f2"):
        assert f"<!-- {words} -->" in text


def test_uneven_bins_and_no_unit(tmp_path: Path) -> None:
    given = replace(
        panel(), edges=np.linspace(1, 1.5, 11) ** 2, unit=None, label="cos", components={}
    )
    text = draw_projections([given], tmp_path / "fit.svg").read_text(encoding="utf-8")
    assert "<!-- Events / bin -->" in text
    assert "<!-- cos -->" in text


def test_empty_panel(tmp_path: Path) -> None:
    nothing = np.zeros(10)
    given = replace(panel(), data=nothing, errors=nothing, total=nothing, components={})
    assert png_size(draw_projections([given], tmp_path / "fit.png")) == (630, 585)


def test_same_panel_same_pixels(tmp_path: Path) -> None:
    one = draw_projections([panel()], tmp_path / "1.png").read_bytes()
    two = draw_projections([panel()], tmp_path / "2.png").read_bytes()
    assert one == two


def test_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fit.png"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"exists.*overwrite=True"):
        draw_projections([panel()], path)
    assert path.read_text() == "precious"
    assert png_size(draw_projections([panel()], path, overwrite=True)) == (630, 585)


def test_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.png, \.pdf, \.svg"):
        draw_projections([panel()], tmp_path / "fit.docx")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"data": np.ones(9)}, r"panel 'mass': data has shape \(9,\), but 11 edges make 10 bins"),
        ({"errors": np.full(10, np.nan)}, "panel 'mass': errors is not finite"),
        ({"components": {"f0": np.ones(3)}}, "component 'f0' has shape"),
        ({"edges": [2.0, 1.0]}, "strictly ascending"),
    ],
)
def test_arrays_that_do_not_fit(change: dict[str, object], text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=text):
        draw_projections([replace(panel(), **change)], tmp_path / "fit.png")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_no_panels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        draw_projections([], tmp_path / "fit.png")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ExecutionError, match=r"pip install 'laddu-dask\[plot\]'"):
        draw_projections([panel()], tmp_path / "fit.png")
    assert os.listdir(tmp_path) == []


def test_import_leaves_matplotlib_alone() -> None:
    """The plotting room loads without matplotlib, and drawing never loads pyplot."""
    code = (
        "import sys, laddu_dask.plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import numpy as np, tempfile, os\n"
        "one = np.ones(2)\n"
        "p = laddu_dask.plot.Panel('t', 'x', [0, 1, 2], one, one, one)\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        "    laddu_dask.plot.draw_projections([p], os.path.join(d, 'a.png'))\n"
        "assert 'matplotlib.figure' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
