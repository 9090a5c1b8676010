"""Whether a captured graph may write to its inputs, and how those lie in memory.

A backend may compute `y * 2` before it writes the new value of `x` back, unless the two share
memory. So where a graph writes, which of its inputs share memory is part of what was captured:

    def f(x, y):            f(base, other)      captured: two storages
        x.add_(1)           f(base, base[2:])   another capture: one storage, offsets 0 and 8
        return y * 2

Inputs that are only read may share memory with each other in any way.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.fake import FakeTensor
from fusewright.fake_rules.arguments import by_name
from fusewright.fake_rules.geometry import extent
from fusewright.records import record

READ_ONLY: Final = -1


@record
class Placement:
    """How a tensor lies in memory beside the other inputs of its graph."""

    group: int
    """Tensors of one group share a storage; those of different groups share no byte. `READ_ONLY`:
    one of those that share no byte with tensors of groups.
    """

    item_size: int
    """Bytes of an element."""

    offset: int | None
    """Bytes from the storage's beginning; None: it does not matter, the group has no other."""

    count: int
    """How many tensors are compared."""

    @property
    def metadata(self) -> tuple[int, int, int, int]:
        """The test's operand."""
        offset = -1 if self.offset is None else self.offset
        return self.group, self.item_size, offset, self.count

    def __str__(self) -> str:
        if self.group == READ_ONLY:
            return "memory that is only read"
        if self.offset is None:
            return "memory of its own"
        return f"byte {self.offset} of the storage that it shares"


def placements(
    tensors: Sequence[torch.Tensor], written: Sequence[bool], restrided: Container[int] = ()
) -> tuple[Placement, ...] | None:
    """How each of the tensors lies in memory; None where different storages overlap. `written`:
    which of them the graph may write to. `restrided`: numbers of those whose offset in the storage
    matters in any case.
    """
    spans = [_span(tensor, number) for number, tensor in enumerate(tensors)]
    distinct = sorted(set(spans))
    if any(left[1] > right[0] for left, right in itertools.pairwise(distinct)):
        return None
    groups = dict.fromkeys(spans, READ_ONLY)
    for number, (span, is_written) in enumerate(zip(spans, written, strict=True)):
        if is_written and groups[span] == READ_ONLY:
            groups[span] = number
    shared = {span for span, count in Counter(spans).items() if count > 1}
    return tuple(
        Placement(
            group=groups[span],
            item_size=tensor.itemsize,
            offset=_offset(tensor)
            if (span in shared and groups[span] != READ_ONLY) or number in restrided
            else None,
            count=len(tensors),
        )
        for number, (tensor, span) in enumerate(zip(tensors, spans, strict=True))
    )


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory of its own: not a sparse one, nor a wrapper around others."""
    return tensor.layout == torch.strided and torch_compat.has_storage(tensor)


def _span(tensor: torch.Tensor, number: int) -> tuple[int, int]:
    """The bytes of the tensor's storage; none, at a place of its own, for one without elements."""
    data = tensor.data_ptr() if tensor.numel() else 0
    if data == 0:
        return -number - 1, -number - 1
    begin = data - _offset(tensor)
    return begin, begin + int(tensor.untyped_storage().nbytes())


def _offset(tensor: torch.Tensor) -> int:
    """Where the tensor begins in its storage, in bytes."""
    return int(tensor.storage_offset()) * tensor.itemsize


# -- does a graph write? -------------------------------------------------------------------------


RESTRIDING: Final = {
    **dict.fromkeys(
        ("as_strided", "as_strided_", torch.as_strided, torch.as_strided_, torch.as_strided_copy),
        ("self", "size", "stride", "storage_offset"),
    ),
    **dict.fromkeys(
        (torch.ops.aten.as_strided, torch.ops.aten.as_strided.default),
        ("self", "size", "stride", "storage_offset"),
    ),
    **dict.fromkeys(
        ("as_strided_scatter", torch.as_strided_scatter),
        ("self", "src", "size", "stride", "storage_offset"),
    ),
}
"""Calls that count from the beginning of a tensor's storage, with the names of their arguments; a
string names a method.
"""


def restrided_bytes(
    function: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Any, Any]:
    """Where the bytes begin and end, in the storage, that a call of one of `RESTRIDING` shows."""
    given = by_name(RESTRIDING[function], arguments, keywords)
    tensor = given["input"] if "input" in given else given["self"]
    size, stride, begin = given["size"], given["stride"], given.get("storage_offset")
    if begin is None:
        begin = _inside(tensor).storage_offset()
    return begin * tensor.itemsize, extent(size, stride, begin) * tensor.itemsize


def shown_bytes(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Where the first element of a fake begins in its storage, and the last ends, in bytes."""
    inside = _inside(tensor)
    begin = inside.storage_offset()
    end = extent(inside.shape, inside.stride(), begin)
    return begin * tensor.itemsize, end * tensor.itemsize


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether there is nothing between the elements of a fake in its memory."""
    begin, end = shown_bytes(tensor)
    return bool(end - begin == tensor.numel() * tensor.itemsize)


def _inside(tensor: torch.Tensor) -> torch.Tensor:
    """The meta tensor in a fake, which alone knows a symbolic geometry."""
    return getattr(torch_compat.unwrapped(tensor), "meta_tensor", tensor)


def _is_special_write(name: str) -> bool:
    """Whether a special method writes to its object: `__setitem__`; `__iadd__` beside `__add__`."""
    return name in ("__setitem__", "__delitem__") or (
        name.startswith("__i") and hasattr(operator, f"__{name[3:]}")
    )


_PURE_FUNCTIONS: Final = frozenset({getattr, *filter(callable, vars(operator).values())}) - {
    function for name, function in vars(operator).items() if _is_special_write(name)
}
"""`operator.add` is one, by this name and as `__add__`; `operator.iadd` is none. Attributes that
graphs read are tensors, such as `x.T`.
"""

OWN_FUNCTIONS: Final = "fusewright."
"""Where functions stand that capture puts in a graph to run graphs inside of it: they write to
nothing outside.
"""

_WRITING_FUNCTIONS: Final = frozenset(
    {
        torch.batch_norm,
        torch.instance_norm,
        torch.native_batch_norm,
        torch.nn.functional.instance_norm,
    }
)
"""Functions that may write to running statistics, whatever their names say."""


def may_write_inputs(graph: fx.Graph) -> bool:
    """Whether running the graph may write to a tensor that existed before: certain only where it
    is False.
    """
    given = _storages(node for node in graph.nodes if node.op == "placeholder")
    return not given.isdisjoint(written_storages(graph))


def written_storages(graph: fx.Graph) -> set[int]:
    """The keys of storages of fakes that running the graph may write to, by
    `torch_compat.storage_key`: certain only of those that are not among them.
    """
    writing = (node for node in graph.nodes if node_may_write(node))
    return _storages(one for node in writing for one in _written(node))


def any_is_seen_through(graph: fx.Graph, copies: Sequence[tuple[FakeTensor, FakeTensor]]) -> bool:
    """Whether it may be told that one of `copies`, given with what was copied, is not a view of it:
    by a write to either, or by both being there when the graph has run.
    """
    if not copies:
        return False
    written = written_storages(graph)
    given = _storages(graph.find_nodes(op="placeholder"))
    returned = _storages([graph.output_node()])
    for pair in copies:
        original, copy = (torch_compat.storage_key(fake.meta_tensor) for fake in pair)
        if not written.isdisjoint((original, copy)):
            return True
        if copy in returned and (original in returned or original in given):
            return True
    return False


def _written(node: fx.Node) -> Sequence[fx.Node]:
    """What a call that writes may write to: a method, to its own tensor."""
    return node.all_input_nodes[:1] if node.op == "call_method" else node.all_input_nodes


def _storages(nodes: Iterable[fx.Node]) -> set[int]:
    """The storages in which the values of nodes lie."""
    return storages_of([node.meta.get("val") for node in nodes])


def storages_of(value: Any) -> set[int]:
    """The keys of the storages of fakes in a value."""
    return {torch_compat.storage_key(fake.meta_tensor) for fake in _fakes(value)}


def _fakes(value: Any) -> Iterator[FakeTensor]:
    match value:
        case torch.Tensor():
            fake = torch_compat.unwrapped(value)
            if isinstance(fake, FakeTensor):
                yield fake
        case list() | tuple():
            for item in value:
                yield from _fakes(item)


def node_may_write(node: fx.Node) -> bool:
    """Whether one step may write to a tensor: certain only where it is False."""
    match node.op:
        case "placeholder" | "output" | "get_attr":
            return False
        case "call_method":
            return _name_writes(str(node.target))
        case "call_function" if callable(node.target):
            return _function_may_write(node.target, node)
    return True


def _name_writes(name: str) -> bool:
    """Whether a method says that it writes: `add_`, `__iadd__`, `__setitem__`."""
    if name.startswith("__") and name.endswith("__"):
        return _is_special_write(name)
    return name.endswith("_") and name != "requires_grad_"


def _function_may_write(function: Callable[..., Any], node: fx.Node) -> bool:
    if isinstance(function, torch_compat.OpOverload):
        return bool(torch_compat.written_arguments(function))
    if function in _PURE_FUNCTIONS:
        return False
    module = getattr(function, "__module__", None) or ""
    if module.startswith(OWN_FUNCTIONS):
        return False
    if not module.startswith(("torch", "_operator")) or module == "_operator":
        return True
    if function.__name__.endswith("_") or node.kwargs.get("out") is not None:
        return True
    if function is torch.nn.functional.batch_norm:
        return _argument(function, node, "training") not in (None, False)
    return function in _WRITING_FUNCTIONS or _argument(function, node, "inplace") is True


def _argument(function: Callable[..., Any], node: fx.Node, name: str) -> Any:
    """What a call gives for a parameter, by name or by position; None when nothing."""
    position = _position(function, name)
    if position is not None and position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name)


@functools.cache
def _position(function: Callable[..., Any], name: str) -> int | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return names.index(name) if name in names else None
