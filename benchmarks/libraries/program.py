"""What a program of the sweep is, and the table of all of them.

A program is a function that is given `compile` and returns what is called again and again: a
function without arguments that uses a library as its users do, with whatever is compiled in it.
Eager's column gives it a `compile` that returns its argument. What a call returns is compared:
outputs, gradients, state that it changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

Compile = Callable[..., Any]
"""Compiles a function or a module."""

Run = Callable[[], Any]
"""One use of the program; returns what is to be compared."""

TOLERANCE = 1e-4
"""Relative error of a tensor above which it is wrong, where a program does not say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One row of the sweep."""

    name: str
    """Its file and its function."""

    build: Callable[[Compile], Run]
    about: str
    needs: tuple[str, ...]
    """Modules that it imports, beside torch."""

    tolerance: float
    calls: int
    """Calls that are compared, the first one included."""

    @property
    def library(self) -> str:
        """The file that it stands in."""
        return self.name.partition(".")[0]

    @property
    def missing(self) -> str | None:
        """The first module that it needs and that is not installed."""
        return next((one for one in self.needs if importlib.util.find_spec(one) is None), None)


_PROGRAMS: dict[str, Program] = {}


def program(
    *needs: str, tolerance: float = TOLERANCE, calls: int = 3
) -> Callable[[Callable[[Compile], Run]], Callable[[Compile], Run]]:
    """Enter a function into the table of programs; its docstring says what the program does."""

    def enter(build: Callable[[Compile], Run]) -> Callable[[Compile], Run]:
        name = f"{build.__module__.rpartition('.')[2]}.{build.__name__}"
        _PROGRAMS[name] = Program(
            name=name,
            build=build,
            about=" ".join((build.__doc__ or "").split()).rstrip("."),
            needs=needs,
            tolerance=tolerance,
            calls=calls,
        )
        return build

    return enter


@cache
def programs() -> dict[str, Program]:
    """All programs by name, file by file."""
    from benchmarks.libraries import programs as folder

    for module in sorted(one.name for one in pkgutil.iter_modules(folder.__path__)):
        importlib.import_module(f"{folder.__name__}.{module}")
    return dict(_PROGRAMS)
