"""From a traced program to an `AtenGraph`: mutations of inputs become outputs, results that alias
become views.

What eager execution promises about memory is kept: a result that aliases an input aliases it,
results that alias each other do, and all other results have memory of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge

from fusewright import torch_compat
from fusewright.aot.functionalize import Functionalizer, memory_owner
from fusewright.aot.graph import AtenGraph, TracedProgram
from fusewright.aot.math_bits import compute_math_bits
from fusewright.aot.specs import (
    Detached,
    FromGraph,
    FromInput,
    Literal,
    ResultSpec,
    StorageBase,
    ViewOf,
)
from fusewright.aot.tracer import Fakes, same_sizes
from fusewright.errors import Unsupported

aten = torch.ops.aten


@dataclass(slots=True)
class ResultPlan:
    """Which values a graph is to return, decided on the traced graph, before writes are made
    functional.
    """

    bases: tuple[StorageBase, ...]
    mutated: tuple[int, ...]
    """Indices of the inputs that the program writes to; their new values are the first outputs."""

    nodes: list[fx.Node]
    """By position of an output: the node of the traced graph whose last value it is."""

    values: list[Any]
    """By position of an output: the fake, with the autograd history that results have."""

    results: tuple[ResultSpec, ...]


def finish_graph(program: TracedProgram, inputs: Sequence[Any], fakes: Fakes) -> AtenGraph:
    """Make `program`, traced on `inputs`, functional and decide where each of its results comes
    from.
    """
    plan = plan_results(program, inputs, fakes)
    likes = [node.meta["val"] for node in plan.nodes]
    outputs = finish_outputs(program, plan.nodes, likes, fakes)
    program.graph.output(tuple(outputs))
    compute_math_bits(program.graph, fakes)
    return AtenGraph(
        graph=program.graph,
        constants=program.constants,
        mutated_inputs=plan.mutated,
        bases=plan.bases,
        inputs_with_bits=program.inputs_with_bits,
        results=plan.results,
        structure=program.structure,
    )


def finish_outputs(
    program: TracedProgram, nodes: Sequence[fx.Node], likes: Sequence[Any], fakes: Fakes
) -> list[fx.Node]:
    """Make `program` functional; gives the nodes that hold the last values of `nodes`, each with
    the sizes and strides of its fake in `likes`, in memory that is no input's or other output's.
    """
    functional = Functionalizer(program.graph, fakes)
    if program.has_mutations:
        functional.run()
    outputs: list[fx.Node] = []
    for node, like in zip(nodes, likes, strict=True):
        if not isinstance(like, torch.Tensor):
            outputs.append(node)
            continue
        current = functional.current(node)
        fresh = not _shares_memory(current, outputs) and current not in outputs
        if not fresh or not same_sizes(current.meta["val"].stride(), like.stride()):
            copied = program.graph.call_function(aten.clone.default, (current,))
            copied.meta.update(current.meta, val=like)
            current = copied
        outputs.append(current)
    return outputs


def _shares_memory(node: fx.Node, outputs: Sequence[fx.Node]) -> bool:
    """Whether `node`, in the functional graph, shows the memory of an input, a constant or an
    output.
    """
    root = memory_owner(node)
    return root.op in ("placeholder", "get_attr") or (root is not node and root in outputs)


def plan_results(program: TracedProgram, inputs: Sequence[Any], fakes: Fakes) -> ResultPlan:
    """Decide what the graph of `program` returns, and how results are made of that.

    `inputs`: the fakes that the program was given, which after it have the autograd history of what
    was written to them.
    """
    placeholders = list(program.graph.find_nodes(op="placeholder"))
    bases: tuple[StorageBase, ...] = ()
    mutated: tuple[int, ...] = ()
    if program.has_mutations:
        bases = share_bases(program.graph, placeholders, _written(program.graph), fakes)
        placeholders = list(program.graph.find_nodes(op="placeholder"))
        written = _written(program.graph)
        mutated = tuple(index for index, node in enumerate(placeholders) if node in written)
    planner = _Planner(program, placeholders, [*inputs, *_values(placeholders[len(inputs) :])])
    for index in mutated:
        planner.add(placeholders[index], planner.inputs[index])
    results = planner.results()
    return ResultPlan(bases, mutated, planner.nodes, planner.values, tuple(results))


def _written(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose memory a traced graph writes to."""
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    return {memory_owner(node.args[0]) for node in writes}  # type: ignore[arg-type]


def _values(nodes: Sequence[fx.Node]) -> list[Any]:
    return [node.meta["val"] for node in nodes]


class _Planner:
    """The outputs as they are collected."""

    def __init__(
        self, program: TracedProgram, placeholders: list[fx.Node], inputs: list[Any]
    ) -> None:
        self.inputs = inputs
        self.nodes: list[fx.Node] = []
        self.values: list[Any] = []
        self._program = program
        self._indices = {node: index for index, node in enumerate(placeholders)}
        self._positions: dict[fx.Node, list[FromGraph]] = defaultdict(list)
        """By node of the traced graph, or of a symbolic number: its outputs; several only where
        their autograd histories differ.
        """

        self._sharing: dict[fx.Node, set[fx.Node]] = defaultdict(set)
        """By node that owns memory: the results that show it."""

    def add(self, node: fx.Node, value: Any) -> FromGraph:
        """Append the output that is to hold the last value of `node`."""
        self.nodes.append(node)
        self.values.append(value)
        return FromGraph(len(self.nodes) - 1)

    def results(self) -> list[ResultSpec]:
        """Where each leaf of the program's result comes from."""
        leaves = list(zip(self._program.results, self._program.values, strict=True))
        for leaf, _ in leaves:
            if isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], torch.Tensor):
                self._sharing[memory_owner(leaf)].add(leaf)
        specs = [self._result(leaf, value) for leaf, value in leaves]
        return [self._detached(spec, leaf[1]) for spec, leaf in zip(specs, leaves, strict=True)]

    def _result(self, leaf: Any, value: Any) -> ResultSpec:
        if not isinstance(leaf, fx.Node):
            return Literal(leaf)
        if not isinstance(leaf.meta["val"], torch.Tensor):
            return self._once(leaf, value)
        root = memory_owner(leaf)
        base: FromInput | FromGraph
        if root in self._indices:
            base = FromInput(self._indices[root])
            whole = self.inputs[base.index]
        elif len(self._sharing[root]) > 1:
            whole = value if leaf is root else root.meta["val"]
            base = self._once(root, whole)
        else:
            return self._once(leaf, value)
        if not is_view_in_autograd(value, whole):
            return self._once(leaf, value)
        return base if leaf is root else self._view(leaf, root, base)

    def _once(self, node: fx.Node, value: Any) -> FromGraph:
        """The output that holds `node`, added when first asked for."""
        for position in self._positions[node]:
            known = self.values[position.position]
            if not isinstance(value, torch.Tensor) or is_view_in_autograd(value, known):
                return position
            if not known.requires_grad:  # it was met detached before
                self.values[position.position] = value
                return position
        added = self.add(node, value)
        self._positions[node].append(added)
        return added

    def _detached(self, spec: ResultSpec, value: Any) -> ResultSpec:
        """`spec`, without autograd history where the program's result has none."""
        match spec:
            case FromInput(index) | ViewOf(base=FromInput(index)):
                base = self.inputs[index]
            case FromGraph(position) | ViewOf(base=FromGraph(position)):
                base = self.values[position]
            case _:
                return spec
        tracked = isinstance(base, torch.Tensor) and base.requires_grad
        return Detached(spec) if tracked and not value.requires_grad else spec

    def _view(self, leaf: fx.Node, root: fx.Node, base: FromInput | FromGraph) -> ViewOf:
        view, whole = leaf.meta["val"], root.meta["val"]
        begin = whole.storage_offset() * whole.itemsize // view.itemsize
        return ViewOf(
            base,
            tuple(self._number(size) for size in view.shape),
            tuple(self._number(stride) for stride in view.stride()),
            self._number(view.storage_offset() - begin),
            dtype=view.dtype,
            conjugate=view.is_conj() != whole.is_conj(),
            negative=view.is_neg() != whole.is_neg(),
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
    wanted = get_gradient_edge(base)
    node, number = get_gradient_edge(view)[:2]
    while node != wanted.node:
        edges = [(node, number) for node, number in node.next_functions if node is not None]
        if isinstance(node, BackwardCFunction) or len(edges) != 1:
            return False
        ((node, number),) = edges
    return number == wanted.output_nr


def share_bases(
    graph: fx.Graph, placeholders: Sequence[fx.Node], written: set[fx.Node], fakes: Fakes
) -> tuple[StorageBase, ...]:
    """Where inputs share memory, and one of them is written to, let all of them be views of one
    further input; gives those further inputs.

    x, y: inputs, y = x[0]                  x, y, base: inputs
    copy_ = aten.copy_(y, value)      ->    x_view = aten.as_strided(base, …)
                                            y_view = aten.as_strided(base, …)
                                            copy_ = aten.copy_(y_view, value)
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(placeholders):
        if isinstance(node.meta["val"], torch.Tensor):
            groups[torch_compat.storage_key(storage_owner(node.meta["val"]))].append(index)
    bases = []
    last = placeholders[-1] if placeholders else None
    for members in groups.values():
        if len(members) > 1 and any(placeholders[index] in written for index in members):
            assert last is not None
            base, last = _share_base(graph, placeholders, members, last, fakes)
            bases.append(base)
    return tuple(bases)


def storage_owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose storage tells what a fake aliases."""
    return getattr(tensor, "meta_tensor", tensor)


def _share_base(
    graph: fx.Graph,
    placeholders: Sequence[fx.Node],
    members: list[int],
    last: fx.Node,
    fakes: Fakes,
) -> tuple[StorageBase, fx.Node]:
    values = [placeholders[index].meta["val"] for index in members]
    if len({value.dtype for value in values}) > 1:
        raise Unsupported("inputs of different types that share memory, one of which is written to")
    start = min(value.storage_offset() for value in values)
    end = max(_end(value) for value in values)
    if any(isinstance(bound, torch.SymInt) for bound in (start, end)):
        raise Unsupported("inputs of symbolic sizes that share memory, one of which is written to")
    strided = aten.as_strided.default
    with graph.inserting_after(last):
        base = graph.placeholder(f"base{members[0]}")
    base.meta["val"] = fakes.dispatch(strided, (values[0], [end - start], [1], start), {})
    for index, value in reversed(list(zip(members, values, strict=True))):
        node = placeholders[index]
        geometry = (list(value.shape), list(value.stride()), value.storage_offset() - start)
        with graph.inserting_after(base):
            view = graph.call_function(strided, (base, *geometry))
        view.meta.update(node.meta, val=value)
        node.replace_all_uses_with(view)
    return StorageBase(members[0], start - values[0].storage_offset(), end - start), base


def _end(value: torch.Tensor) -> Any:
    """One past the last element of `value`, counted from the beginning of its storage."""
    if value.numel() == 0:
        return value.storage_offset()
    reach = sum(
        (size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True)
    )
    return value.storage_offset() + reach + 1
