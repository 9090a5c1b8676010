"""Which tensors the steps of a captured graph may write to."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.containers import tensors
from fusewright.fake.tensor import FakeTensor
from fusewright.user_kernels import UserKernelCall


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
"""The package of the functions by which graphs run other graphs: they write to nothing outside."""

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
    input_storages = _storages(node for node in graph.nodes if node.op == "placeholder")
    return not input_storages.isdisjoint(written_storages(graph))


def written_storages(graph: fx.Graph) -> set[int]:
    """The keys of storages of fakes that running the graph may write to, by
    `torch_compat.storage_key`: certain only of those that are not among them.
    """
    return {storage for node in graph.nodes for storage in storages_written_by(node)}


def storages_written_by(node: fx.Node) -> set[int]:
    """The keys of the storages that one node writes to."""
    return _storages(_written(node)) if node_may_write(node) else set()


def any_is_seen_through(graph: fx.Graph, copies: Sequence[tuple[FakeTensor, FakeTensor]]) -> bool:
    """Whether the program could notice that a copy is no view of its original, for one of `copies`
    (pairs of original and copy): by a write to either, or as both exist when the graph has run.
    """
    if not copies:
        return False
    written = written_storages(graph)
    input_storages = _storages(graph.find_nodes(op="placeholder"))
    returned = _storages([graph.output_node()])
    for pair in copies:
        original, copy = (torch_compat.storage_key(fake.meta_tensor) for fake in pair)
        if not written.isdisjoint((original, copy)):
            return True
        if copy in returned and (original in returned or original in input_storages):
            return True
    return False


def _written(node: fx.Node) -> Sequence[fx.Node]:
    """The tensors that a writing call may write to: a method, to its own tensor."""
    if isinstance(node.target, UserKernelCall):
        nodes = [node.args[number] for number in node.target.written]
        return [target for target in nodes if isinstance(target, fx.Node)]
    return node.all_input_nodes[:1] if node.op == "call_method" else node.all_input_nodes


def _storages(nodes: Iterable[fx.Node]) -> set[int]:
    """The storages in which the values of nodes lie."""
    return storages_of([node.meta.get("val") for node in nodes])


def storages_of(value: Any) -> set[int]:
    """The keys of the storages of fakes in a value."""
    fakes = map(torch_compat.unwrapped, tensors(value))
    return {
        torch_compat.storage_key(fake.meta_tensor) for fake in fakes if isinstance(fake, FakeTensor)
    }


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
    if isinstance(function, UserKernelCall):
        return bool(function.written)
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
    """A call's argument for a parameter, by name or by position; None when there is none."""
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
