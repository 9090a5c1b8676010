"""Modules under `DistributedDataParallel` on two processes, compiled around and within: losses,
parameters and buffers are those of eager, and parameters are equal on both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from fusewright.capture.handlers.collectives import LEFT_TO_EAGER
from tests.distributed.programs import COLLECTIVES, SCENARIOS

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="this torch is built without distributed"
    ),
]

SECONDS = 200
"""How long the rank that is left may take to notice, on a machine with other things to do."""

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes that run all scenarios found."""
    folder = tmp_path_factory.mktemp("distributed")
    file = folder / "results.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    run = subprocess.run(
        [*command, PROGRAMS, file],
        env={**ENVIRONMENT, "FUSEWRIGHT_CACHE_DIR": str(folder / "cache")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_training_on_two_processes(scenario: str, results: dict[str, Any]) -> None:
    assert results["differences"][scenario] == []


@pytest.mark.parametrize("program", [row[0].__name__ for row in COLLECTIVES])
def test_collectives_that_a_program_calls(program: str, results: dict[str, Any]) -> None:
    """They stand in one graph, in their order, each waited for where its result is first read; or
    they break it, and run as they are written.
    """
    assert results["differences"][program] == []


def test_collectives_that_break_the_graph_are_documented() -> None:
    page = " ".join((ROOT / "docs" / "distributed.md").read_text().split())
    for reason, functions in LEFT_TO_EAGER.items():
        assert reason in page and all(f"`{name}`" in page for name in functions), reason


def test_ranks_load_the_machine_code_that_one_compiled(results: dict[str, Any]) -> None:
    assert results["differences"].get("kept code", []) == []


@pytest.mark.parametrize("split", ["None", "backward", "graph"])
def test_buckets_are_reduced_while_backward_runs(split: str, results: dict[str, Any]) -> None:
    """After the last layer's gradients, in eager ("None") and by either way to split."""
    assert results["orders"][split] == ["node", "bucket"] * 4


def test_a_whole_backward_reduces_buckets_at_its_end(results: dict[str, Any]) -> None:
    assert results["orders"]["none"] == ["node", *["bucket"] * 4]


def test_a_rank_that_is_killed_ends_the_other_with_an_error() -> None:
    first = end_of_first_rank("killed.py")
    assert first.stdout.split("\n")[:-1] == ["step 0", "step 1"]
    assert first.returncode != 0
    assert "loss.backward()" in first.stderr and "peer" in first.stderr


def test_a_rank_that_waits_says_who_compiles_what_before_it_times_out() -> None:
    first = end_of_first_rank("compiling.py")
    assert first.returncode != 0 and "Timed out" in first.stderr
    before = first.stderr[: first.stderr.index("Traceback")]
    assert "rank 1 compiles Linear.forward" in before and "torch/nn/modules/linear.py" in before


def end_of_first_rank(program: str) -> subprocess.CompletedProcess[str]:
    """How the first of two processes ends that run a program of this folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(PROGRAMS.with_name(program))]
    environment = {**ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment["WORLD_SIZE"] = "2"
    second = subprocess.Popen(
        command,
        env={**environment, "RANK": "1"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        return subprocess.run(
            command,
            env={**environment, "RANK": "0"},
            timeout=SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
    finally:
        second.kill()
        second.wait()
