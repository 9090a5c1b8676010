"""Threads that compile, call and train at once, with an extension that sanitisers watch."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.faults.many_threads import ROOT, main


def test_threads_compile_call_and_train_at_once() -> None:
    assert main(["--threads", "6", "--seconds", "2"]) == 0


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc, which has the sanitisers")
def test_sanitisers_report_nothing() -> None:
    command = [sys.executable, "-m", "tests.faults.many_threads", "--seconds", "20", "--sanitise"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "with sanitisers" in run.stdout
