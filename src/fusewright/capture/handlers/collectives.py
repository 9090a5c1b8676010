"""Functional collectives: calls of `torch.distributed._functional_collectives` as operators of the
graph (`fusewright.collectives`). Their results are plain tensors, which have arrived where the
graph first reads them.

Others break the graph, and so do collectives of what requires grad, whose gradients are
collectives too.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from fusewright import collectives
from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles, when_imported
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Value
from fusewright.capture.values.tensors import TensorValue
from fusewright.torch_compat.distributed import group_of

_GRADIENTS = "its gradient is a collective, too, which is left to eager"
_GROUP = "the processes that take part are not known when compiling"


@when_imported("torch.distributed._functional_collectives")
def enter_collectives(functions: ModuleType) -> None:
    """Enter the rows; names differ between versions of torch."""
    for handler, *names in (
        (all_reduce, "all_reduce"),
        (all_gather, "all_gather_tensor", "all_gather_single"),
        (reduce_scatter, "reduce_scatter_tensor", "reduce_scatter_single"),
        (broadcast, "broadcast"),
    ):
        handles(*(vars(functions)[name] for name in names if name in vars(functions)))(handler)


def all_reduce(
    machine: Machine,
    self: Value,
    reduceOp: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, _ = _group(machine, "all_reduce", self, group, tag)
    return _run(machine, "all_reduce", self, (_word(reduceOp), name))


def all_gather(
    machine: Machine,
    self: Value,
    gather_dim: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, ranks = _group(machine, "all_gather_tensor", self, group, tag)
    return _run(machine, "all_gather", self, (ranks, name), _dim(self, gather_dim), ranks)


def reduce_scatter(
    machine: Machine,
    self: Value,
    reduceOp: Value,
    scatter_dim: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, ranks = _group(machine, "reduce_scatter_tensor", self, group, tag)
    arguments = (_word(reduceOp), _dim(self, scatter_dim), ranks, name)
    return _run(machine, "reduce_scatter", self, arguments)


def broadcast(
    machine: Machine,
    self: Value,
    src: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, _ = _group(machine, "broadcast", self, group, tag)
    return _run(machine, "broadcast", self, (src.constant(), name))


def _word(reduction: Value) -> str:
    return str(reduction.constant()).lower()


def _dim(tensor: Value, dim: Value) -> int:
    assert isinstance(tensor, TensorValue) and tensor.fake is not None
    return int(dim.constant()) % tensor.fake.dim()


def _group(
    machine: Machine, function: str, tensor: Value, group: Value, tag: Value | None
) -> tuple[str, int]:
    """The name of a process group, and how many processes are in it."""

    def refused(detail: str) -> Exception:
        name = f"torch.distributed._functional_collectives.{function}"
        return machine.unsupported(reasons.OUTSIDE_WORLD, function=name, detail=detail)

    if not isinstance(tensor, TensorValue) or tensor.fake is None:
        raise refused("what it is given is no plain tensor")
    if tensor.fake.requires_grad and torch.is_grad_enabled():
        raise refused(_GRADIENTS)
    try:
        real = group.constant()
    except NotConstant:
        real = group.real()
    if real is MISSING:
        raise refused(_GROUP)
    return group_of(real, "" if tag is None else str(tag.constant()))


def _run(
    machine: Machine,
    name: str,
    tensor: Value,
    arguments: tuple[Any, ...],
    dim: int = 0,
    ranks: int = 1,
) -> Value:
    constants = [machine.new(constant) for constant in arguments]
    started = machine.call_graph(collectives.operator(name), [tensor, *constants], {})
    where = [machine.new(dim), machine.new(ranks)]
    return machine.call_graph(collectives.operator("arrived"), [started, tensor, *where], {})
