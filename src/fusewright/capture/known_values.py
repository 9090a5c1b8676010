"""Values that are known before a graph runs: of tensors computed from no input, as positions made
by `arange` or a mask of ones, and from buffers of one integer, which is then guarded. Only when a
program reads one is it computed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final

import torch
from torch import fx
from torch.fx.node import map_arg

from fusewright.capture.memory import node_may_write
from fusewright.fake import FakeTensor
from fusewright.symbolic.nodes import Number, known_numbers
from fusewright.torch_compat import TorchDispatchMode

LIMIT: Final = 200
"""Calls up to which a value is computed while capturing."""

LIKE: Final = frozenset(
    {"new_ones", "new_zeros", "new_full", torch.ones_like, torch.zeros_like, torch.full_like}
)
"""Calls that ask a tensor for its sizes, type and device alone."""


Readers = Mapping[fx.Node, Callable[[], torch.Tensor | None]]
"""The function that reads each input whose value may be looked at; it returns None where it may not
after all.
"""


def known_value(node: fx.Node, fake: torch.Tensor, readers: Readers) -> torch.Tensor | None:
    """The value of a node whose result is `fake`; None where it is not known. Once computed it
    stays with the fake, unless it comes from `readers`: whoever runs the graph does not know it.
    """
    if not isinstance(fake, FakeTensor):
        return None
    if fake.constant is None:
        calls = _needed_calls(node, readers)
        value = None if calls is None else _run(calls, node, readers)
        if value is None or (value.shape, value.dtype) != (fake.shape, fake.dtype):
            return None
        if calls is None or not readers.keys().isdisjoint(calls):
            return value
        fake.fake_mode.constants.keep(fake, value)
    return fake.constant


def _needed_calls(node: fx.Node, readers: Readers) -> list[fx.Node] | None:
    """The calls that compute a node from nothing but `readers`, and those that write to what they
    compute, in order; None where there are other inputs among them.
    """
    calls: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        call = waiting.pop()
        if call in calls:
            continue
        is_known = call in readers or _is_of_torch(call) or _number(call) is not None
        if len(calls) == LIMIT or not is_known:
            return None
        calls.add(call)
        if not _asks_only(call):
            waiting += call.all_input_nodes
        waiting += [user for user in call.users if node_may_write(user)]
    return [call for call in node.graph.nodes if call in calls]


def _is_of_torch(node: fx.Node) -> bool:
    """Whether a node is a call of a function that does nothing but compute with tensors."""
    match node.op, node.target:
        case "call_method", _:
            return True
        case "call_function", types.BuiltinFunctionType():
            return True
        case "call_function", types.FunctionType(__module__=module):
            return module.startswith("torch.")
    return False


def _number(node: fx.Node) -> int | None:
    """The number that a size held by an input has turned out to be; None where it may vary, or the
    input is no size.
    """
    value = node.meta.get("val")
    return value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None


def _asks_only(node: fx.Node) -> bool:
    """Whether a call asks its one tensor for what is known of it, its sizes being numbers."""
    if node.target not in LIKE or node.all_input_nodes != [node.args[0]]:
        return False
    return all(isinstance(number, int) for number in chain(*_layout(node.all_input_nodes[0])))


def _layout(node: fx.Node) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
    """The sizes and strides of a tensor, as far as they are known."""
    fake = node.meta["val"]
    return known_numbers(fake.size()), known_numbers(fake.stride())


def _run(calls: list[fx.Node], last: fx.Node, readers: Readers) -> torch.Tensor | None:
    """The value of the last of the calls; None where one is random, was never set, fails, or was
    written to by something else, which its version tells.
    """
    values: dict[fx.Node, Any] = {}
    likenesses = {
        tensor: _unset(tensor)
        for node in calls
        if _asks_only(node)
        for tensor in node.all_input_nodes
    }
    try:
        with torch.no_grad(), _OnlyDeterministic():
            for node in calls:
                inputs = likenesses if _asks_only(node) else values
                positional = map_arg(node.args, inputs.__getitem__)
                named = map_arg(node.kwargs, inputs.__getitem__)
                if node in readers:
                    values[node] = readers[node]()
                elif node.op == "placeholder":
                    values[node] = _number(node)
                elif isinstance(node.target, str):
                    values[node] = getattr(positional[0], node.target)(*positional[1:], **named)
                else:
                    values[node] = node.target(*positional, **named)
    except Exception:  # What fails here fails when the program runs, where it says why.
        return None
    is_unchanged = all(
        _version(node.meta.get("val")) == _version(value) for node, value in values.items()
    )
    result = values[last]
    return result if is_unchanged and isinstance(result, torch.Tensor) else None


def _unset(node: fx.Node) -> torch.Tensor:
    """Memory of a tensor's sizes, type and device."""
    fake = node.meta["val"]
    return torch.empty_strided(*_layout(node), dtype=fake.dtype, device=fake.device)


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) else 0


class _OnlyDeterministic(TorchDispatchMode):
    """Refuses operators whose results are random, or memory as it was found."""

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in op.tags or "empty" in op.name():
            raise NotImplementedError(op)
        return op(*args, **kwargs or {})
