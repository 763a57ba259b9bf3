"""Versions of what the path of a fit depends on."""

from __future__ import annotations

from importlib.metadata import version

from laddu_dask.runtime.versions import package_versions


def fit_versions() -> dict[str, str]:
    """What values depend on, and the minimiser."""
    return {**package_versions(), "iminuit": version("iminuit")}
