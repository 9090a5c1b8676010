"""State of the thread and of the process that a program may depend on without naming it."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WEIGHT = torch.ones(3, 3, requires_grad=True)
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)

READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "product": lambda x: x @ WEIGHT,
    "addition": lambda x: torch.add(x, 1),
    "multiplication": lambda x: x * 2,
    "zeros": lambda x: torch.zeros(2, 3) + x,
    "from list": lambda x: torch.tensor([1.0, 2.0, 3.0]) + x,
    "range": lambda x: torch.arange(3) * x,
    "ones like": lambda x: torch.ones_like(x) + x,
    "is grad enabled": lambda x: x + 1 if torch.is_grad_enabled() else x - 1,
    "is inference": lambda x: x + 1 if torch.is_inference_mode_enabled() else x - 1,
    "default dtype": lambda x: (x, torch.get_default_dtype()),
    "default device": lambda x: (x, torch.get_default_device()),
    "is autocast": lambda x: x + 1 if torch.is_autocast_enabled("cpu") else x - 1,
    "autocast dtype": lambda x: (x, torch.get_autocast_dtype("cpu")),
    "deterministic": lambda x: x + 1 if torch.are_deterministic_algorithms_enabled() else x - 1,
    "precision": lambda x: (x, torch.get_float32_matmul_precision()),
    "threads": lambda x: x * torch.get_num_threads(),
    "anomaly": lambda x: x + 1 if torch.is_anomaly_enabled() else x - 1,
    "context variable": lambda x: x * VARIABLE.get(),
    "environment": lambda x: x * int(os.environ.get("SOUNDNESS", "1")),
    "recursion limit": lambda x: x * sys.getrecursionlimit(),
    "uninitialized": lambda x: torch.empty(2, 3).fill_(1) + x,
    "detached": lambda x: (x * WEIGHT[:2]).detach(),
    "gradient wanted": lambda x: (x @ WEIGHT).requires_grad,
    "made under no_grad": lambda x: _under_no_grad(x),
    "list of modules": lambda x: x * len([n for n in sys.modules if n == "soundness_state"]),
}


def _under_no_grad(x: Any) -> Any:
    with torch.no_grad():
        y = x @ WEIGHT
    return y, x @ WEIGHT


class Doubling(TorchFunctionMode):
    """A function mode that doubles what `torch.add` returns."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.add else result


class Negating(TorchDispatchMode):
    """A dispatch mode that negates what is added."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        return -result if function is torch.ops.aten.add.Tensor else result


def _setting(
    read: Callable[[], Any], write: Callable[[Any], Any], value: Any
) -> Callable[[], AbstractContextManager[Any]]:
    """A state that is set, and set back."""

    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        before = read()
        write(value)
        try:
            yield
        finally:
            write(before)

    return changed


@contextlib.contextmanager
def _module() -> Iterator[None]:
    sys.modules["soundness_state"] = types.ModuleType("soundness_state")
    try:
        yield
    finally:
        del sys.modules["soundness_state"]


def _set_variable(value: int) -> None:
    VARIABLE.set(value)


def _set_environment(value: str) -> None:
    os.environ["SOUNDNESS"] = value


def _freeze(value: bool) -> None:
    WEIGHT.requires_grad_(value)


CHANGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast to bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "default dtype": _setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: torch.device("meta"),
    "deterministic": _setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "precision": _setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "threads": _setting(torch.get_num_threads, torch.set_num_threads, 1),
    "anomaly": torch.autograd.detect_anomaly,
    "function mode": Doubling,
    "dispatch mode": Negating,
    "two function modes": lambda: _both(Doubling(), Doubling()),
    "context variable": _setting(VARIABLE.get, _set_variable, 5),
    "environment": _setting(lambda: os.environ.get("SOUNDNESS", "1"), _set_environment, "3"),
    "recursion limit": _setting(sys.getrecursionlimit, sys.setrecursionlimit, 2000),
    "module": _module,
    "weight frozen": _setting(lambda: WEIGHT.requires_grad, _freeze, False),
    "saved tensors hooks": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: t
    ),
    "without torch function": torch._C.DisableTorchFunctionSubclass,
}


@contextlib.contextmanager
def _both(one: Any, other: Any) -> Iterator[None]:
    with one, other:
        yield
