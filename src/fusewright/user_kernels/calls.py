"""A launch of a Triton kernel that the program wrote, as a call in a graph.

    add[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=128)      (the program)
 ->
    add(x, y, out, n)                                           (captured: writes to `out`)
    add = add(x, y, out, n)                                     (traced: gives what `out` becomes)

The call's target knows the kernel, constants among its arguments, and the grid for each
configuration that Triton may choose. It launches as the program does, through the kernel object
itself: compiling, tuning and launching stay Triton's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.records import record


@record
class OperandPlace:
    """Stands for an operand of the call, by its number."""

    number: int


@record
class GridChoice:
    """The grid of a launch where the kernel's parameters have these values."""

    settings: tuple[tuple[str, Any], ...]
    """The values that a configuration of the autotuner gives; none where there is one grid."""

    sizes: tuple[Any, ...]
    """Numbers of programs: integers and `OperandPlace`s."""


class UserKernelCall:
    """The target of a call in a captured graph: it takes tensors and numbers, and writes to some of
    the tensors.
    """

    def __init__(
        self,
        kernel: Any,
        name: str,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        grids: Sequence[GridChoice],
        written: Sequence[int],
        *,
        has_effect: bool,
    ) -> None:
        self.kernel = kernel
        """The object that the program launches: a `JITFunction`, or an autotuner or heuristics
        around one.
        """

        self.grids = tuple(grids)
        self._arguments = _filler(tuple(arguments))
        """The kernel's arguments by position, with an `OperandPlace` for each that varies."""

        self._keywords = tuple(keywords)
        self._values = _filler(tuple(keywords.values()))
        self._sizes = [_filler(grid.sizes) for grid in grids]
        self.written = tuple(written)
        """The numbers of the operands that the kernel may write to, in ascending order."""

        self.has_effect = has_effect
        """Whether it does something beside writing to them, such as to print."""

        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *operands: Any) -> None:
        """Launch the kernel; on fakes, have that noted by who runs them."""
        mode = torch_compat.current_dispatch_mode()
        if mode is not None and hasattr(mode, "note_user_kernel"):
            mode.note_user_kernel(self, operands)
        else:
            self.launch(operands)

    def launch(self, operands: Sequence[Any]) -> None:
        """Launch the kernel on tensors, on the device where they lie."""
        launch = self.kernel[self._grid(operands)]
        keywords = dict(zip(self._keywords, self._values(operands), strict=True))
        gpu = _gpu_to_enter(operands)
        if gpu is None:
            launch(*self._arguments(operands), **keywords)
        else:
            with torch.cuda.device(gpu):
                launch(*self._arguments(operands), **keywords)

    def _grid(self, operands: Sequence[Any]) -> Any:
        """The grid as Triton takes it: a tuple, or what finds it for the arguments chosen."""
        if len(self.grids) == 1:
            return self._sizes[0](operands)

        def choose(chosen: Mapping[str, Any]) -> tuple[Any, ...]:
            for grid, sizes in zip(self.grids, self._sizes, strict=True):
                if all(chosen.get(name) == value for name, value in grid.settings):
                    return sizes(operands)
            raise RuntimeError(
                f"{self.__name__} has a configuration that it had not when it was compiled: make "
                "all of them before the first call"
            )

        return choose


class UserKernelOnCopies:
    """The same in a traced graph, which is functional: it works on copies of what the kernel writes
    to, and gives these.
    """

    graphs = ()
    """No part of it is compiled."""

    def __init__(self, call: UserKernelCall, likes: Sequence[torch.Tensor | None]) -> None:
        self.call = call
        self.likes = tuple(likes)
        """By operand, a fake that lies in memory as the kernel expects the tensor to; None for a
        number.
        """

        self._orders = [None if like is None else _order(like) for like in likes]
        self.has_effect = call.has_effect
        self.__name__ = self.__qualname__ = call.__name__
        self.__module__ = __name__

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *operands: Any) -> tuple[torch.Tensor, ...]:
        """By eager operators, whose results may lie otherwise than the program's."""
        own = list(operands)
        for number, order in enumerate(self._orders):
            if order is not None and not own[number].permute(order).is_contiguous():
                dense = own[number].permute(order).contiguous()
                own[number] = dense.permute(sorted(range(len(order)), key=order.__getitem__))
        for number in self.call.written:
            own[number] = _copied(own[number])
        self.call.launch(own)
        return tuple([own[number] for number in self.call.written])

    @property
    def signature(self) -> tuple[str, tuple[int, ...], bool]:
        """All that a plan depends on, beside `likes`: it is given the call itself."""
        return self.__name__, self.call.written, self.has_effect


def _order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions from the outermost in memory to the innermost; None where it is not dense."""
    order = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride()[dim], tensor.shape[dim]))
    return order[::-1] if tensor.permute(order[::-1]).is_contiguous() else None


def _gpu_to_enter(operands: Sequence[Any]) -> int | None:
    """The GPU of the operands, where another is the current one: Triton launches on that."""
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            if not operand.is_cuda:
                return None
            index = operand.device.index
            return None if index == torch_compat.cuda.device() else index
    return None


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is laid out as the tensor is, also where that leaves gaps."""
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)


Fill = Callable[[Sequence[Any]], tuple[Any, ...]]


def _filler(template: tuple[Any, ...]) -> Fill:
    """A function that gives `template` with operands at their places."""
    if any(isinstance(part, tuple) for part in template):
        return lambda operands: _filled(template, operands)
    if not any(isinstance(part, OperandPlace) for part in template):
        return lambda operands: template
    pairs = [
        (part.number, None) if isinstance(part, OperandPlace) else (-1, part) for part in template
    ]
    return lambda operands: tuple(
        [operands[number] if number >= 0 else constant for number, constant in pairs]
    )


def _filled(part: Any, operands: Sequence[Any]) -> Any:
    if isinstance(part, tuple):
        return tuple([_filled(inner, operands) for inner in part])
    return operands[part.number] if isinstance(part, OperandPlace) else part
