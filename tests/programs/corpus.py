"""The corpus: programs that between them use every form that Python has, and much of its library.

A program is a function, with the arguments of one call or several. Those without arguments use
constants alone and need no torch. What is done with a program is a runner's matter
(`test_programs.py`), and each new program is run by all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """A function, and how it is to be called."""

    function: Function
    calls: tuple[tuple[Any, ...], ...]
    """The arguments of each call, which are copied."""

    breaks: str = ""
    """Why its graph breaks, in the words of the catalogue; empty: it is one graph."""

    runs_as_written: bool = False
    """Whether the frame of the function itself is left to Python."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def needs_no_torch(self) -> bool:
        return self.calls == ((),)

    def __str__(self) -> str:
        return self.name


PROGRAMS: dict[str, Program] = {}


def add(function: Function, *calls: tuple[Any, ...], **keywords: Any) -> Function:
    """The function, now in the corpus. Names stand once: two of one name are about one thing."""
    program = Program(function, calls or ((),), **keywords)
    assert program.name not in PROGRAMS, f"there is a program {program.name} already"
    PROGRAMS[program.name] = program
    return function


def program(*calls: tuple[Any, ...], **keywords: Any) -> Callable[[Function], Function]:
    """A decorator that adds a function with these calls."""
    return lambda function: add(function, *calls, **keywords)
