"""The tensors among an operator's arguments: as fakes, their device, and those written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fusewright import torch_compat
from fusewright.containers import mapped
from fusewright.fake.tensor import FakeTensor
from fusewright.fake_rules.arguments import flat
from fusewright.operators import facts

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

CPU = torch.device("cpu")

aten = torch.ops.aten


def faked(
    mode: FakeMode, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with real tensors replaced by their fakes; unchanged in the common case of
    none.
    """
    for value in flat((*args, *kwargs.values())):
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return mapped(mode.fake, args), mapped(mode.fake, kwargs)
    return args, kwargs


def result_device(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """The device that a call asks for by its `device` argument, else that of its tensors."""
    device = kwargs.get("device")
    if device is None:
        return common_device(op, args, kwargs)
    return numbered(device)


def numbered(name: Any) -> torch.device:
    """The device that a program asks for: `cuda` is the current GPU of the thread that asks."""
    device = torch.device(name)
    if device.index is not None or device.type in ("cpu", "meta"):
        return device
    current = torch_compat.cuda.device() if device.type == torch_compat.cuda.TYPE else 0
    return torch.device(device.type, current)


def common_device(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """The device that `op` runs on: all tensors agree, but for 0-d tensors on the CPU, which go
    anywhere.
    """
    common: torch.device | None = None
    scalar = False
    for value in flat((*args, *kwargs.values())):
        if not isinstance(value, torch.Tensor):
            continue
        device = value.device
        if common is None or (scalar and device != common):
            common, scalar = device, device.type == "cpu" and value.dim() == 0
        elif device != common and not (device.type == "cpu" and value.dim() == 0):
            if op is aten.copy_.default or op is aten._to_copy.default:
                return common
            if device.type == "cpu" and facts(op).takes_places_of_cpu:
                continue
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {op} found at least "
                f"two devices, {common} and {device}!"
            )
    return common or CPU


def written_tensors(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among the arguments that the operator writes to."""
    names = torch_compat.written_arguments(op)
    if not names:
        return []
    arguments = torch_compat.operator_arguments(op)
    values = [
        args[position] if position < len(args) else kwargs.get(argument.name)
        for position, argument in enumerate(arguments)
        if argument.name in names
    ]
    return [value for value in flat(values) if isinstance(value, torch.Tensor)]
