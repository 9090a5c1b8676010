"""Collectives that a program calls itself, as operators that stand in graphs: each is begun by one
and waited for by another, between which the graph computes what needs no result of it.

    fusewright::all_reduce(Tensor given, str reduction, str group) -> Tensor
    fusewright::all_gather(Tensor given, int ranks, str group) -> Tensor
    fusewright::reduce_scatter(Tensor given, str reduction, int dim, int ranks, str group) -> Tensor
    fusewright::broadcast(Tensor given, int source, str group) -> Tensor
    fusewright::all_to_all(
        Tensor given, int[]? received, int[]? sent, int ranks, str group) -> Tensor
    fusewright::all_reduce_coalesced(Tensor[] given, str reduction, str group) -> Tensor[]
    fusewright::all_gather_coalesced(Tensor[] given, int ranks, str group) -> Tensor[]
    fusewright::reduce_scatter_coalesced(
        Tensor[] given, str reduction, int[] dims, int ranks, str group) -> Tensor[]
    fusewright::arrived(Tensor result, Tensor given, int dim, int ranks) -> Tensor

`arrived` also takes what was given: until then its memory is read, and no other result may lie
there. With a `dim` other than 0, the parts of the `ranks` are put behind each other in it.
Coalesced ones are one collective of several tensors, each of which is waited for by itself.

They count as random, so that each stays, in its order among the others: processes whose order
differed would wait for each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fusewright.own_operators import define
from fusewright.torch_compat import OpOverload
from fusewright.torch_compat.distributed import run_coalesced, run_collective


def _all_reduce(given: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
    if given.is_meta:
        return _like(given)
    return run_collective("all_reduce", given, reduction, group)


def _all_gather(given: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    if given.is_meta:
        return _of_rows(given, given.shape[0] * ranks)
    return run_collective("all_gather_into_tensor", given.contiguous(), ranks, group)


def _reduce_scatter(
    given: torch.Tensor, reduction: str, dim: int, ranks: int, group: str
) -> torch.Tensor:
    given = _parts_in_rows(given, dim, ranks)
    if given.is_meta:
        return _of_rows(given, given.shape[0] // ranks)
    return run_collective("reduce_scatter_tensor", given.contiguous(), reduction, ranks, group)


def _broadcast(given: torch.Tensor, source: int, group: str) -> torch.Tensor:
    if given.is_meta:
        return _like(given)
    return run_collective("broadcast", given, source, group)


def _all_to_all(
    given: torch.Tensor,
    received: Sequence[int] | None,
    sent: Sequence[int] | None,
    ranks: int,
    group: str,
) -> torch.Tensor:
    equal = [given.shape[0] // ranks] * ranks
    received, sent = received or equal, sent or equal
    if given.is_meta:
        return _of_rows(given, sum(received))
    return run_collective("all_to_all_single", given.contiguous(), received, sent, group)


def _all_reduce_coalesced(
    given: Sequence[torch.Tensor], reduction: str, group: str
) -> list[torch.Tensor]:
    if given[0].is_meta:
        return [_like(tensor) for tensor in given]
    return run_coalesced("all_reduce_coalesced", given, reduction, group)


def _all_gather_coalesced(
    given: Sequence[torch.Tensor], ranks: int, group: str
) -> list[torch.Tensor]:
    if given[0].is_meta:
        return [_of_rows(tensor, tensor.shape[0] * ranks) for tensor in given]
    tensors = [tensor.contiguous() for tensor in given]
    return run_coalesced("all_gather_into_tensor_coalesced", tensors, ranks, group)


def _reduce_scatter_coalesced(
    given: Sequence[torch.Tensor], reduction: str, dims: Sequence[int], ranks: int, group: str
) -> list[torch.Tensor]:
    tensors = [_parts_in_rows(*pair, ranks) for pair in zip(given, dims, strict=True)]
    if given[0].is_meta:
        return [_of_rows(tensor, tensor.shape[0] // ranks) for tensor in tensors]
    tensors = [tensor.contiguous() for tensor in tensors]
    return run_coalesced("reduce_scatter_tensor_coalesced", tensors, reduction, ranks, group)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without data, contiguous, of the size of another."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _of_rows(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A tensor without data of `count` rows like those of another."""
    return tensor.new_empty((count, *tensor.shape[1:]))


def _parts_in_rows(tensor: torch.Tensor, dim: int, ranks: int) -> torch.Tensor:
    """A tensor whose parts, one a rank, lie in its first dimension instead of `dim`."""
    return tensor if dim == 0 else torch.cat(torch.chunk(tensor, ranks, dim), 0)


def _arrived(result: torch.Tensor, given: torch.Tensor, dim: int, ranks: int) -> torch.Tensor:
    result = torch.empty_like(result) if result.is_meta else run_collective("wait_tensor", result)
    return torch.cat(torch.chunk(result, ranks, 0), dim) if dim != 0 else result


_OPERATORS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "all_reduce": ("(Tensor given, str reduction, str group) -> Tensor", _all_reduce),
    "all_gather": ("(Tensor given, int ranks, str group) -> Tensor", _all_gather),
    "reduce_scatter": (
        "(Tensor given, str reduction, int dim, int ranks, str group) -> Tensor",
        _reduce_scatter,
    ),
    "broadcast": ("(Tensor given, int source, str group) -> Tensor", _broadcast),
    "all_to_all": (
        "(Tensor given, int[]? received, int[]? sent, int ranks, str group) -> Tensor",
        _all_to_all,
    ),
    "all_reduce_coalesced": (
        "(Tensor[] given, str reduction, str group) -> Tensor[]",
        _all_reduce_coalesced,
    ),
    "all_gather_coalesced": (
        "(Tensor[] given, int ranks, str group) -> Tensor[]",
        _all_gather_coalesced,
    ),
    "reduce_scatter_coalesced": (
        "(Tensor[] given, str reduction, int[] dims, int ranks, str group) -> Tensor[]",
        _reduce_scatter_coalesced,
    ),
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
