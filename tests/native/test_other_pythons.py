"""Compiles the extension for the other CPythons found here; runs torch-free tests under each."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.interpreters import VERSIONS, find_interpreter

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src" / "fusewright" / "native"
TORCH_FREE = (
    "test_frame_hook.py",
    "test_continuations.py",
    "test_owners.py",
    "test_with_others.py",
    "test_guard_journal.py",
    "test_call_trial.py",
)
OTHERS = [version for version in VERSIONS if not sys.version.startswith(version)]


def read_sources() -> list[Path]:
    """The C files that setup.py links into the extension, by its `SOURCES`."""
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="SOURCES")], value=names):
                return [NATIVE / f"{name}.c" for name in ast.literal_eval(names)]
    raise AssertionError("setup.py assigns no SOURCES")


@pytest.mark.parametrize("version", OTHERS)
def test_frame_hook(version: str, tmp_path: Path) -> None:
    python = find_interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    include = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], text=True
    ).strip()
    library = tmp_path / "_extension.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{include}"]
    command = [compiler, *flags, *map(str, read_sources()), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    packages = str(Path(pytest.__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([packages, str(ROOT)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "FUSEWRIGHT_EXTENSION": str(library),
    }
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--noconftest",
        "-p",
        "no:cacheprovider",
    ]
    tests = [str(ROOT / "tests" / "native" / name) for name in TORCH_FREE]
    command += [f"--rootdir={ROOT}", *tests]
    result = subprocess.run(
        command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
