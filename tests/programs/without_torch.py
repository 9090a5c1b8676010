"""Run programs of constants by CPython and by the interpreter of capture, where there is no torch.

    python3.13 without_torch.py REPOSITORY [PROGRAM ...]

Capture imports torch, but needs nothing of it to interpret functions of constants: here every name
of torch is an empty class.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EMPTY = (
    "torch",
    "numpy",
    "fusewright.fake",
    "fusewright.modes",
    "fusewright.native",
    "fusewright.torch_compat",
)
"""Modules, with all below them, whose every name is an empty class."""

EMPTY_PREFIX = "fusewright.capture.handlers.torch_"


class Anything(type):
    """A class that has every attribute, each an empty class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything(name, (), {})
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """As a function it returns nothing of interest."""
        return Anything("result", (), {})

    def __bool__(cls) -> bool:
        return False

    def __setitem__(cls, key: Any, value: Any) -> None:
        pass

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class Continuation:
    """What the extension's type of the name holds."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments


class EmptyModule(types.ModuleType):
    """A module that has every name."""

    __path__ = ("/there/is/no/torch",)
    __version__ = "2.13.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything(name, (), {"__new__": lambda cls: None})  # not the one of all objects
        setattr(self, name, made)
        return made


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are empty."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        below = any(name == module or name.startswith(f"{module}.") for module in EMPTY)
        if below or name.startswith(EMPTY_PREFIX):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def main() -> None:
    """Print the programs that came out different, as a JSON object."""
    repository = Path(sys.argv[1])
    chosen = sys.argv[2:]
    sys.meta_path.insert(0, EmptyModules())
    for name in ("fusewright", "fusewright.capture"):
        package = types.ModuleType(name)
        package.__path__ = [str(repository.joinpath("src", *name.split(".")))]
        sys.modules[name] = package
    sys.path.insert(0, str(repository))
    sys.modules["tests"] = tests = types.ModuleType("tests")
    tests.__path__ = [str(repository / "tests")]

    from tests.programs import differential, statements
    from tests.programs.corpus import PROGRAMS

    native: Any = importlib.import_module("fusewright.native")
    native.Continuation = Continuation

    different = {}
    breaks = 0
    assert statements, "importing it fills the corpus"
    for name, program in PROGRAMS.items():
        if chosen and name not in chosen:
            continue
        function = program.function
        expected = differential.executed(function)
        results = [differential.interpreted(function)]
        if name not in differential.NOT_BROKEN:
            for step in differential.STEPS:
                found, count = differential.broken(function, step)
                results.append(found)
                breaks += count
        wrong = [str(found) for found in results if found != expected]
        if wrong:
            different[name] = [*wrong, str(expected)]
    print(
        json.dumps(
            {
                "different": different,
                "count": len(PROGRAMS),
                "breaks": breaks,
                "unknown": differential.unknown_instructions(),
            }
        )
    )


if __name__ == "__main__":
    main()
