"""Hooks on the gradients of tensors that a graph computes: `hidden.register_hook(function)` is a
call in the graph, and the function a graph of its own, which becomes part of the backward graph.

Eager calls the function later, from `backward()`. So it may do nothing but compute with the
gradient and what torch and Python give; one that reads variables breaks the graph, and so does one
on a tensor that leaves it, at which the engine may be asked to stop.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.hooks import RemovableHandle

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles
from fusewright.capture.values.base import MISSING, Machine, TracedError, Value
from fusewright.capture.values.functions import FunctionValue
from fusewright.capture.values.tensors import TensorValue, UnknownValue
from fusewright.errors import Unsupported

_LIBRARIES: Final = frozenset({"torch", "math"})
"""Modules whose functions and constants stay what they are."""


@handles(torch.Tensor.register_hook)
def register_hook(machine: Machine, tensor: TensorValue, hook: Value) -> Value:
    """`tensor.register_hook(hook)`; what it returns breaks the graph where it is looked at."""
    builder = machine.builder
    computed = tensor.object is MISSING and tensor.fake.grad_fn is not None
    if not (computed and builder.permissions.hooks and _computes_alone(hook)):
        raise _refusal(machine)
    use = _Registration()
    try:
        machine.call_with_subprograms("register_hook", use, [hook], [tensor], {})
    except TracedError:  # It is `backward()` that will raise it.
        raise _refusal(machine) from None
    use.is_traced = False
    if not use.is_followed:
        raise _refusal(machine)
    builder.hooked.append(tensor.fake)
    return UnknownValue(RemovableHandle, lambda: _refusal(machine))


def _refusal(machine: Machine) -> Unsupported:
    operation = "tensor.register_hook()"
    return machine.unsupported(reasons.GRAD_REQUIRED, operation=operation)


class _Registration:
    """Registers a hook; while the call is captured, it calls the hook instead, as `backward()` will
    do.
    """

    def __init__(self) -> None:
        self.is_traced = True
        self.is_followed = False
        """Whether the hook returned another gradient or None, and wrote to none."""

    def __call__(self, hook: Callable[..., Any], tensor: torch.Tensor) -> None:
        if not self.is_traced:
            tensor.register_hook(hook)
            return
        with torch.no_grad():
            gradient = torch.empty_like(tensor)
            version = gradient._version
            replacement = hook(gradient)
        replaces = isinstance(replacement, torch.Tensor) and replacement.shape == gradient.shape
        is_like = replacement is None or (replaces and replacement.dtype == gradient.dtype)
        self.is_followed = is_like and gradient._version == version


def _computes_alone(hook: Value) -> bool:
    """Whether a function reads nothing that may change until `backward()` calls it."""
    if not isinstance(hook, FunctionValue) or hook.cells or hook.defaults or hook.keyword_defaults:
        return False
    codes = [hook.code]
    names: set[str] = set()
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names.update(code.co_names)
    variables = hook.namespace.dictionary
    read = [variables[name] for name in names if name in variables]
    return names.isdisjoint(_READS_OF_VARIABLES) and all(map(_stays, read))


_READS_OF_VARIABLES: Final = frozenset({"globals", "locals", "vars", "eval", "exec", "__import__"})


def _stays(value: Any) -> bool:
    """Whether a global variable is a library's, and what is read of it stays what it is."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _LIBRARIES
    return vars(builtins).get(getattr(value, "__name__", "")) is value
