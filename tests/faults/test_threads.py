"""Threads that compile, call and train at once, with an extension that sanitisers watch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.many_threads import ROOT, SANITISERS, at_fixed_addresses, main, under


def test_threads_compile_call_and_train_at_once() -> None:
    assert main(["--threads", "6", "--seconds", "2"]) == 0


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc, which has sanitisers")
RACE = """\
long counter;

void count(long times)
{
    for (long i = 0; i < times; i++) {
        counter++;
    }
}
"""
COUNTS = """\
import ctypes, sys, threading

library = getattr(ctypes, sys.argv[1])(sys.argv[2])
threads = [threading.Thread(target=library.count, args=(2_000_000,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@needs_gcc
@pytest.mark.thorough
@pytest.mark.parametrize("sanitiser", SANITISERS)
def test_sanitisers_report_nothing(sanitiser: str) -> None:
    command = [sys.executable, "-m", "tests.faults.many_threads", "--threads", "8"]
    run = subprocess.run(
        [*command, "--seconds", "3", "--sanitise", sanitiser],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"with sanitisers of {sanitiser}" in run.stdout


@needs_gcc
@pytest.mark.thorough
@pytest.mark.parametrize(("loader", "status"), [("PyDLL", 0), ("CDLL", 66)])
def test_a_race_is_reported_where_the_interpreter_is_not_locked(
    loader: str, status: int, tmp_path: Path
) -> None:
    """So that a run without reports says something."""
    (tmp_path / "race.c").write_text(RACE)
    (tmp_path / "counts.py").write_text(COUNTS)
    library = str(tmp_path / "race.so")
    flags = ["-shared", "-fPIC", "-g", "-fsanitize=thread"]
    subprocess.run(["gcc", *flags, str(tmp_path / "race.c"), "-o", library], check=True)
    command = [sys.executable, str(tmp_path / "counts.py"), loader, library]
    run = subprocess.run(
        [*at_fixed_addresses(), *command],
        env=under(SANITISERS["races"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == status, run.stderr
    assert ("data race" in run.stderr) == (status != 0)
