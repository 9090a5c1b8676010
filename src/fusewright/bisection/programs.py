"""`fusewright bisect PROGRAM`: a program runs eagerly, and each function or module that it compiles
is bisected when it is called.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fusewright import api
from fusewright.bisection.bisecting import Arguments, Bisection, bisect
from fusewright.compiled import original_of
from fusewright.records import field, record

CALLS = 2
"""The number of calls of each compiled function that are looked at."""


@record(frozen=False, kw_only=True)
class ProgramBisection:
    """The bisection of a program, as far as it has come."""

    folder: Path
    seconds: float
    calls: int = CALLS
    found: list[tuple[str, Bisection]] = field(default_factory=list)
    """Bisections by the name of the compiled function."""

    def texts(self) -> list[str]:
        """Messages about it, each of them once."""
        return list(dict.fromkeys(f"{name}\n{bisection}" for name, bisection in self.found))

    _counts: dict[int, int] = field(default_factory=dict)
    _busy: bool = False

    @property
    def goes_wrong(self) -> bool:
        """Whether something does."""
        return any(bisection.finding is not None for _, bisection in self.found)

    def look(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keywords: dict[str, Any]
    ) -> None:
        """Bisect a call that is about to be made, unless enough was seen of the target."""
        if self._busy or self._counts.get(id(target), 0) >= self.calls:
            return
        self._counts[id(target)] = self._counts.get(id(target), 0) + 1
        self._busy = True
        try:
            call = Arguments(args, kwargs)
            bisection = bisect(target, call, folder=self.folder, seconds=self.seconds, **keywords)
            name = getattr(target, "__qualname__", None) or type(target).__qualname__
            self.found.append((name, bisection))
        finally:
            self._busy = False


@contextmanager
def compile_calls_bisected(bisection: ProgramBisection) -> Iterator[None]:
    """While this lasts, `fusewright.compile` gives what it is given, whose calls are bisected."""
    real = api.compile

    def compile(target: Any = None, **keywords: Any) -> Any:
        if target is None:
            return functools.partial(compile, **keywords)
        if isinstance(target, classmethod | staticmethod):
            return type(target)(compile(target.__func__, **keywords))
        own = {name: value for name, value in keywords.items() if name != "disable"}
        return _watched(original_of(target), bisection, own)

    api.compile = compile
    try:
        yield
    finally:
        api.compile = real


def _watched(target: Any, bisection: ProgramBisection, keywords: dict[str, Any]) -> Any:
    """A target that runs as it is, and is bisected before."""
    if isinstance(target, torch.nn.Module):
        _watch_module(target, bisection, keywords)
        return target

    @functools.wraps(target)
    def watched(*args: Any, **kwargs: Any) -> Any:
        bisection.look(target, args, kwargs, keywords)
        return target(*args, **kwargs)

    return watched


def _watch_module(
    module: torch.nn.Module, bisection: ProgramBisection, keywords: dict[str, Any]
) -> None:
    """Bisect a module before it is called; its copies are left alone."""
    handle: list[Any] = []

    def hook(called: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        handle.pop().remove()
        try:
            bisection.look(called, args, kwargs, keywords)
        finally:
            register()

    def register() -> None:
        handle.append(module.register_forward_pre_hook(hook, with_kwargs=True, prepend=True))

    register()
