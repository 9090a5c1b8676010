"""Generated modules: text to a file that tracebacks can show, to a loaded `call`."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from fusewright.records import record
from fusewright.runtime.folders import generated_folder, write_once
from fusewright.runtime.generated import CONSTANTS


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


def _name_of(text: str) -> str:
    return f"fusewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
