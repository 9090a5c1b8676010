"""docs/opgen.md: what it shows is what there is, and its programs print what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright.opgen import generate
from tests.opgen.processes import got_through

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "opgen.md").read_text()
EXAMPLE = ROOT / "examples" / "external_backend"
PROGRAMS = re.findall(r"```\n\$ (.*\bpython .*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles the example's device with g++")
@pytest.mark.parametrize(("command", "shown"), PROGRAMS, ids=[command for command, _ in PROGRAMS])
def test_programs_print_what_the_page_shows(command: str, shown: str) -> None:
    """To the last count of what fell back; measured times aside, and digits that may differ from
    one processor to another.
    """
    bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env={**os.environ, "PATH": bin_first, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert got_through(done.returncode, done.stderr), done.stderr
    assert _without_fractions(done.stdout) == _without_fractions(shown)
    if "benchmarks" not in command:
        assert _fractions(done.stdout) == pytest.approx(_fractions(shown), rel=1e-3)


_FRACTION = r" *(-?\d+\.\d+)"


def _without_fractions(text: str) -> str:
    return re.sub(_FRACTION, " …", text)


def _fractions(text: str) -> list[float]:
    return [float(number) for number in re.findall(_FRACTION, text)]


def test_there_are_such_programs() -> None:
    assert len(PROGRAMS) == 2


def test_the_description_is_one() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    assert "EmberKernels.h" in generate(shown)
    full = (EXAMPLE / "ember.yaml").read_text()
    for line in shown.splitlines():
        assert line.partition("#")[0].strip() in full


def test_what_is_quoted_stands_in_the_example() -> None:
    header = generate((EXAMPLE / "ember.yaml").read_text(), targets=["cpp"])["EmberKernels.h"]
    sources = [header, *(path.read_text() for path in EXAMPLE.iterdir() if path.is_file())]
    words = " ".join(" ".join(sources).split())
    blocks = re.findall(r"```cpp\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 2
    for block in blocks:
        for line in block.splitlines():
            assert line.strip() in words
