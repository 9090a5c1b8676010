"""Generated modules: text to a file that tracebacks can show, to a loaded `call`."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import linecache
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, Final

from fusewright.records import record
from fusewright.runtime.folders import configured_folder, generated_folder, write_once
from fusewright.runtime.generated import CONSTANTS
from fusewright.runtime.kept_files import files_of, remove_oldest

MODULE_ROOM: Final = 1 << 26
"""Bytes that the files of generated modules may come to: some five thousand. They are for people
to read, and no process needs those of another.
"""

PRUNE_EVERY: Final = 256
"""Modules that a process loads between two looks at all files; it has another look as it ends, when
nobody waits for a first result.
"""

_MODULE: Final = re.compile(r"fusewright_[0-9a-f]{16}\.py")
"""The name of such a file: a user's own, in a folder of their choice, is none."""

_LOADED: Final = itertools.count()
"""How many modules this process has loaded."""


@record
class LoadedModule:
    """A generated module in memory."""

    call: Callable[[list[object]], tuple[object, ...]]
    """Takes one list of size symbols and tensors, clears it, and returns the graph's results."""

    path: Path
    """The file that holds its text."""

    variables: dict[str, Any]
    """Its globals."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """The constants that were handed over with its text."""
        return self.variables[CONSTANTS]  # type: ignore[no-any-return]


def load_module(text: str, constants: Mapping[str, object]) -> LoadedModule:
    """Write `text` to a file named by its hash, and execute it. Where no file can be written, its
    lines are kept in memory for tracebacks.
    """
    name = _name_of(text)
    path = generated_folder() / f"{name}.py"
    _prune_in_time(next(_LOADED))
    try:
        path = write_once(path, text)
    except OSError:
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    code: CodeType = compile(text, str(path), "exec")
    namespace: dict[str, Any] = {
        "__name__": name,
        "__file__": str(path),
        CONSTANTS: constants,
    }
    exec(code, namespace)
    call = namespace["call"]
    assert callable(call)
    return LoadedModule(call=call, path=path, variables=namespace)


def text_of_module(path: Path) -> str:
    """The text of a generated module, from its file. ValueError: it was changed since. OSError: it
    cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    if path.stem != _name_of(text):
        raise ValueError(f"{path} is not the module that was generated: it was changed")
    return text


def generated_modules() -> list[tuple[float, int, Path]]:
    """The files of all generated modules: when each was loaded last, its bytes, its path."""
    return [file for file in files_of(configured_folder()) if _MODULE.fullmatch(file[2].name)]


def prune_modules() -> None:
    """Remove the files of the modules that were loaded longest ago, where there are too many."""
    remove_oldest(generated_modules(), MODULE_ROOM, MODULE_ROOM * 3 // 4)


def _prune_in_time(loaded: int) -> None:
    if loaded == 0:
        atexit.register(prune_modules)
    elif loaded % PRUNE_EVERY == 0:
        prune_modules()


def _name_of(text: str) -> str:
    return f"fusewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
