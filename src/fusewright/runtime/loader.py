"""Generated modules: text to a file that tracebacks can show, to a loaded `call`."""

from __future__ import annotations

import getpass
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType

from fusewright.records import record
from fusewright.runtime.generated import CONSTANTS


@record
class LoadedModule:
    """A generated module in memory."""

    call: Callable[[list[object]], tuple[object, ...]]
    """Takes one list of size symbols and tensors, clears it, and returns the graph's results."""

    path: Path
    """The file that holds its text."""


def load_module(text: str, constants: Mapping[str, object]) -> LoadedModule:
    """Write `text` to a file named by its hash, and execute it."""
    name = f"fusewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = generated_folder() / f"{name}.py"
    _write_once(path, text)
    code: CodeType = compile(text, str(path), "exec")
    namespace: dict[str, object] = {
        "__name__": name,
        "__file__": str(path),
        CONSTANTS: constants,
    }
    exec(code, namespace)
    call = namespace["call"]
    assert callable(call)
    return LoadedModule(call=call, path=path)


def generated_folder() -> Path:
    """A private folder: `FUSEWRIGHT_CACHE_DIR`, or one a user in the system's temporary folder."""
    chosen = os.environ.get("FUSEWRIGHT_CACHE_DIR")
    folder = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"fusewright_{_user()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _write_once(path: Path, text: str) -> None:
    """Write through a temporary file, so that another process never reads half a module."""
    if path.exists():
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)
