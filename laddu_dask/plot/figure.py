"""Projections of data and fit as a figure for a paper.

Matplotlib is optional and imported only when something is drawn. Its global state (backend, current
figure, rcParams) is not changed, so a script's own plots are left alone and no display is needed.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import DataError, ExecutionError, OutputError
from laddu_dask.fit.output import refuse_existing, write_whole
from laddu_dask.plot.projection import F64, checked_edges, pulls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any colour vision; the line styles repeat the message
# in black and white.
_FIT = "#0072B2"
_COMPONENTS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_STYLES: tuple[Any, ...] = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
_FORMATS = ("png", "pdf", "svg")
_DPI = 150
_COLUMNS = 3
_PANEL_INCHES = (4.2, 3.9)
# Pulls beyond this are drawn as arrows at the edge of their strip.
_PULL_RANGE = 4.0


@dataclass(frozen=True, eq=False)
class Panel:
    """One projection.

    Attributes
    ----------
    title
        Text above the panel.
    label
        Symbol or name of the quantity, for example r"$m(K_S K_S)$".
    edges
        Bin limits, ascending, shape (n + 1,).
    data, errors
        Counts of the data and their standard deviations, shape (n,).
    total
        Expected counts of the whole fit, shape (n,).
    components
        Expected counts of parts of the model by name, shape (n,) each.
    unit
        Unit of the quantity, for example "GeV".
    """

    title: str
    label: str
    edges: npt.ArrayLike
    data: npt.ArrayLike
    errors: npt.ArrayLike
    total: npt.ArrayLike
    components: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    unit: str | None = None


def draw_projections(
    panels: Sequence[Panel], path: str | os.PathLike[str], overwrite: bool = False
) -> Path:
    """Draw projections with pulls below each and write them to a file, whole or not at all.

    Parameters
    ----------
    panels
        At least one; three stand in a row.
    path
        File ending in .png (150 dots per inch), .pdf or .svg.
    overwrite
        Whether an existing file may be replaced.

    Raises
    ------
    ExecutionError
        When matplotlib is not installed.
    DataError
        When a panel's arrays do not fit together; names panel and array.
    OutputError
        When the file exists, its ending is unknown, or it cannot be written.
    """
    target = refuse_existing(path, overwrite=overwrite)
    kind = target.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise OutputError(
            f"cannot draw {target}: its name must end in .{', .'.join(_FORMATS)}", file=str(target)
        )
    return write_whole(target, render_projections(panels, kind), overwrite=overwrite)


def render_projections(panels: Sequence[Panel], kind: str = "png") -> bytes:
    """Draw as `draw_projections` does, and return the content of the file.

    Parameters
    ----------
    panels
        At least one.
    kind
        "png", "pdf" or "svg".
    """
    if not panels:
        raise DataError("no projection to draw: the list of panels is empty")
    checked = [_Checked.of(panel) for panel in panels]
    figure_class = _figure_class()
    columns = 2 if len(checked) == 4 else min(_COLUMNS, len(checked))
    rows = math.ceil(len(checked) / columns)
    width, height = _PANEL_INCHES
    figure = figure_class(figsize=(width * columns, height * rows), layout="constrained")
    # More subfigures than panels leave the end of the last row empty.
    subfigures = figure.subfigures(rows, columns, squeeze=False).ravel()
    for subfigure, panel in zip(subfigures, checked, strict=False):
        upper, lower = subfigure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": (3.4, 1), "hspace": 0}
        )
        _draw_counts(upper, panel)
        _draw_pulls(lower, panel)
        subfigure.align_ylabels()
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=_DPI)
    return content.getvalue()


def require_matplotlib() -> None:
    """Raise ExecutionError now, before long work, if nothing could be drawn afterwards."""
    _figure_class()


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExecutionError(
            "drawing needs matplotlib, which is not installed; run: pip install 'laddu-dask[plot]'",
            option="plot",
        ) from error
    return Figure


@dataclass(frozen=True, eq=False)
class _Checked:
    """A panel whose arrays are known to fit together."""

    title: str
    label: str
    unit: str | None
    edges: F64
    data: F64
    errors: F64
    total: F64
    components: dict[str, F64]

    @classmethod
    def of(cls, panel: Panel) -> _Checked:
        edges = checked_edges(panel.edges)

        def array(name: str, given: npt.ArrayLike) -> F64:
            counts = np.array(given, dtype=np.float64)
            if counts.shape != (len(edges) - 1,):
                raise DataError(
                    f"panel {panel.title!r}: {name} has shape {counts.shape}, but {len(edges)} "
                    f"edges make {len(edges) - 1} bins"
                )
            if not np.isfinite(counts).all():
                raise DataError(f"panel {panel.title!r}: {name} is not finite in every bin")
            return counts

        return cls(
            title=panel.title,
            label=panel.label,
            unit=panel.unit,
            edges=edges,
            data=array("data", panel.data),
            errors=array("errors", panel.errors),
            total=array("total", panel.total),
            components={
                name: array(f"component {name!r}", counts)
                for name, counts in panel.components.items()
            },
        )

    @property
    def centres(self) -> F64:
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def axis_label(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def counts_label(self) -> str:
        width = np.diff(self.edges)
        if not np.allclose(width, width[0], rtol=1e-6):
            return "Events / bin"
        return f"Events / {width[0]:.3g}" + (f" {self.unit}" if self.unit else "")


def _draw_counts(axes: Axes, panel: _Checked) -> None:
    axes.stairs(
        panel.total, panel.edges, color=_FIT, linewidth=1.6, label="fit", baseline=None, zorder=3
    )
    axes.stairs(panel.total, panel.edges, color=_FIT, alpha=0.12, fill=True, zorder=1)
    for k, (name, counts) in enumerate(panel.components.items()):
        axes.stairs(
            counts,
            panel.edges,
            color=_COMPONENTS[k % len(_COMPONENTS)],
            linestyle=_STYLES[k % len(_STYLES)],
            linewidth=1.4,
            baseline=None,
            label=name,
            zorder=2,
        )
    axes.errorbar(
        panel.centres,
        panel.data,
        yerr=panel.errors,
        fmt="o",
        color="black",
        markersize=3,
        elinewidth=0.9,
        label="data",
        zorder=4,
    )
    axes.set_title(panel.title, fontsize=10)
    axes.set_ylabel(panel.counts_label, fontsize=9)
    axes.set_xlim(panel.edges[0], panel.edges[-1])
    top = max(float((panel.data + panel.errors).max()), float(panel.total.max()))
    low = min(
        0.0,
        float((panel.data - panel.errors).min()),
        *(float(counts.min()) for counts in panel.components.values()),
    )
    # Room above the points for the legend.
    axes.set_ylim(1.05 * low, 1.35 * top if top > 0 else 1.0)
    # Data first, whatever the order of drawing.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda k: labels[k] != "data")
    axes.legend(
        [handles[k] for k in order],
        [labels[k] for k in order],
        fontsize=7.5,
        frameon=False,
        ncols=2 if len(labels) > 3 else len(labels),
        loc="upper center",
    )
    _draw_ticks(axes)
    axes.tick_params(labelbottom=False)


def _draw_pulls(axes: Axes, panel: _Checked) -> None:
    pull = pulls(panel.data, panel.errors, panel.total)
    axes.axhspan(-2, 2, color="#E0E0E0", linewidth=0)
    axes.axhline(0, color=_FIT, linewidth=1)
    inside = np.abs(pull) <= _PULL_RANGE
    axes.plot(panel.centres[inside], pull[inside], "o", color="black", markersize=2.5)
    for sign, marker in ((1, "^"), (-1, "v")):
        beyond = sign * pull > _PULL_RANGE
        edge = np.full(int(beyond.sum()), sign * 0.92 * _PULL_RANGE)
        axes.plot(panel.centres[beyond], edge, marker, color=_COMPONENTS[0], markersize=4)
    axes.set_ylim(-_PULL_RANGE, _PULL_RANGE)
    axes.set_yticks([-2, 0, 2])
    axes.set_ylabel("pull", fontsize=9)
    axes.set_xlabel(panel.axis_label, fontsize=9)
    _draw_ticks(axes)


def _draw_ticks(axes: Axes) -> None:
    axes.tick_params(direction="in", top=True, right=True, labelsize=8)
