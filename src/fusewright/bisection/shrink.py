"""Makes a captured graph smaller while it still shows a fault (delta debugging, A. Zeller and
R. Hildebrandt, 2002).

Each reduction gives smaller graphs with inputs for them, the boldest first. The first that still
shows the fault takes the graph's place, and all begins again until none does, or time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.bisection.observe import copies, with_histories
from fusewright.bisection.search import ValueRecorder, prefix, tensor_nodes
from fusewright.records import record

Shows = Callable[[fx.GraphModule, Sequence[Any]], bool]
"""Whether a graph, for these inputs, shows the fault."""


@record(kw_only=True)
class Case:
    """A graph and inputs for it."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]

    @property
    def operators(self) -> int:
        """Calls in the graph."""
        return sum(node.op.startswith("call_") for node in self.graph.graph.nodes)

    @property
    def elements(self) -> int:
        """Elements of all inputs."""
        return sum(value.numel() for value in self.inputs if isinstance(value, torch.Tensor))


def shrink(case: Case, shows: Shows, seconds: float) -> Case:
    """The smallest case found in that time that shows the fault, as `case` does."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for reduction in REDUCTIONS:
            shrunk = _apply(reduction, case, shows, end)
            smaller |= shrunk is not case
            case = shrunk
    return case


def _apply(reduction: Reduction, case: Case, shows: Shows, end: float) -> Case:
    """The case after a reduction was applied as often as it helps."""
    position, helps = 0, True
    while helps:
        helps = False
        for number, candidate in enumerate(_tried(reduction, case)):
            if time.monotonic() > end:
                return case
            if number < position or candidate is None:
                continue
            if _size(candidate) < _size(case) and _still(shows, candidate):
                case, position, helps = candidate, number, True
                break
    return case


def _tried(reduction: Reduction, case: Case) -> Iterator[Case | None]:
    """The results of a reduction; none any more where it fails on a graph of some odd kind."""
    try:
        yield from reduction(case)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return


def _size(case: Case) -> tuple[int, int, int]:
    return case.operators, len(case.inputs), case.elements


def _still(shows: Shows, case: Case) -> bool:
    try:
        return shows(case.graph, case.inputs)
    except Exception:
        return False


Reduction = Callable[[Case], Iterator["Case | None"]]


def shorter(case: Case) -> Iterator[Case | None]:
    """The graph up to one of its values, the shortest first by halves."""
    nodes = tensor_nodes(case.graph, case.inputs)
    step = max(1, len(nodes) // 8)
    places = sorted({*range(0, len(nodes), step), *range(min(8, len(nodes)))})
    for place in places:
        yield _cleaned(prefix(case.graph, nodes[place]), case.inputs)
    for node in nodes:
        yield _cleaned(prefix(case.graph, node), case.inputs)


def later(case: Case) -> Iterator[Case | None]:
    """The graph without a stretch of its operators, whose values are inputs: halves, quarters, …"""
    recorder = ValueRecorder(case.graph)
    recorder.run(*with_histories(copies(case.inputs), case.inputs))
    nodes = [node for node in case.graph.graph.nodes if node.op.startswith("call_")]
    width = len(nodes) // 2
    while width:
        for start in range(0, len(nodes), width):
            replaced = nodes[start : start + width]
            if len(replaced) < len(nodes):
                yield _with_inputs(case, replaced, recorder.values)
        width //= 2


def bypassed(case: Case) -> Iterator[Case | None]:
    """The graph with an argument in the place of an operator that gives a tensor like it."""
    recorder = ValueRecorder(case.graph)
    recorder.run(*with_histories(copies(case.inputs), case.inputs))
    for node in case.graph.graph.nodes:
        own = recorder.values.get(node)
        if not (node.op.startswith("call_") and isinstance(own, torch.Tensor)):
            continue
        for source in node.all_input_nodes:
            other = recorder.values.get(source)
            if (
                isinstance(other, torch.Tensor)
                and (other.shape, other.dtype) == (own.shape, own.dtype)
                and other.stride() == own.stride()
            ):
                yield _bypassing(case, node, source)


def fewer_results(case: Case) -> Iterator[Case | None]:
    """The graph with one of its results."""
    results = case.graph.graph.output_node().args[0]
    if isinstance(results, tuple | list) and len(results) > 1:
        for result in results:
            if isinstance(result, fx.Node):
                yield _returning(case, result)


def smaller_sizes(case: Case) -> Iterator[Case | None]:
    """The graph for smaller tensors: a size is replaced wherever it occurs, in shapes of inputs and
    among the arguments of operators.
    """
    tensors = [value for value in case.inputs if isinstance(value, torch.Tensor)]
    sizes = sorted({size for value in tensors for size in value.shape if size > 1}, reverse=True)
    for size in sizes:
        for other in dict.fromkeys((1, 2, 3, size // 2, size - 1)):
            if 0 < other < size:
                yield _resized(case, size, other)


def plain_inputs(case: Case) -> Iterator[Case | None]:
    """The graph without the inputs that it does not read."""
    yield _cleaned(case.graph, case.inputs)


REDUCTIONS: Final[tuple[Reduction, ...]] = (
    fewer_results,
    shorter,
    later,
    bypassed,
    plain_inputs,
    smaller_sizes,
)


# Changing graphs ----------------------------------------------------------------------------------


def _copied(graph: fx.GraphModule) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """A copy of a graph, and its nodes by those of the original."""
    copied = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        nodes[node] = copied.node_copy(node, nodes.__getitem__)
    return fx.GraphModule(graph, copied), nodes


def _returning(case: Case, result: fx.Node) -> Case:
    graph, nodes = _copied(case.graph)
    graph.graph.output_node().args = ((nodes[result],),)
    return _cleaned(graph, case.inputs)


def _bypassing(case: Case, node: fx.Node, source: fx.Node) -> Case:
    graph, nodes = _copied(case.graph)
    nodes[node].replace_all_uses_with(nodes[source])
    graph.graph.erase_node(nodes[node])
    return _cleaned(graph, case.inputs)


def _with_inputs(
    case: Case, replaced: Sequence[fx.Node], values: dict[fx.Node, Any]
) -> Case | None:
    """The graph with inputs in the place of some of its operators."""
    graph, nodes = _copied(case.graph)
    first_call = next(node for node in graph.graph.nodes if node.op != "placeholder")
    added: list[Any] = []
    for node in replaced:
        value = values.get(node)
        outside = [user for user in node.users if user not in replaced]
        if not outside:
            continue
        if not isinstance(value, torch.Tensor):
            return None
        with graph.graph.inserting_before(first_call):
            placeholder = graph.graph.placeholder(f"value_{node.name}")
        placeholder.meta = dict(node.meta)
        for user in outside:
            nodes[user].replace_input_with(nodes[node], placeholder)
        added.append(value)
    for node in reversed(replaced):
        if nodes[node].users:
            return None
        graph.graph.erase_node(nodes[node])
    return _cleaned(graph, (*case.inputs, *added))


def _cleaned(graph: fx.GraphModule, inputs: Sequence[Any]) -> Case:
    """A graph without operators and inputs that nobody reads."""
    graph, _ = _copied(graph)
    for node in reversed(list(graph.graph.nodes)):
        if not node.users and node.op.startswith("call_") and not may_write(node):
            graph.graph.erase_node(node)
    kept = []
    for node, value in zip(list(graph.graph.find_nodes(op="placeholder")), inputs, strict=True):
        if node.users:
            kept.append(value)
        else:
            graph.graph.erase_node(node)
    graph.recompile()
    return Case(graph=graph, inputs=tuple(kept))


def may_write(node: fx.Node) -> bool:
    """Whether an operator may do more than give a value."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in ("setitem", "copy_") or "out" in node.kwargs:
        return True
    if name.startswith("i") and getattr(node.target, "__module__", "") == "_operator":
        return name in (
            "iadd",
            "isub",
            "imul",
            "itruediv",
            "iand",
            "ior",
            "ixor",
            "imatmul",
            "ipow",
        )
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or "set_grad" in name or "mode" in name or name.startswith("_")


def _resized(case: Case, size: int, other: int) -> Case | None:
    graph, _ = _copied(case.graph)

    def changed(value: Any) -> Any:
        return other if type(value) is int and value == size else value

    for node in graph.graph.nodes:
        if node.op.startswith("call_"):
            node.args = fx.node.map_aggregate(node.args, changed)
            node.kwargs = fx.node.map_aggregate(node.kwargs, changed)
    graph.recompile()
    inputs = tuple(_cut(value, size, other) for value in case.inputs)
    return Case(graph=graph, inputs=inputs)


def _cut(value: Any, size: int, other: int) -> Any:
    """A value whose dimensions of one size have another; the strides are in the same order."""
    if not isinstance(value, torch.Tensor) or size not in value.shape:
        return value
    cut = value.detach()
    for dimension, extent in enumerate(value.shape):
        if extent == size:
            cut = cut.narrow(dimension, 0, other)
    packed = cut.clone(memory_format=torch.preserve_format)
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        packed = packed.clamp(max=other - 1) if value.dtype != torch.bool else packed
    return packed.requires_grad_() if value.requires_grad else packed
