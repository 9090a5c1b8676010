"""Collectives that a program calls itself, as operators of the graph (`fusewright.collectives`):
those of `torch.distributed._functional_collectives`, and those of `torch.distributed` that write to
an argument and return nothing, which are the same and a copy. Results are plain tensors, which have
arrived where the graph first reads them.

Others break the graph, and so do collectives of what requires grad, whose gradients are
collectives too; docs/distributed.md lists them with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import torch

from fusewright import collectives
from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import DECLINED, handles, refusal, when_imported
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Value
from fusewright.capture.values.constant import FALSE, NONE
from fusewright.capture.values.tensors import TensorValue
from fusewright.torch_compat.distributed import (
    group_of,
    is_process_group,
    method_in_c,
    rank_in_group,
    reduction_words,
    world,
)

_Rows = Mapping[Callable[..., Any], tuple[str, ...]]
"""The names of the functions, by handler."""

_GRADIENTS = "its gradient is a collective, too, which is left to eager"
_GROUP = "the processes that take part are not known when compiling"
_ASYNC = "with async_op=True it returns what the program waits with"
_NO_PLAIN_TENSOR = "it is given what is no plain tensor"
_REDUCTION = "its reduction is not one that functional collectives have"
_ARGUMENTS = "its tensors are not contiguous, or types or sizes differ: few backends allow that"


@when_imported("torch.distributed._functional_collectives")
def enter_collectives(functions: ModuleType) -> None:
    """Enter the rows of functional ones; names differ between versions of torch."""
    _enter(functions, _FUNCTIONAL)


@when_imported("torch.distributed.distributed_c10d")
def enter_functions_of_groups(functions: ModuleType) -> None:
    """Enter the rows of those that write to an argument, and of what groups are asked."""
    _enter(functions, _OF_GROUPS)
    for name, handler in (("rank", rank), ("size", rank_count)):
        handles(*method_in_c(functions.ProcessGroup, name))(handler)
    for detail, names in LEFT_TO_EAGER.items():
        _refuse(functions, names, detail)


@when_imported("torch.distributed.nn.functional")
def refuse_differentiable_collectives(functions: ModuleType) -> None:
    """Enter the rows of collectives that have gradients."""
    _refuse(functions, _DIFFERENTIABLE, _GRADIENTS)


def _enter(functions: ModuleType, rows: _Rows) -> None:
    for handler, names in rows.items():
        handles(*(vars(functions)[name] for name in names if name in vars(functions)))(handler)


def _refuse(functions: ModuleType, names: Sequence[str], detail: str) -> None:
    prefix = functions.__name__.removesuffix(".distributed_c10d")
    for name in names:
        if name in vars(functions):
            refused = refusal(reasons.OUTSIDE_WORLD, function=f"{prefix}.{name}", detail=detail)
            handles(vars(functions)[name])(refused)


# -- functional ones: a tensor, or several, for what is given --------------------------------------


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


def all_to_all(
    machine: Machine,
    self: Value,
    output_split_sizes: Value,
    input_split_sizes: Value,
    group: Value,
    tag: Value | None = None,
) -> Any:
    name, ranks = _group(machine, "all_to_all_single", self, group, tag)
    sizes = [value.to_python() for value in (output_split_sizes, input_split_sizes)]
    if sizes.count(None) == 1:
        return DECLINED  # eager says what is wrong
    return _run(machine, "all_to_all", self, (*sizes, ranks, name))


def all_reduce_coalesced(
    machine: Machine,
    self: Value,
    reduceOp: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, _ = _group(machine, "all_reduce_coalesced", self, group, tag)
    return _run_coalesced(machine, "all_reduce_coalesced", self, (_word(reduceOp), name))


def all_gather_coalesced(
    machine: Machine, self: Value, group: Value, tag: Value | None = None
) -> Value:
    name, ranks = _group(machine, "all_gather_into_tensor_coalesced", self, group, tag)
    return _run_coalesced(machine, "all_gather_coalesced", self, (ranks, name))


def reduce_scatter_coalesced(
    machine: Machine,
    inputs: Value,
    reduceOp: Value,
    scatter_dim: Value,
    group: Value,
    tag: Value | None = None,
) -> Value:
    name, ranks = _group(machine, "reduce_scatter_tensor_coalesced", inputs, group, tag)
    pairs = zip(machine.items(inputs), machine.items(scatter_dim), strict=True)
    arguments = (_word(reduceOp), [_dim(*pair) for pair in pairs], ranks, name)
    return _run_coalesced(machine, "reduce_scatter_coalesced", inputs, arguments)


# -- those that write to an argument ---------------------------------------------------------------


def write_all_reduced(
    machine: Machine,
    tensor: Value,
    op: Value | None = None,
    group: Value = NONE,
    async_op: Value = FALSE,
) -> Value:
    call = _Writing(machine, "all_reduce", tensor, tensor, group, async_op)
    return call.write("all_reduce", (call.word(op), call.group))


def write_broadcast(
    machine: Machine,
    tensor: Value,
    src: Value = NONE,
    group: Value = NONE,
    async_op: Value = FALSE,
    group_src: Value = NONE,
) -> Value:
    call = _Writing(machine, "broadcast", tensor, tensor, group, async_op)
    source = rank_in_group(call.process_group, src.constant(), group_src.constant())
    return call.write("broadcast", (source, call.group))


def write_all_gathered(
    machine: Machine,
    output_tensor: Value,
    input_tensor: Value,
    group: Value = NONE,
    async_op: Value = FALSE,
) -> Value:
    name = "all_gather_into_tensor"
    call = _Writing(machine, name, output_tensor, input_tensor, group, async_op)
    return call.write("all_gather", (call.ranks, call.group))


def write_reduce_scattered(
    machine: Machine,
    output: Value,
    input: Value,
    op: Value | None = None,
    group: Value = NONE,
    async_op: Value = FALSE,
) -> Value:
    call = _Writing(machine, "reduce_scatter_tensor", output, input, group, async_op)
    return call.write("reduce_scatter", (call.word(op), 0, call.ranks, call.group))


def write_all_to_all(
    machine: Machine,
    output: Value,
    input: Value,
    output_split_sizes: Value = NONE,
    input_split_sizes: Value = NONE,
    group: Value = NONE,
    async_op: Value = FALSE,
) -> Value:
    call = _Writing(machine, "all_to_all_single", output, input, group, async_op)
    received, sent = (
        sizes.to_python() or call.equal_parts(tensor)
        for sizes, tensor in ((output_split_sizes, output), (input_split_sizes, input))
    )
    return call.write("all_to_all", (received, sent, call.ranks, call.group))


class _Writing:
    """A call that writes what it computes of one tensor to another, or to the same."""

    def __init__(
        self,
        machine: Machine,
        function: str,
        output: Value,
        input: Value,
        group: Value,
        async_op: Value,
    ) -> None:
        self._machine = machine
        self._function = f"torch.distributed.{function}"
        self._output, self._input = output, input
        if machine.truth(async_op):
            raise self._refused(_ASYNC)
        self.process_group = _guarded(machine, group)
        if not is_process_group(self.process_group):
            raise self._refused(_GROUP)
        for tensor in (output, input):
            self.group, self.ranks = _group(machine, self._function, tensor, group, None)
        sent, written = _fake(input), _fake(output)
        if sent.dtype != written.dtype or not (sent.is_contiguous() and written.is_contiguous()):
            raise self._refused(_ARGUMENTS)

    def word(self, op: Value | None) -> str:
        """The name of a reduction; none is given for a sum."""
        if op is None:
            return "sum"
        real = op.real()
        word = reduction_words().get(real)
        if word is None or op.source is None:
            raise self._refused(_REDUCTION)
        self._machine.guard(GuardKind.IDENTITY, op.source, real)
        return word

    def equal_parts(self, tensor: Value) -> list[int]:
        """The number of rows of a tensor that are sent to each rank, or come from it, by
        default.
        """
        return [int(_fake(tensor).shape[0]) // self.ranks] * self.ranks

    def write(self, name: str, arguments: tuple[Any, ...]) -> Value:
        """Put the operator and the copy in the graph."""
        result = _run(self._machine, name, self._input, arguments)
        if _fake(result).shape != _fake(self._output).shape:  # some backends allow stacked parts
            raise self._refused(_ARGUMENTS)
        self._machine.call_graph("copy_", [self._output, result], {})
        return NONE

    def _refused(self, detail: str) -> Exception:
        return self._machine.unsupported(
            reasons.OUTSIDE_WORLD, function=self._function, detail=detail
        )


# -- what a group says of itself -------------------------------------------------------------------


def rank(machine: Machine, group: Value = NONE) -> Any:
    return _asked(machine, group, torch.distributed.get_rank)


def rank_count(machine: Machine, group: Value = NONE) -> Any:
    return _asked(machine, group, torch.distributed.get_world_size)


def _asked(machine: Machine, group: Value, ask: Callable[[Any], int]) -> Any:
    """An answer of a process group, which is guarded, and gives it as long as it is there."""
    real = _guarded(machine, group)
    return machine.new(ask(real)) if is_process_group(real) else DECLINED


_FUNCTIONAL: Final[_Rows] = {
    all_reduce: ("all_reduce",),
    all_gather: ("all_gather_tensor", "all_gather_single"),
    reduce_scatter: ("reduce_scatter_tensor", "reduce_scatter_single"),
    broadcast: ("broadcast",),
    all_to_all: ("all_to_all_single",),
    all_reduce_coalesced: ("all_reduce_coalesced",),
    all_gather_coalesced: ("all_gather_into_tensor_coalesced", "all_gather_single_coalesced"),
    reduce_scatter_coalesced: (
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter_single_coalesced",
    ),
}
_OF_GROUPS: Final[_Rows] = {
    write_all_reduced: ("all_reduce",),
    write_broadcast: ("broadcast",),
    write_all_gathered: ("all_gather_into_tensor", "all_gather_single", "_all_gather_base"),
    write_reduce_scattered: (
        "reduce_scatter_tensor",
        "reduce_scatter_single",
        "_reduce_scatter_base",
    ),
    write_all_to_all: ("all_to_all_single",),
    rank: ("get_rank",),
    rank_count: ("get_world_size",),
}


LEFT_TO_EAGER: Final = {
    "it takes or fills a list, which backends send otherwise than one tensor": (
        "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "all_reduce_coalesced",
        "all_gather_coalesced",
    ),
    "it gives its result to one process alone": ("reduce",),
    "one process sends, another receives, in an order that only they know": (
        "send", "recv", "isend", "irecv", "batch_isend_irecv",
    ),
    "it waits for other processes, and computes nothing": ("barrier", "monitored_barrier"),
    "it sends Python objects": (
        "all_gather_object", "gather_object", "scatter_object_list", "broadcast_object_list",
        "send_object_list", "recv_object_list",
    ),
}  # fmt: skip
"""The functions of `torch.distributed` that break the graph, by reason."""

_DIFFERENTIABLE: Final = (
    "broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all",
    "all_to_all_single", "all_reduce",
)  # fmt: skip
"""The functions of `torch.distributed.nn.functional`."""


# -- what they share -------------------------------------------------------------------------------


def _word(reduction: Value) -> str:
    return str(reduction.constant()).lower()


def _fake(tensor: Value) -> torch.Tensor:
    assert isinstance(tensor, TensorValue) and tensor.fake is not None
    return tensor.fake


def _dim(tensor: Value, dim: Value) -> int:
    return int(dim.constant()) % _fake(tensor).dim()


def _group(
    machine: Machine, function: str, operand: Value, group: Value, tag: Value | None
) -> tuple[str, int]:
    """The name of a process group, and how many processes are in it. `operand`: the tensor, or
    tensors, that a collective is called with.
    """

    def refused(detail: str) -> Exception:
        prefix = "" if "." in function else "torch.distributed._functional_collectives."
        return machine.unsupported(reasons.OUTSIDE_WORLD, function=prefix + function, detail=detail)

    for tensor in [operand] if isinstance(operand, TensorValue) else machine.items(operand):
        if not isinstance(tensor, TensorValue) or tensor.fake is None:
            raise refused(_NO_PLAIN_TENSOR)
        if tensor.fake.requires_grad and torch.is_grad_enabled():
            raise refused(_GRADIENTS)
    real = _guarded(machine, group)
    if real is MISSING:
        raise refused(_GROUP)
    return group_of(real, "" if tag is None else str(tag.constant()))


def _guarded(machine: Machine, group: Value) -> Any:
    """The process group that a value is, or what names one, a mesh or a string; the default group
    where it is None. It is guarded to be the same object. MISSING: it is not known.
    """
    try:
        name = group.constant()
    except NotConstant:
        name = None
    else:
        group = machine.call_object(world, None, [], {})  # decides what a name means, too
    real = group.real()
    if group.source is None or real is None or isinstance(real, (list, tuple)):
        return MISSING
    machine.guard(GuardKind.IDENTITY, group.source, real)
    return real if name is None else name


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
    return _arrived(machine, started, tensor, dim, ranks)


def _run_coalesced(
    machine: Machine, name: str, operands: Value, arguments: tuple[Any, ...]
) -> Value:
    tensors = machine.items(operands)
    constants = [machine.new(constant) for constant in arguments]
    started = machine.call_graph(
        collectives.operator(name), [machine.new_list(tensors), *constants], {}
    )
    pairs = zip(machine.items(started), tensors, strict=True)
    return machine.new_list([_arrived(machine, *pair) for pair in pairs])


def _arrived(
    machine: Machine, started: Value, tensor: Value, dim: int = 0, ranks: int = 1
) -> Value:
    """The result of a collective that was started on `tensor`, once it is there."""
    where = [machine.new(dim), machine.new(ranks)]
    return machine.call_graph(collectives.operator("arrived"), [started, tensor, *where], {})
