"""From a traced program to an `AtenGraph`: mutations of inputs become outputs, results that alias
become views.

What eager execution promises about memory is kept: a result that aliases an input aliases it,
results that alias each other do, and all other results have memory of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge

from fusewright import torch_compat
from fusewright.aot.functionalize import (
    Functionalizer,
    memory_owner,
    shown_memory,
    sizes_of,
    view_source,
)
from fusewright.aot.graph import UNNOTICED, AtenGraph, TracedProgram
from fusewright.aot.math_bits import compute_math_bits
from fusewright.aot.repeated_elements import repeated_dimensions
from fusewright.aot.shared_memory import may_overlap, share_bases
from fusewright.aot.specs import (
    Detached,
    FromGraph,
    FromInput,
    KnownResult,
    Repeated,
    Replayed,
    ResultSpec,
    StorageBase,
    ViewOf,
)
from fusewright.fake import FakeMode
from fusewright.fake_rules.geometry import known_equal, same_sizes
from fusewright.records import record

aten = torch.ops.aten


@record(frozen=False, kw_only=True)
class ResultPlan:
    """Which values a graph is to return, decided on the traced graph, before writes are made
    functional.
    """

    inputs: list[fx.Node]
    """The placeholders of the program's inputs."""

    mutated: tuple[int, ...]
    """Indices of the inputs that the program writes to; their new values are the first outputs."""

    unnoticed: frozenset[int]
    """Indices of the inputs that the program writes to without autograd noticing."""

    nodes: list[fx.Node]
    """By position of an output: the node of the traced graph whose last value it is."""

    values: list[Any]
    """By position of an output: the fake, with the autograd history that results have."""

    results: tuple[ResultSpec, ...]
    output_count: int
    """The number of values that the results take; gradients may follow."""


def finish_graph(program: TracedProgram, inputs: Sequence[Any], fakes: FakeMode) -> AtenGraph:
    """Make `program`, traced on `inputs`, functional and decide where each of its results comes
    from.
    """
    plan = plan_results(program, inputs)
    likes = [node.meta["val"] for node in plan.nodes]
    outputs, bases = finish_outputs(program, plan, likes, fakes)
    program.graph.output(tuple(outputs))
    compute_math_bits(program.graph, fakes)
    return AtenGraph(
        graph=program.graph,
        constants=program.constants,
        mutated_inputs=plan.mutated,
        unnoticed_inputs=plan.unnoticed,
        replaced_inputs=() if bases else plan.mutated,
        bases=bases,
        geometry_changes=program.geometry_changes,
        inputs_with_bits=program.inputs_with_bits,
        results=plan.results,
        structure=program.structure,
    )


def finish_outputs(
    program: TracedProgram, plan: ResultPlan, likes: Sequence[Any], fakes: FakeMode
) -> tuple[list[fx.Node], tuple[StorageBase, ...]]:
    """Make `program` functional; gives the nodes that hold the last values of the plan's, each with
    the sizes and strides of its fake in `likes`, in memory that is no input's or other output's;
    and the further inputs that this takes.
    """
    nodes = plan.nodes
    bases: tuple[StorageBase, ...] = ()
    if program.has_mutations:
        bases, views = share_bases(program.graph, plan.inputs, set(_written(program.graph)), fakes)
        nodes = [views.get(node, node) for node in nodes]
    functional = Functionalizer(program.graph, fakes)
    if program.has_mutations:
        functional.run()
    outputs: list[fx.Node] = []
    shown: dict[fx.Node, list[Any]] = defaultdict(list)
    for position, (node, like) in enumerate(zip(nodes, likes, strict=True)):
        if not isinstance(like, torch.Tensor):
            outputs.append(node)
            continue
        current = functional.current(node)
        value, owner = current.meta["val"], shown_memory(current)
        is_gradient = position >= plan.output_count  # those may be parts of one tensor, as in eager
        taken = any(not is_gradient or may_overlap(value, other) for other in shown[owner])
        taken |= owner.op in ("placeholder", "get_attr")
        if taken or not same_sizes(value.stride(), like.stride()):
            owner, current = _copy_of_view(current, node, like, fakes)
        outputs.append(current)
        shown[owner].append(current.meta["val"])
    return outputs, bases


def _copy_of_view(
    current: fx.Node, node: fx.Node, like: torch.Tensor, fakes: FakeMode
) -> tuple[fx.Node, fx.Node]:
    """A copy of `current`, and a view of it with the sizes and strides of `like`: elements that are
    one in the memory of `like`, as `expand` makes them, are one in the copy.

    `node`: whose location and names the new nodes have.
    """
    graph, value = current.graph, like
    repeated = repeated_dimensions(like)

    def emit(operator: Any, *arguments: Any) -> fx.Node:
        values = fx.node.map_arg(arguments, lambda argument: argument.meta["val"])
        copy = graph.call_function(operator, arguments)
        copy.meta.update(node.meta, val=fakes.dispatch(operator, values, {}))
        return copy

    sizes = sizes_of(node) if repeated else []
    for dim in repeated:
        current = emit(aten.slice.Tensor, current, dim, 0, 1)
        value = value.narrow(dim, 0, 1)
    copy = graph.call_function(aten.clone.default, (current,))
    copy.meta.update(node.meta, val=value)
    return copy, emit(aten.expand.default, copy, sizes) if repeated else copy


def plan_results(program: TracedProgram, inputs: Sequence[Any]) -> ResultPlan:
    """Decide what the graph of `program` returns, and how results are made of that.

    `inputs`: the fakes that the program was given, which after it have the autograd history of what
    was written to them.
    """
    placeholders = list(program.graph.find_nodes(op="placeholder"))
    written = _written(program.graph) if program.has_mutations else {}
    mutated = tuple(index for index, node in enumerate(placeholders) if node in written)
    planner = _Planner(program, placeholders, inputs)
    for index in mutated:
        planner.add(placeholders[index], inputs[index])
    results = planner.results()
    return ResultPlan(
        inputs=placeholders,
        mutated=mutated,
        unnoticed=frozenset(index for index in mutated if not written[placeholders[index]]),
        nodes=planner.nodes,
        values=planner.values,
        results=tuple(results),
        output_count=len(planner.nodes),
    )


def _written(graph: fx.Graph) -> dict[fx.Node, bool]:
    """The nodes whose memory a traced graph writes to: whether autograd notices it."""
    written: dict[fx.Node, bool] = {}
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        owner = memory_owner(node.args[0])
        written[owner] = written.get(owner, False) or not node.meta.get(UNNOTICED)
    return written


class _Planner:
    """The outputs as they are collected."""

    def __init__(
        self, program: TracedProgram, placeholders: Sequence[fx.Node], inputs: Sequence[Any]
    ) -> None:
        self.inputs = inputs
        self.nodes: list[fx.Node] = []
        self.values: list[Any] = []
        self._program = program
        self._changed = {id(inputs[change.index]) for change in program.geometry_changes}
        """The identities of inputs that get other sizes."""

        self._indices = {node: index for index, node in enumerate(placeholders)}
        self._positions: dict[fx.Node, list[FromGraph]] = defaultdict(list)
        """By node of the traced graph, or of a symbolic number: its outputs; several only where
        their autograd histories differ.
        """

        self._sharing: dict[fx.Node, list[tuple[fx.Node, Any]]] = defaultdict(list)
        """By node that owns memory: the results that show it, with their fakes."""

    def add(self, node: fx.Node, value: Any) -> FromGraph:
        """Append the output that is to hold the last value of `node`."""
        self.nodes.append(node)
        self.values.append(value)
        return FromGraph(len(self.nodes) - 1)

    def results(self) -> list[ResultSpec]:
        """The origin of each leaf of the program's result."""
        leaves = list(zip(self._program.results, self._program.values, strict=True))
        first: dict[int, int] = {}
        for number, (leaf, value) in enumerate(leaves):
            is_tensor = isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], torch.Tensor)
            if is_tensor and first.setdefault(id(value), number) == number:
                self._sharing[memory_owner(leaf)].append((leaf, value))
        specs: list[ResultSpec] = []
        for number, (leaf, value) in enumerate(leaves):
            same = first.get(id(value), number)
            specs.append(Repeated(same) if same != number else self._result(leaf, value))
        return [self._detached(spec, leaf[1]) for spec, leaf in zip(specs, leaves, strict=True)]

    def _result(self, leaf: Any, value: Any) -> ResultSpec:
        if not isinstance(leaf, fx.Node):
            return KnownResult(leaf)
        if not isinstance(leaf.meta["val"], torch.Tensor):
            return self._once(leaf, value)
        root = memory_owner(leaf)
        base: FromInput | FromGraph
        if root in self._indices:
            base = FromInput(self._indices[root])
            whole = self.inputs[base.index]
        elif len(self._sharing[root]) > 1:
            root, whole = self._whole(root)
            base = self._once(root, whole)
        else:
            return self._once(leaf, value)
        if not is_view_in_autograd(value, whole):
            return self._once(leaf, value)
        is_new = value is not whole and value.requires_grad == whole.requires_grad
        if not is_new and (leaf is root or id(value) in self._changed):
            return base
        with_gradients = not is_made_without_gradients(value) if value.requires_grad else None
        if with_gradients and repeated_dimensions(root.meta["val"]):
            return self._replayed(leaf, base)
        return self._view(leaf, value, root, base, with_gradients)

    def _whole(self, root: fx.Node) -> tuple[fx.Node, Any]:
        """The fake whose views, in autograd, most results are that show the memory of `root`, and
        its node: `root`, or a view that shows all of it. Where the program gave a tensor other
        sizes in place, such a view has its history.
        """
        shown = self._sharing[root]
        memory = root.meta["val"]
        wholes = [(root, memory), *((leaf, value) for leaf, value in shown if leaf is root)]
        wholes += [
            (leaf, value)
            for leaf, value in shown
            if leaf is not root and known_equal(leaf.meta["val"].numel(), memory.numel())
        ]
        return max(
            wholes,
            key=lambda whole: sum(is_view_in_autograd(value, whole[1]) for _, value in shown),
        )

    def _once(self, node: fx.Node, value: Any) -> FromGraph:
        """The output that holds `node`, added when first asked for."""
        for position in self._positions[node]:
            earlier = self.values[position.position]
            if not isinstance(value, torch.Tensor) or is_view_in_autograd(value, earlier):
                return position
            if not earlier.requires_grad:  # it was met detached before
                self.values[position.position] = value
                return position
        added = self.add(node, value)
        self._positions[node].append(added)
        return added

    def _detached(self, spec: ResultSpec, value: Any) -> ResultSpec:
        """`spec`, without autograd history where the program's result has none."""
        match spec:
            case FromInput(index) | ViewOf(base=FromInput(index)) | Replayed(base=FromInput(index)):
                base = self.inputs[index]
            case (
                FromGraph(position)
                | ViewOf(base=FromGraph(position))
                | Replayed(base=FromGraph(position))
            ):
                base = self.values[position]
            case _:
                return spec
        tracked = isinstance(base, torch.Tensor) and base.requires_grad
        return Detached(spec) if tracked and not value.requires_grad else spec

    def _replayed(self, leaf: fx.Node, base: FromInput | FromGraph) -> Replayed:
        def number(node: fx.Node) -> Any:
            return self._once(node, node.meta["val"])

        calls = []
        while (source := view_source(leaf)) is not None:
            args, kwargs = fx.node.map_arg((leaf.args[1:], leaf.kwargs), number)
            calls.append((leaf.target, args, kwargs))
            leaf = source
        return Replayed(base, tuple(reversed(calls)), with_gradients=True)

    def _view(
        self,
        leaf: fx.Node,
        value: torch.Tensor,
        root: fx.Node,
        base: FromInput | FromGraph,
        with_gradients: bool | None,
    ) -> ViewOf:
        view, whole = leaf.meta["val"], root.meta["val"]
        if isinstance(base, FromInput):  # it may lie elsewhere for the program than in the graph
            place, begin = value.storage_offset(), self.inputs[base.index].storage_offset()
        else:
            place, begin = view.storage_offset(), whole.storage_offset()
        offset = place - begin * whole.itemsize // view.itemsize
        return ViewOf(
            base,
            tuple(self._number(size) for size in view.shape),
            tuple(self._number(stride) for stride in view.stride()),
            self._number(offset),
            dtype=view.dtype,
            conjugate=view.is_conj() != whole.is_conj(),
            negative=view.is_neg() != whole.is_neg(),
            with_gradients=with_gradients,
        )

    def _number(self, value: Any) -> int | FromGraph:
        number = value if isinstance(value, int) else self._program.symbols.node_for(value)
        return self._once(number, value) if isinstance(number, fx.Node) else number


def is_view_in_autograd(view: Any, base: Any) -> bool:
    """Whether a view made anew of `base` has the gradient that `view`, which shows the same memory,
    had: it has none, or its history leads to that of `base` by operators of one input alone.

    A custom autograd function may give its input back with another gradient.
    """
    if not view.requires_grad or view is base:
        return True
    if not base.requires_grad:
        return False
    if is_made_without_gradients(view) or is_made_without_gradients(base):
        return is_made_without_gradients(view)
    wanted = [get_gradient_edge(base)[:2]]
    whole = torch_compat.viewed_tensor(base)
    related = whole is torch_compat.viewed_tensor(view) and whole is not base
    if related and is_view_in_autograd(base, whole):
        wanted.append(get_gradient_edge(whole)[:2])  # after a write, each begins there anew
    edge = get_gradient_edge(view)[:2]
    while edge not in wanted:
        node = edge[0]
        edges = [(above, number) for above, number in node.next_functions if above is not None]
        if isinstance(node, BackwardCFunction) or len(edges) != 1:
            return False
        (edge,) = edges
    return True


def is_made_without_gradients(view: torch.Tensor) -> bool:
    """Whether `view` is one that was made, with gradients off, of a tensor that requires grad: it
    requires grad as well, but has no history.
    """
    return view.requires_grad and torch_compat.is_view_made_without_gradients(view)
