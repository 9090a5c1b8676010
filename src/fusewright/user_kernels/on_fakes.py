"""Launches in functions that run on fakes, such as those of an autograd function: while one runs,
what `kernel[grid](…)` calls notes the launch instead of making it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.errors import UnsupportedOperator
from fusewright.user_kernels.building import NotACall, innermost, make_call
from fusewright.user_kernels.calls import OperandPlace

_LOCK: Final = threading.Lock()
_users = 0
"""How many threads are in `noting_launches`."""

_ORIGINALS: Final[dict[type, Callable[..., Any]]] = {}
"""By class of kernels, the method that launches."""


@contextmanager
def noting_launches() -> Iterator[None]:
    """Context in which launches on fakes are noted by the mode that runs these. Other threads
    launch as always.
    """
    global _users
    if "triton.runtime" not in sys.modules:
        yield
        return
    with _LOCK:
        _users += 1
        if _users == 1:
            for cls in launching_classes():
                _ORIGINALS[cls] = cls.run
                cls.run = noting(cls.run)
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if _users == 0:
                for cls, original in _ORIGINALS.items():
                    cls.run = original  # type: ignore[attr-defined]
                _ORIGINALS.clear()


def launching_classes() -> list[Any]:
    """The classes of kernels, as far as Triton is imported."""
    runtime = sys.modules["triton.runtime"]
    classes = [runtime.JITFunction, runtime.Autotuner, runtime.Heuristics]
    interpreter = sys.modules.get("triton.runtime.interpreter")
    return classes if interpreter is None else [*classes, interpreter.InterpretedFunction]


def is_interpreted(kernel: Any) -> bool:
    """Whether Triton interprets a kernel: launches give None, and not the compiled kernel."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    return interpreter is not None and isinstance(
        innermost(kernel), interpreter.InterpretedFunction
    )


@functools.cache
def noting(run: Callable[..., Any]) -> Callable[..., Any]:
    """The method `run` of a class of kernels, which notes launches on fakes."""

    @functools.wraps(run)
    def launch(kernel: Any, *arguments: Any, **keywords: Any) -> Any:
        mode = torch_compat.current_dispatch_mode()
        if not hasattr(mode, "note_user_kernel") or keywords.get("warmup"):
            return run(kernel, *arguments, **keywords)
        grid = keywords.pop("grid")
        keywords.pop("warmup", None)
        reader = _OnFakes()
        try:
            call = make_call(kernel, grid, arguments, keywords, reader)
        except NotACall as reason:
            name = getattr(kernel, "__name__", "a Triton kernel")
            raise UnsupportedOperator(f"{name} cannot be launched in a graph: {reason}") from None
        return call(*reader.operands)

    return launch


class _OnFakes:
    """Reads launches in Python that runs on fakes."""

    def __init__(self) -> None:
        self.operands: list[Any] = []

    def template(self, argument: Any, *, is_constant: bool) -> Any:
        match argument:
            case torch.Tensor():
                return self._place(argument)
            case torch.SymInt() | torch.SymFloat() if is_constant:
                return int(argument) if isinstance(argument, torch.SymInt) else float(argument)
            case torch.SymInt() | torch.SymFloat():
                return self._place(argument)
            case tuple() | list():
                return tuple([self.template(part, is_constant=is_constant) for part in argument])
        if hasattr(argument, "base") and hasattr(argument, "block_shape"):
            raise NotACall("an argument is a tensor descriptor")
        return argument

    def _place(self, operand: Any) -> OperandPlace:
        for number, known in enumerate(self.operands):
            if known is operand:
                return OperandPlace(number)
        self.operands.append(operand)
        return OperandPlace(len(self.operands) - 1)

    def is_function(self, grid: Any) -> bool:
        return callable(grid)

    def grid(self, grid: Any, chosen: Mapping[str, Any]) -> tuple[Any, ...]:
        sizes = grid(dict(chosen)) if callable(grid) else grid
        if not isinstance(sizes, tuple | list):
            raise NotACall("its grid is no tuple")
        return tuple([self.template(size, is_constant=False) for size in sizes])

    def evaluate(self, function: Any, chosen: Mapping[str, Any]) -> Any:
        return function(dict(chosen))

    def fakes(self) -> Sequence[torch.Tensor | None]:
        return [one if isinstance(one, torch.Tensor) else None for one in self.operands]
