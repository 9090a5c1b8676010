"""Collectives that a program calls itself, as operators that stand in graphs: each is begun by one
and waited for by another, between which the graph computes what needs no result of it.

    fusewright::all_reduce(Tensor given, str reduction, str group) -> Tensor
    fusewright::all_gather(Tensor given, int ranks, str group) -> Tensor
    fusewright::reduce_scatter(Tensor given, str reduction, int dim, int ranks, str group) -> Tensor
    fusewright::broadcast(Tensor given, int source, str group) -> Tensor
    fusewright::arrived(Tensor result, Tensor given, int dim, int ranks) -> Tensor

`arrived` also takes what was given: until then its memory is read, and no other result may lie
there. With a `dim` other than 0, the parts of the `ranks` are put behind each other in it.

They count as random, so that each stays, in its order among the others: processes whose order
differed would wait for each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright.own_operators import define
from fusewright.torch_compat import OpOverload
from fusewright.torch_compat.distributed import run_collective


def _all_reduce(given: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
    if given.is_meta:
        return torch.empty_like(given, memory_format=torch.contiguous_format)
    return run_collective("all_reduce", given, reduction, group)


def _all_gather(given: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    if given.is_meta:
        return given.new_empty((given.shape[0] * ranks, *given.shape[1:]))
    return run_collective("all_gather_into_tensor", given.contiguous(), ranks, group)


def _reduce_scatter(
    given: torch.Tensor, reduction: str, dim: int, ranks: int, group: str
) -> torch.Tensor:
    if dim != 0:
        given = torch.cat(torch.chunk(given, ranks, dim), 0)
    if given.is_meta:
        return given.new_empty((given.shape[0] // ranks, *given.shape[1:]))
    return run_collective("reduce_scatter_tensor", given.contiguous(), reduction, ranks, group)


def _broadcast(given: torch.Tensor, source: int, group: str) -> torch.Tensor:
    if given.is_meta:
        return torch.empty_like(given, memory_format=torch.contiguous_format)
    return run_collective("broadcast", given, source, group)


def _arrived(result: torch.Tensor, given: torch.Tensor, dim: int, ranks: int) -> torch.Tensor:
    result = torch.empty_like(result) if result.is_meta else run_collective("wait_tensor", result)
    return torch.cat(torch.chunk(result, ranks, 0), dim) if dim != 0 else result


_OPERATORS: Final[dict[str, tuple[str, Callable[..., torch.Tensor]]]] = {
    "all_reduce": ("(Tensor given, str reduction, str group) -> Tensor", _all_reduce),
    "all_gather": ("(Tensor given, int ranks, str group) -> Tensor", _all_gather),
    "reduce_scatter": (
        "(Tensor given, str reduction, int dim, int ranks, str group) -> Tensor",
        _reduce_scatter,
    ),
    "broadcast": ("(Tensor given, int source, str group) -> Tensor", _broadcast),
    "arrived": ("(Tensor result, Tensor given, int dim, int ranks) -> Tensor", _arrived),
}


@functools.cache
def operator(name: str) -> OpOverload:
    """One of the operators, by its name."""
    signature, function = _OPERATORS[name]
    return define(name, signature, function, tags=(torch.Tag.nondeterministic_seeded,))


def is_wait(target: Any) -> bool:
    """Whether a node of a graph calls `arrived`."""
    return isinstance(target, OpOverload) and target.name() == "fusewright::arrived"
