"""The part of fusewright that runs at every call, in C: kernel launch, frame hook, guards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from fusewright import torch_compat

try:
    from fusewright.native import _extension
except ImportError as error:
    raise ImportError(
        "fusewright's C extension is missing or was built for another Python: install the package "
        "with `pip install .`, or build it in place with `python setup.py build_ext --inplace`"
    ) from error

from fusewright.native._extension import (
    CallPlan,
    CompiledCall,
    Continuation,
    CpuKernel,
    Disabled,
    Entry,
    Frame,
    FrameCompiler,
    GuardProgram,
    History,
    MachineCode,
    TrainingCall,
    checksum,
    dispatch_state,
    draw_bernoulli,
    history_backward,
    history_forward,
    lacking_features,
    read_tensor,
    set_profiler,
    size_of,
    stride_of,
    torch_states,
)

__all__ = [
    "CallPlan",
    "CompiledCall",
    "Continuation",
    "CpuKernel",
    "Disabled",
    "Entry",
    "Frame",
    "FrameCompiler",
    "GuardProgram",
    "History",
    "MachineCode",
    "TrainingCall",
    "checksum",
    "disable",
    "dispatch_state",
    "draw_bernoulli",
    "history_backward",
    "history_forward",
    "lacking_features",
    "read_tensor",
    "run_only",
    "set_profiler",
    "size_of",
    "stride_of",
    "torch_states",
]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def disable(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """`function`, run with the frame hook off: what it calls is neither compiled nor replaced."""
    disabled = Disabled(function)
    functools.update_wrapper(disabled, function)
    return disabled


def run_only(function: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
    """`function(*args, **kwargs)`, in which compiled code runs and nothing is compiled."""
    return _extension.run_only(function, args, kwargs)  # type: ignore[no-any-return]


def _samples() -> tuple[tuple[torch.Tensor, int, int], ...]:
    """Tensors of several kinds, each with its implementation's address and its dispatch keys."""
    plain = torch.empty(2, 3, device="cpu")
    kinds = (
        plain,
        torch.empty(0, dtype=torch.int8, device="cpu"),
        torch.empty(1, 2, dtype=torch.complex64, device="cpu").conj(),
        torch.empty(4, device="meta"),
        torch.nn.Parameter(plain),
    )
    return tuple(
        (tensor, torch_compat.implementation_address(tensor), torch_compat.key_set(tensor))
        for tensor in kinds
    )


_extension.attach_torch(
    torch_compat.LIBRARY_FILE, torch.Tensor, torch.nn.Parameter, _samples(), torch_compat.key_set
)
