"""The printed result of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laddu_dask.fit.pdg import rounded
from laddu_dask.fit.start import bounds_text

if TYPE_CHECKING:
    from laddu_dask.fit.result import FitResult

_HEAD = ("parameter", "value", "error", "unit", "bounds", "at limit")


def result_text(result: FitResult) -> str:
    """Return a fit result as the text that people paste: verdict, numbers, one row a parameter."""
    lines = [
        result.message[:1].upper() + result.message[1:],
        "",
        f"  -2 ln L      {result.objective:.6f}",
        f"  EDM          {result.edm:.2g}",
        f"  evaluations  {result.n_evaluations} in {result.seconds:.3g} s "
        f"({result.evaluations_per_second:.3g} per second)",
        "",
        *_table(result),
    ]
    if result.warnings:
        lines += ["", *(f"  warning: {warning}" for warning in result.warnings)]
    return "\n".join(lines)


def _table(result: FitResult) -> list[str]:
    rows = [_HEAD]
    for i, name in enumerate(result.parameter_names):
        value, error = rounded(float(result.values[i]), float(result.errors[i]))
        rows.append(
            (
                name,
                value,
                error,
                result.units[i] or "",
                bounds_text(result.bounds[i]),
                result.limits[i],
            )
        )
    # Columns that say nothing in any row are left out.
    kept = [k for k in range(len(_HEAD)) if k < 3 or any(row[k] for row in rows[1:])]
    width = [max(len(row[k]) for row in rows) for k in range(len(_HEAD))]

    def line(row: tuple[str, ...], between: str) -> str:
        text = f"  {row[0]:<{width[0]}}  {row[1]:>{width[1]}} {between} {row[2]:<{width[2]}}"
        return (text + "".join(f"  {row[k]:<{width[k]}}" for k in kept[3:])).rstrip()

    ruler = "  " + "-" * (width[0] + width[1] + width[2] + 5 + sum(2 + width[k] for k in kept[3:]))
    return [line(rows[0], "±"), ruler, *(line(row, "±") for row in rows[1:])]
