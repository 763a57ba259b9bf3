"""The example scripts run as a user would run them, and their own assertions hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("local_fit.py", "pull"),
        pytest.param("cluster_fit.py", "-2 ln L on workers", marks=pytest.mark.cluster),
        pytest.param("larger_than_memory.py", "allowed", marks=pytest.mark.cluster),
    ],
)
def test_example_runs(script: str, says: str, tmp_path: Path) -> None:
    """Each script ends well, prints its result, and leaves nothing in the current folder."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert says in done.stdout
    assert not list(tmp_path.iterdir())
