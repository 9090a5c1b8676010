"""Modules under `DistributedDataParallel` on two processes, compiled around and within: losses,
parameters and buffers are those of eager, and parameters are equal on both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

from tests.distributed.programs import SCENARIOS

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="this torch is built without distributed"
    ),
]

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What differs, by scenario; two processes run them all."""
    file = tmp_path_factory.mktemp("distributed") / "differences.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [*command, PROGRAMS, file], env=environment, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_training_on_two_processes(scenario: str, differences: dict[str, list[str]]) -> None:
    assert differences[scenario] == []
