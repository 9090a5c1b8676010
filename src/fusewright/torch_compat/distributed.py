"""Private names of `torch.distributed`: whose forward runs, how large its buckets are, and the
store of the process group.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch
from torch import nn

DATA_PARALLEL: Final[Any] = getattr(nn.parallel, "DistributedDataParallel", None)
"""The class; None where torch is built without `torch.distributed`."""


def active_bucket_limits() -> tuple[int, ...] | None:
    """Bytes that the buckets of gradients hold at least, in the order in which they are reduced,
    the last limit for all further ones: those of the `DistributedDataParallel` whose forward runs
    the module that is called now. None: there is none. 2.11 to 2.13.
    """
    module = None if DATA_PARALLEL is None else DATA_PARALLEL._active_ddp_module
    return None if module is None else bucket_limits(module)


def bucket_limits(module: Any) -> tuple[int, ...]:
    """The limits of a `DistributedDataParallel`, as `active_bucket_limits` gives them."""
    limits = getattr(module, "bucket_bytes_cap_list", None)  # 2.13, where the user gives them
    if limits:
        return tuple(limits)
    if module.bucket_bytes_cap_default:
        return (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, module.bucket_bytes_cap)
    return (module.bucket_bytes_cap,)


def default_job() -> tuple[Any, int] | None:
    """The store of the default process group, and the rank of this process in it; None where there
    is no group, or nobody else in it.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if torch.distributed.get_world_size() == 1:
        return None
    store = torch.distributed.distributed_c10d._get_default_store()
    return store, torch.distributed.get_rank()


def group_of(group: Any, tag: str) -> tuple[str, int]:
    """The name of a process group, given as functional collectives take it (a group, a mesh of one
    dimension, a name …), and how many processes are in it.
    """
    functions: Any = import_module("torch.distributed._functional_collectives")
    name = functions._resolve_group_name(group, tag)
    return name, torch.distributed.distributed_c10d._get_group_size_by_name(name)


def run_collective(name: str, *arguments: Any) -> torch.Tensor:
    """The result of an operator that begins a collective, or waits for one. 2.11 to 2.13."""
    result: torch.Tensor = getattr(torch.ops._c10d_functional, name)(*arguments)
    return result


def run_coalesced(name: str, *arguments: Any) -> list[torch.Tensor]:
    """The results of an operator that begins a collective of several tensors. 2.11 to 2.13."""
    results: list[torch.Tensor] = getattr(torch.ops._c10d_functional, name)(*arguments)
    return results


def world() -> Any:
    """The default process group."""
    return torch.distributed.group.WORLD


def method_in_c(cls: type, name: str) -> tuple[Any, ...]:
    """The C function behind a method that torch binds; none where it binds methods otherwise."""
    function = getattr(vars(cls).get(name), "__func__", None)
    return () if function is None else (function,)


def is_process_group(group: Any) -> bool:
    """Whether this is a process group that this process is in."""
    return isinstance(group, torch.distributed.ProcessGroup)


def rank_in_group(group: Any, rank: int | None, rank_of_group: int | None) -> int:
    """The rank in a group of a process that is named by its rank among all, or by that one."""
    if rank_of_group is not None:
        return rank_of_group
    assert rank is not None
    return torch.distributed.get_group_rank(group, rank)


def reduction_words() -> dict[Any, str]:
    """The names that functional collectives have for the members of `ReduceOp`. 2.11 to 2.13."""
    functions: Any = import_module("torch.distributed._functional_collectives")
    return dict(functions.REDUCE_OP_TO_STR)


def is_data_parallel(module: Any) -> bool:
    """Whether `module` is a `DistributedDataParallel`."""
    return DATA_PARALLEL is not None and isinstance(module, DATA_PARALLEL)
