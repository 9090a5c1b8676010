"""Finds interpreters of the CPython versions that fusewright supports."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13")


def find_interpreter(version: str, statement: str = "") -> str | None:
    """An interpreter of a version that executes a statement: the one on the path, or the newest
    among pyenv's. A shim of pyenv's may stand for a version that is not installed.
    """
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    among_pyenv = sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    for candidate in (shutil.which(f"python{version}"), *map(str, among_pyenv)):
        if candidate is None:
            continue
        done = subprocess.run([candidate, "-c", statement], check=False, capture_output=True)
        if done.returncode == 0:
            return candidate
    return None
