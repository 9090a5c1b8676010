"""The values of tensors that no input of a program decides, such as positions made by `arange` or a
mask of ones, and of buffers of one integer, which is then guarded. They are computed when something
asks for one, from the graph that is being built: each fake knows its node.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.fx.node import map_arg

from fusewright import torch_compat
from fusewright.containers import mapped, members, tensors
from fusewright.fake.arguments import CPU, written_tensors
from fusewright.fake.graph_writes import storages_of, storages_written_by
from fusewright.fake.tensor import FakeTensor, Writes
from fusewright.symbolic.nodes import SYMBOLIC, known_numbers
from fusewright.torch_compat import OpOverload, TorchDispatchMode

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

aten = torch.ops.aten

MOST_CALLS: Final = 200
"""Calls of a captured graph up to which a value is computed while compiling."""

MOST_OPERATORS: Final = 10 * MOST_CALLS
"""Calls of operators up to which that is done: a call of a captured graph becomes several."""

MOST_ELEMENTS: Final = 1 << 24
"""Elements of the largest tensor that is computed on the way: a mask of 4,096 positions squared."""

LIKE: Final = frozenset(
    {"new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "full_like"}
)
"""Calls that ask a tensor for its sizes, type and device alone."""

WITH_MEMORY: Final[Mapping[OpOverload, OpOverload]] = {
    aten._efficientzerotensor.default: aten.zeros.default,
}
"""Operators whose results have no memory, which kernels that are called below the dispatcher's
rules for them read all the same, and those that give such results with memory.
"""

Readers = Mapping[fx.Node, Callable[[], torch.Tensor | None]]
"""The function that reads each input whose value may be looked at; it returns None where it may not
after all.
"""


def known_value(fake: Any, readers: Readers = types.MappingProxyType({})) -> torch.Tensor | None:
    """The value of a fake, on the CPU whatever the fake's device is; None where it is not known."""
    if not isinstance(fake, FakeTensor):
        return None
    node, writes = fake.node, fake.fake_mode.writes
    if node is None:
        return None if writes.count(fake.meta_tensor) else fake.constant
    calls = _needed_calls(node, readers, writes)
    value = None if calls is None else _run(calls, readers, writes).get(node)
    if isinstance(value, (tuple, list)):
        place = [result is fake for result in node.meta["val"]].index(True)
        value = value[place]
    fits = isinstance(value, torch.Tensor) and tuple(value.shape) == known_numbers(fake.shape)
    return value if fits else None


def _needed_calls(node: fx.Node, readers: Readers, writes: Writes) -> list[fx.Node] | None:
    """The calls that compute a node from nothing but `readers`, and those that write to what they
    compute, in order; None where there are other inputs among them.
    """
    limit = MOST_OPERATORS if isinstance(node.target, OpOverload) else MOST_CALLS
    calls: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        call = waiting.pop()
        is_leaf = call in readers or _constant(call) is not None
        if len(calls) == limit or not (is_leaf or _can_run(call)):
            return None
        calls.add(call)
        if not (is_leaf or _asks_only(call)):
            waiting += call.all_input_nodes
        waiting = [call for call in waiting if call not in calls]
        waiting = waiting or [call for call in _writers(calls, writes) if call not in calls]
    ordered = [call for call in node.graph.nodes if call in calls]
    return ordered if len(ordered) == len(calls) else None  # one may have been erased


def _constant(node: fx.Node) -> torch.Tensor | int | None:
    """The value of a node that is known without the nodes that it takes: made of literals, a size
    that has turned out to be one number, or an input that stands for the node of a graph around.
    """
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        return value.node.maybe_as_int()  # type: ignore[no-any-return]
    if not isinstance(value, FakeTensor):
        return None
    if value.node is node:
        return value.constant
    is_outside = node.op == "placeholder" and not value.fake_mode.writes.count(value.meta_tensor)
    return known_value(value) if is_outside else None


def _can_run(node: fx.Node) -> bool:
    """Whether a node does nothing but compute tensors that are not too large."""
    is_small = all(map(_is_small, tensors(node.meta.get("val"))))
    return is_small and node.op.startswith("call") and computes_only(node.target)


def computes_only(function: Any) -> bool:
    """Whether a function, or the method of tensors that a string names, does nothing but compute
    with tensors.
    """
    match function:
        case str() | types.BuiltinFunctionType() | types.MethodDescriptorType():
            return True
        case OpOverload() as op:
            return torch_compat.is_of_torch(op)
        case types.FunctionType(__module__=module):
            return module.startswith("torch.")
    return False


def _is_small(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a fake whose elements are known to be few enough to compute them."""
    sizes = known_numbers(tensor.shape) if isinstance(tensor, FakeTensor) else (None,)
    return all(isinstance(size, int) for size in sizes) and math.prod(sizes) <= MOST_ELEMENTS  # type: ignore[arg-type]


def _asks_only(node: fx.Node) -> bool:
    """Whether a call asks its one tensor for what is known of it, its sizes being numbers."""
    name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
    if name not in LIKE or node.all_input_nodes != [node.args[0]]:
        return False
    model = node.all_input_nodes[0].meta["val"]
    return all(isinstance(number, int) for number in known_numbers((*model.shape, *model.stride())))


def _writers(calls: set[fx.Node], writes: Writes) -> list[fx.Node]:
    """The nodes of a graph that may write to the memory of the results of some of its calls."""
    fakes = members([node.meta.get("val") for node in calls], FakeTensor)
    storages = storages_of([fake for fake in fakes if writes.count(fake.meta_tensor)])
    nodes = next(iter(calls)).graph.nodes if storages else ()
    return [node for node in nodes if not storages.isdisjoint(storages_written_by(node))]


def _run(calls: list[fx.Node], readers: Readers, writes: Writes) -> dict[fx.Node, Any]:
    """The values of the calls; none where one is random, was never set, fails, is computed in
    another type than in its place in the program, or was written to by something else.

    `writes`: those to the fakes.
    """
    values: dict[fx.Node, Any] = {}
    try:
        with torch_compat.without_modes(), torch.no_grad(), _OnlyDeterministic() as run:
            for node in calls:
                constant = _constant(node)
                if node in readers:
                    values[node] = readers[node]()
                elif constant is not None:
                    values[node] = mapped(torch.clone, constant)
                else:
                    values[node] = _call(node, values)
    except Exception:  # What fails here fails when the program runs, where it says why.
        return {}
    fakes = list(members([node.meta.get("val") for node in calls], FakeTensor))
    results = list(tensors(list(values.values())))
    are_alike = len(fakes) == len(results) and all(
        (known_numbers(fake.shape), fake.dtype) == (tuple(result.shape), result.dtype)
        and writes.count(fake.meta_tensor) == run.writes.count(result)
        for fake, result in zip(fakes, results, strict=True)
    )
    return values if are_alike else {}


def _call(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """The result of a call, from the values of the nodes that it takes."""
    if _asks_only(node):
        (model,) = node.all_input_nodes
        values = {model: _unset(model.meta["val"])}
    args = map_arg(node.args, values.__getitem__)
    kwargs = map_arg(node.kwargs, values.__getitem__)
    if isinstance(node.target, str):
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


def _unset(fake: torch.Tensor) -> torch.Tensor:
    """Memory of a fake's sizes and type."""
    size, stride = known_numbers(fake.shape), known_numbers(fake.stride())
    with torch_compat.without_modes():
        return torch.empty_strided(size, stride, dtype=fake.dtype, device=CPU)


class _OnlyDeterministic(TorchDispatchMode):
    """Counts what is written, and makes everything on the CPU. Refuses operators whose results are
    random, or memory as it was found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes = Writes()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not _is_determined(op):
            raise NotImplementedError(op)
        result = run_on_cpu(op, args, kwargs or {})
        self.writes.note(written_tensors(op, args, kwargs or {}))
        return result


def _is_determined(op: OpOverload) -> bool:
    """Whether an operator's result is neither random nor memory as it was found."""
    return torch.Tag.nondeterministic_seeded not in op.tags and "empty" not in op.name()


def run_on_cpu(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on tensors that are on the CPU, whatever device it is asked for."""
    op = WITH_MEMORY.get(op, op)
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "meta":
        kwargs = {**kwargs, "device": CPU}
    with torch_compat.without_modes():
        return op(*args, **kwargs)


def run_on_known(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on the values of its arguments; None where one is not known."""
    values = {id(tensor): known_value(tensor) for tensor in tensors((args, kwargs))}
    if any(value is None for value in values.values()):
        return None
    return run_on_cpu(op, *mapped(lambda tensor: values[id(tensor)], (args, kwargs)))


class FollowingValues(TorchDispatchMode):
    """Runs operators on fakes of `mode`, and on values where these are known: for a call that asks
    for the value of something that it computes itself.
    """

    def __init__(self, mode: FakeMode) -> None:
        super().__init__()
        self.mode = mode

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch_compat.without_modes():  # handlers make real tensors
            result = self.mode.dispatch(op, args, kwargs)
        fakes = [fake for fake in tensors(result) if isinstance(fake, FakeTensor)]
        has_symbols = next(members((args, kwargs), SYMBOLIC), None) is not None
        writes = bool(written_tensors(op, args, kwargs))
        if _is_determined(op) and all(map(_is_small, fakes)) and not (has_symbols or writes):
            values = tensors(run_on_known(op, args, kwargs))
            for fake, value in zip(fakes, values, strict=False):
                fake.constant = value
        return result
