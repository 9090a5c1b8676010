"""`export(f)(*args)`: a call as one graph that stands alone, and what it relies on.

    def f(self, x, scale):                 graph():
        return {"y": self.linear(x)}           %x = placeholder, %scale = placeholder
                                               %weight = get_attr[linear.weight], …
    export(f)(model, x, 2)                     return {"y": %linear}

The graph takes what the function takes and returns what it returns. Tensors among the arguments are
its placeholders; parameters, buffers and other tensors that were read are its attributes; whatever
else was read is as it was in this call, which the guards say.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import torch
from torch import fx

from fusewright.capture import Capture, NotCaptured, capture_call
from fusewright.capture.guards import GuardSet, build_guards
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.trace import root_call
from fusewright.compiled import original_of
from fusewright.config import ONE_GRAPH, Options
from fusewright.context import COLLECTOR_PAUSE
from fusewright.errors import Location, Unsupported
from fusewright.torch_compat.trees import flatten_tree, tree_codegen


class Exported(NamedTuple):
    """One call as a graph."""

    graph_module: fx.GraphModule
    """Takes the arguments of the call, nested as they were, and returns what it returned."""

    guards: GuardSet
    """Facts that have to hold of another call for the graph to be right; `guards.table()` prints
    them.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph, whatever the guards say."""
        return self.graph_module(*args, **kwargs)

    def __repr__(self) -> str:
        """The graph, and how much it relies on."""
        count = len(self.guards.checks)
        return f"{self.graph_module.graph}\n{count} guards, which .guards.table() lists"


def exporter(target: Callable[..., Any], options: Mapping[str, Any] | None) -> Callable[..., Any]:
    """A function that exports a call of `target` with the arguments that it is given."""
    target = original_of(target)
    chosen = Options.from_user({**ONE_GRAPH, **(options or {})})

    def export_call(*args: Any, **kwargs: Any) -> Exported:
        with COLLECTOR_PAUSE:
            return _export(target, args, kwargs, chosen)

    return export_call


def _export(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
) -> Exported:
    function, arguments, keywords = root_call(target, args, kwargs)
    bound = inspect.signature(function).bind(*arguments, **keywords)
    bound.apply_defaults()
    place = place_of(target, function)
    try:
        capture = capture_call(
            function, bound.arguments, history=SizeHistory(False, options.of_data)
        )
    except NotCaptured as failure:
        error = failure.error or Unsupported(f"the call raises {failure.raised}", place)
        raise (error if error.location is not None else error.at(place)) from None
    if capture.writes or capture.calls:
        what = "the call changes objects or modes of torch, which a graph alone does not"
        raise Unsupported(what, place, "return what it makes instead")
    guards = build_guards(capture.all_guards(), function.__code__)
    return Exported(_standing_alone(capture, target, args, kwargs, place), guards)


def place_of(target: Any, function: types.FunctionType) -> Location:
    """Where a target is written."""
    forward = (
        getattr(type(target), "forward", None) if isinstance(target, torch.nn.Module) else None
    )
    code = getattr(inspect.unwrap(forward or function), "__code__", function.__code__)
    return Location(code.co_filename, code.co_firstlineno).with_text()


class _Writer:
    """Writes a graph that stands alone."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.graph = fx.Graph()
        self.holder = torch.nn.Module()
        """The module that holds the tensors which are not among the arguments."""
        self._names = names
        self._count = 0

    def attribute(self, tensor: torch.Tensor) -> fx.Node:
        """The node of a tensor that is not among the arguments."""
        name = self._names.get(id(tensor))
        if name is None:
            name = f"tensor_{self._count}"
            self._count += 1
        holder, *parents, last = self.holder, *name.split(".")
        for parent in parents:
            if not hasattr(holder, parent):
                holder.add_module(parent, torch.nn.Module())
            holder = getattr(holder, parent)
        if isinstance(tensor, torch.nn.Parameter):
            holder.register_parameter(last, tensor)
        else:
            holder.register_buffer(last, tensor)
        return self.graph.get_attr(name)


def _standing_alone(
    capture: Capture,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    place: Location,
) -> fx.GraphModule:
    """The graph of a call, with its own tensors, which takes and returns what the call does."""
    old = capture.graph_module.graph
    writer = _Writer(names_of_tensors(target))
    leaves, in_spec = flatten_tree((args, kwargs))
    placeholders = [writer.graph.placeholder(f"argument_{index}") for index in range(len(leaves))]
    node_of = {id(leaf): node for leaf, node in zip(leaves, placeholders, strict=True)}
    read = [tensor.object for tensor in capture.machine.inputs]
    copied: dict[fx.Node, fx.Node] = {}
    for node, tensor in zip(_placeholders(old, read, place), read, strict=True):
        if id(tensor) not in node_of:
            node_of[id(tensor)] = writer.attribute(tensor)
        copied[node] = node_of[id(tensor)]
    for node in old.nodes:
        if node.op not in ("placeholder", "output"):
            copied[node] = writer.graph.node_copy(node, copied.__getitem__)
    output = old.output_node()
    values, returned = output.meta["val"], cast(tuple[fx.Node, ...], output.args[0])
    node_of |= {id(value): copied[node] for value, node in zip(values, returned, strict=True)}
    result, out_spec = flatten_tree(result_of(capture, values, target, args, kwargs))
    writer.graph.output([_returned(leaf, node_of, place) for leaf in result])
    names = [*(f"argument_{index}" for index in range(len(args))), *kwargs]
    writer.graph.set_codegen(tree_codegen(names, in_spec, out_spec))
    module = fx.GraphModule(writer.holder, writer.graph, class_name="ExportedGraph")
    module.training = getattr(target, "training", module.training)
    return module


def _placeholders(graph: fx.Graph, read: Sequence[torch.Tensor], place: Location) -> list[fx.Node]:
    """The placeholders, one for each tensor that is read."""
    placeholders = graph.find_nodes(op="placeholder")
    if len(placeholders) != len(read):
        what = "a dimension is marked as varying, and an exported graph has the sizes of its call"
        raise Unsupported(what, place, "export the call with other tensors")
    return list(placeholders)


def names_of_tensors(target: Any) -> dict[int, str]:
    """The names of a module's tensors, by identity."""
    module = getattr(target, "__self__", target)
    if not isinstance(module, torch.nn.Module):
        return {}
    named = [*module.named_parameters(), *module.named_buffers()]
    return {id(tensor): name for name, tensor in named}


def result_of(
    capture: Capture,
    values: tuple[Any, ...],
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of the call, with these values as results of the graph."""
    function = capture.finish(lambda *inputs: values, lambda error: None)
    _, arguments, keywords = root_call(target, args, kwargs)
    return function(*arguments, **keywords)


def _returned(leaf: Any, node_of: Mapping[int, fx.Node], place: Location) -> Any:
    """The graph's result for a part of the call's."""
    if id(leaf) in node_of and isinstance(leaf, torch.Tensor | torch.SymInt):
        return node_of[id(leaf)]
    if leaf is None or isinstance(leaf, CONSTANTS):
        return leaf
    what = f"the call returns an object of class {type(leaf).__qualname__}, which no graph makes"
    raise Unsupported(what, place, "return tensors and constants, in tuples, lists and dicts")


CONSTANTS: Final = (
    int, float, complex, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""Types of constants that a graph holds as they are."""
