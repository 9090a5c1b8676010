"""A wheel, in an environment without a compiler: it is built by the one command, installs, and the
demonstration runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.thorough


def run(*words: str, **environment: str) -> str:
    """What a command prints; it has to end well."""
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    version = ".".join(map(str, sys.version_info[:2]))
    into = tmp_path_factory.mktemp("wheels")
    run(
        *(sys.executable, "-m", "tools.build_wheels", "--into", str(into), "--only", version),
        **os.environ,
    )
    (path,) = into.iterdir()
    return path


def test_what_is_in_it(wheel: Path) -> None:
    """The C sources that programs without Python are built with, and no others."""
    assert "manylinux_2_28" in wheel.name
    names = ZipFile(wheel).namelist()
    sources = [name for name in names if name.endswith((".c", ".h"))]
    standalone = ROOT / "src" / "fusewright" / "native" / "standalone"
    expected = {f"fusewright/native/standalone/{path.name}" for path in standalone.glob("*.[ch]")}
    assert set(sources) == {*expected, "fusewright/opgen/support.h"}
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "tools"))]


def test_the_demonstration_runs_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    """Other packages are those of this environment."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), PATH=os.environ["PATH"])
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(str(Path(torch.__file__).parents[1]))
    nothing = tmp_path / "empty"
    nothing.mkdir()
    cache = str(tmp_path / "cache")
    surroundings = {"PATH": str(nothing), "FUSEWRIGHT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    where = run(python, "-P", "-c", "import fusewright; print(fusewright.__file__)", **surroundings)
    assert where.startswith(str(folder))
    for kept in (False, True):
        printed = run(
            *(python, "-m", "examples.demo", "--layers", "1", "--seconds", "0.1"),
            **{**surroundings, "HOME": str(tmp_path), "FUSEWRIGHT_STRICT": "1"},
        )
        assert "relative error against eager" in printed
        assert ("an earlier process has kept it" in printed) == kept
    assert "there is no C++" in printed, "a compiler was found"
