"""Torch's Python reference operators, run without importing `torch._dynamo`, which takes 1.3 s."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import torch


def _plain_until_dynamo(wrapper: FunctionType, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The function that `wrapper` calls in place of `torch._dynamo.disable(plain)` while nobody has
    imported dynamo.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return plain(*args, **kwargs)
        del plain.__dynamo_disable  # type: ignore[attr-defined]
        return wrapper(*args, **kwargs)

    return call


def _inside(function: FunctionType) -> Any:
    """The function that a decorated one calls: torch's decorators all name it `fn`; None when it is
    not decorated.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return cells["fn"].cell_contents if "fn" in cells else None


_KEEPS_DYNAMO_OUT = torch._disable_dynamo(lambda: None).__code__


def keeps_dynamo_out(function: FunctionType) -> bool:
    """Whether calling a function calls its `__wrapped__`, which dynamo is not to look into."""
    return function.__code__ is _KEEPS_DYNAMO_OUT


def _wrappers(functions: Iterable[Any]) -> Iterable[tuple[FunctionType, Any]]:
    """Each such function among the decorators of `functions`, with what it wraps."""
    for outermost in functions:
        function = outermost
        while isinstance(function, FunctionType):
            inside = _inside(function)
            if keeps_dynamo_out(function):
                yield function, inside
            function = inside


@functools.lru_cache(maxsize=1)
def run_references_without_dynamo() -> None:
    """Let torch's Python reference operators run on meta tensors without importing `torch._dynamo`
    (1.3 s).

    Each reference asks dynamo, at its first call, for a version of itself that dynamo will not look
    into, and so imports all of dynamo into programs that never use it. The answer is cached on the
    function as `__dynamo_disable`; this gives an answer beforehand that withdraws itself as soon as
    dynamo is there. Seen in torch 2.11 to 2.13.
    """
    names = (
        "torch._refs",
        "torch._decomp.decompositions",
        "torch._meta_registrations",
        "torch._prims",
    )
    modules: list[ModuleType] = [
        module
        for name, module in list(sys.modules.items())
        if module is not None and name.startswith(names)
    ]
    tables = torch._decomp.global_decomposition_table
    functions = [value for module in modules for value in vars(module).values()]
    functions += [function for table in tables.values() for function in table.values()]
    for wrapper, plain in _wrappers(functions):
        if not hasattr(plain, "__dynamo_disable"):
            plain.__dynamo_disable = _plain_until_dynamo(wrapper, plain)
