"""Where generated code is kept as files, which tracebacks and Triton read."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path


def generated_folder() -> Path:
    """A private folder: `FUSEWRIGHT_CACHE_DIR`, or one a user in the system's temporary folder."""
    chosen = os.environ.get("FUSEWRIGHT_CACHE_DIR")
    folder = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"fusewright_{_user()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_once(path: Path, text: str) -> None:
    """Write through a temporary file, so that another process never reads half of it."""
    if path.exists():
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
