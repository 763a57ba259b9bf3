"""The README's script and commands are what this version does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_extractor() -> ModuleType:
    """Import `.ci/readme_commands.py`, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(
        "readme_commands", ROOT / ".ci" / "readme_commands.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


README = (ROOT / "README.md").read_text(encoding="utf-8")
marked_block = load_extractor().marked_block


def test_first_command_installs_and_runs_the_demo() -> None:
    """One command on a fresh machine does the main job."""
    assert marked_block(README, 1) == (
        "python3 -m venv .venv && .venv/bin/pip install '.[plot]' && .venv/bin/laddu-dask demo\n"
    )


def test_second_command_installs_and_runs_the_tests() -> None:
    """A second command passes the tests."""
    assert marked_block(README, 2) == ".venv/bin/pip install '.[test]' && .venv/bin/pytest\n"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- bash 1 -->\n\n```bash\nls\n```\n",
        "```bash\nls\n```\n",
        "<!-- bash 1 -->\n```bash\nls\n```\n<!-- bash 1 -->\n```bash\nls\n```\n",
    ],
    ids=["comment apart from its fence", "no comment", "twice"],
)
def test_a_block_that_is_not_marked_once_is_an_error(text: str) -> None:
    """CI must not run an empty command because a comment was edited."""
    with pytest.raises(LookupError, match="exactly one"):
        marked_block(text, 1)


def test_script_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """The script runs as pasted, converges, and writes only what it says."""
    script = tmp_path / "fit.py"
    script.write_text(marked_block(README, 1, "python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Converged")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "accepted_mc.parquet",
        "data.parquet",
        "fit.py",
    ]
