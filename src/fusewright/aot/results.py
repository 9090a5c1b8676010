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

from fusewright import torch_compat
from fusewright.aot.functionalize import Functionalizer, memory_owner
from fusewright.aot.graph import AtenGraph, TracedProgram
from fusewright.aot.math_bits import compute_math_bits
from fusewright.aot.specs import FromGraph, FromInput, Literal, ResultSpec, StorageBase, ViewOf
from fusewright.aot.tracer import Fakes, same_sizes
from fusewright.errors import Unsupported

aten = torch.ops.aten


def finish_graph(program: TracedProgram, fakes: Fakes) -> AtenGraph:
    """Make `program` functional and decide where each of its results comes from."""
    placeholders = list(program.graph.find_nodes(op="placeholder"))
    bases: tuple[StorageBase, ...] = ()
    if program.has_mutations:
        bases = share_bases(program.graph, placeholders, fakes)
        placeholders = list(program.graph.find_nodes(op="placeholder"))
    functional = Functionalizer(program.graph, fakes)
    if program.has_mutations:
        functional.run()
    outputs = _Outputs(program, placeholders, functional)
    mutated = tuple(index for index, node in enumerate(placeholders) if functional.is_written(node))
    for index in mutated:
        outputs.add(functional.current(placeholders[index]), placeholders[index].meta["val"])
    results = tuple(outputs.results(program.results))
    program.graph.output(tuple(outputs.nodes))
    compute_math_bits(program.graph, fakes)
    return AtenGraph(
        graph=program.graph,
        constants=program.constants,
        mutated_inputs=mutated,
        bases=bases,
        inputs_with_bits=program.inputs_with_bits,
        results=results,
        structure=program.structure,
    )


class _Outputs:
    """The graph's outputs as they are collected."""

    def __init__(
        self, program: TracedProgram, placeholders: list[fx.Node], functional: Functionalizer
    ) -> None:
        self.nodes: list[fx.Node] = []
        self._graph = program.graph
        self._symbols = program.symbols
        self._inputs = {node: index for index, node in enumerate(placeholders)}
        self._functional = functional
        self._positions: dict[fx.Node, FromGraph] = {}
        """By node of the traced graph, or of a symbolic number: its output."""

    def add(self, node: fx.Node, like: Any) -> FromGraph:
        """Append an output with the strides of `like`, in memory that is no input's or other
        output's.
        """
        if isinstance(like, torch.Tensor):
            fresh = not self._shares_memory(node) and node not in self.nodes
            if not fresh or not same_sizes(node.meta["val"].stride(), like.stride()):
                copied = self._graph.call_function(aten.clone.default, (node,))
                copied.meta.update(node.meta, val=like)
                node = copied
        self.nodes.append(node)
        return FromGraph(len(self.nodes) - 1)

    def results(self, leaves: Sequence[Any]) -> list[ResultSpec]:
        """Where each leaf of the program's result comes from."""
        sharing: dict[fx.Node, set[fx.Node]] = defaultdict(set)
        for leaf in leaves:
            if isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], torch.Tensor):
                sharing[self._functional.root(leaf)].add(leaf)
        return [self._result(leaf, sharing) for leaf in leaves]

    def _result(self, leaf: Any, sharing: dict[fx.Node, set[fx.Node]]) -> ResultSpec:
        if not isinstance(leaf, fx.Node):
            return Literal(leaf)
        if not isinstance(leaf.meta["val"], torch.Tensor):
            return self._once(leaf)
        root = self._functional.root(leaf)
        base: FromInput | FromGraph
        if root in self._inputs:
            base = FromInput(self._inputs[root])
        elif len(sharing[root]) > 1:
            base = self._once(root)
        else:
            return self._once(leaf)
        return base if leaf is root else self._view(leaf, root, base)

    def _once(self, node: fx.Node) -> FromGraph:
        """The output that holds `node`, added when first asked for."""
        if node not in self._positions:
            held = node.op == "get_attr" or isinstance(node.meta["val"], torch.Tensor)
            current = self._functional.current(node) if held else node
            self._positions[node] = self.add(current, node.meta["val"])
        return self._positions[node]

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
        number = value if isinstance(value, int) else self._symbols.node_for(value)
        return self._once(number) if isinstance(number, fx.Node) else number

    def _shares_memory(self, node: fx.Node) -> bool:
        """Whether `node`, in the functional graph, shows the memory of an input, a constant or an
        output.
        """
        root = memory_owner(node)
        return root.op in ("placeholder", "get_attr") or (root is not node and root in self.nodes)


def share_bases(
    graph: fx.Graph, placeholders: Sequence[fx.Node], fakes: Fakes
) -> tuple[StorageBase, ...]:
    """Where inputs share memory, let all of them be views of one further input; gives those further
    inputs.

                                            x, y: inputs, y = x[0]                  x, y, base:
                                            inputs copy_ = aten.copy_(y, value)      ->    x_view =
                                            aten.as_strided(base, …); y_view = aten.as_strided(base,
                                            …) copy_ = aten.copy_(y_view, value)
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(placeholders):
        if isinstance(node.meta["val"], torch.Tensor):
            groups[torch_compat.storage_key(storage_owner(node.meta["val"]))].append(index)
    bases = []
    last = placeholders[-1] if placeholders else None
    for members in groups.values():
        if len(members) > 1:
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
