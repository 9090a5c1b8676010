"""Private names of what a thread has set for all operators: modes, defaults, switches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._device import DeviceContext


def thread_state_readers() -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Name and reader of each part of a thread's dispatch state that guards cannot read from
    memory.
    """
    return (
        ("inference mode", torch.is_inference_mode_enabled),
        ("whether autocast is on", torch._C._is_any_autocast_enabled),
        ("the number of dispatch modes", torch._C._len_torch_dispatch_stack),
        ("the functorch level", torch._C._functorch.maybe_current_level),
    )


def _function_state() -> str:
    if torch._C._is_torch_function_all_disabled():
        return "off"
    enabled = torch._C._is_torch_function_enabled()
    return "on" if enabled else "off for subclasses"


def matmul_precision(device_type: str) -> str:
    """How exactly the library multiplies matrices of float32 on a type of device: "tf32" or "bf16"
    where the program allows it to round the factors so, anything else where it does not.
    """
    precision: str = torch._C._get_fp32_precision_getter(
        "mkldnn" if device_type == "cpu" else device_type, "matmul"
    )
    return precision


STATES: dict[str, tuple[str, Callable[[], Any]]] = {
    "default_dtype": ("the default dtype", torch.get_default_dtype),
    "deterministic_algorithms": (
        "deterministic mode",
        torch._C._get_deterministic_algorithms,
    ),
    "deterministic_warn_only": (
        "whether deterministic mode only warns",
        torch._C._get_deterministic_algorithms_warn_only,
    ),
    "deterministic_fill": (
        "whether new tensors are filled",
        torch._C._get_deterministic_fill_uninitialized_memory,
    ),
    "cuda_matmul_precision": (
        "the precision of float32 matmul on CUDA",
        functools.partial(matmul_precision, "cuda"),
    ),
    "cpu_matmul_precision": (
        "the precision of float32 matmul on the CPU",
        functools.partial(matmul_precision, "cpu"),
    ),
    "function_modes": (
        "the number of function modes",
        torch._C._len_torch_function_stack,
    ),
    "function_state": (
        "how far __torch_function__ is on",
        _function_state,
    ),
}
"""State that every captured graph depends on, by the native floor's name of it: the name in words,
and a reader for where the native floor has none.
"""


def mode_readers() -> tuple[tuple[str, Callable[[], Any]], ...]:
    """State that graphs depend on while function modes or autocast are active: name and reader."""
    readers: list[tuple[str, Callable[[], Any]]] = []
    for i in range(torch._C._len_torch_function_stack()):
        readers.append((f"function mode {i}", functools.partial(_function_mode, i)))
    if torch._C._is_any_autocast_enabled():
        for device in ("cpu", "cuda"):
            dtype = functools.partial(torch.get_autocast_dtype, device)
            readers.append((f"the autocast dtype of {device}", dtype))
        readers.append(("the autocast cache", torch.is_autocast_cache_enabled))
    return tuple(readers)


STATE_QUERIES: tuple[Callable[..., Any], ...] = (
    torch._C._get_tracing_state,
    torch._C._is_tracing,
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._is_torch_function_enabled,
    torch._C._is_autocast_available,
    torch._C._is_torch_function_mode_enabled,
    torch._C._get_privateuse1_backend_name,
)
"""Functions that ask for a state which guards on the global state cover."""

set_default_dtype = torch._C._set_default_dtype
"""What `torch.set_default_dtype` calls."""


enter_inference_mode: Callable[[bool], Any] = torch.autograd.grad_mode._enter_inference_mode
leave_inference_mode: Callable[[Any], None] = torch.autograd.grad_mode._exit_inference_mode
"""What captured graphs call to enter and to leave inference mode."""


def function_modes() -> list[Any]:
    """The torch function modes of the thread, innermost last; `with torch.device(…)` is one."""
    count = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(i) for i in range(count)]


def set_function_modes(modes: Iterable[Any]) -> None:
    """Put other torch function modes in place of the thread's own."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


push_function_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack
pop_function_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
"""What entering and leaving a torch function mode call."""


def is_index_mode(cls: type) -> bool:
    """Whether `cls` is the function mode in which `x[i]`, with a tensor `i` of no dimension, is
    `aten.index`; told by name, since importing it imports torch's own front end. 2.11 to 2.13.
    """
    module = "torch._dynamo._trace_wrapped_higher_order_op"
    return cls.__module__ == module and cls.__qualname__ == "TransformGetItemToIndex"


def has_foreign_modes() -> bool:
    """Whether a torch function or dispatch mode is active that may change what functions do: any
    but a default device.
    """
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(not isinstance(mode, DeviceContext) for mode in function_modes())


@functools.cache
def device_constructors() -> frozenset[Callable[..., Any]]:
    """The functions that make tensors on the default device."""
    return frozenset(torch.utils._device._device_constructors())


def _function_mode(index: int) -> Any:
    """A function mode of the thread for comparison: the device of a default device, the class of
    another one, under which nothing is captured. Either is a new object each time it is entered.
    """
    mode = torch._C._get_function_stack_at(index)
    return mode.device if isinstance(mode, DeviceContext) else type(mode)
