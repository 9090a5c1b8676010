"""Random programs on a GPU, in processes of their own: each begins to use the GPU by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.gpu.support import needs_gpu

pytestmark = needs_gpu


def test_random_programs(tmp_path: Path) -> None:
    """Some are checked, not discarded all; none differs."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fusewright.cli", "fuzz", "--device", "cuda"),
            *("--count", "40", "--jobs", "4", "--resume", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "cases.jsonl").read_text().count('"right"') > 10
