"""Around a compiled graph at run time: written inputs are copied back, results that alias are made
views.

A compiled graph takes one list of inputs, which it clears so that inputs can be freed early, and
gives a flat tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fusewright.aot.specs import (
    FromGraph,
    FromInput,
    Leaf,
    Literal,
    ResultSpec,
    StorageBase,
    ViewOf,
)

if TYPE_CHECKING:
    from fusewright.aot.graph import AtenGraph

Compiled = Callable[[list[Any]], Sequence[Any]]
"""One list of inputs in, cleared; a flat tuple of the graph's outputs out."""


def with_results(graph: AtenGraph, compiled: Compiled) -> Callable[[list[Any]], Any]:
    """`compiled`, which computes `graph`, as a function from the program's inputs (one list) to its
    results.
    """
    plain = tuple(FromGraph(position) for position in range(len(graph.results)))
    whole = len(graph.results) == len(graph.outputs)
    if graph.results == plain and whole and graph.structure is None and not graph.bases:
        return compiled
    kept_indices = _inputs_needed_afterwards(graph)
    bases, mutated, structure = graph.bases, graph.mutated_inputs, graph.structure
    results = graph.results

    def run(inputs: list[Any]) -> Any:
        inputs.extend([_storage_base(base, inputs) for base in bases])
        kept = {index: inputs[index] for index in kept_indices}
        outputs = compiled(inputs)
        with torch.no_grad():
            for index, value in zip(mutated, outputs, strict=False):
                kept[index].copy_(value)
        made: dict[ResultSpec, Any] = {}
        leaves = [_result(spec, kept, outputs, made) for spec in results]
        return tuple(leaves) if structure is None else _rebuilt(structure, leaves)

    return run


def by_kind(graph: AtenGraph, compiled: Compiled) -> Compiled:
    """`compiled`, which takes symbolic sizes first and no other numbers, as a function of all
    inputs in order.
    """
    values = [node.meta["val"] for node in graph.placeholders]
    sizes = [i for i, value in enumerate(values) if isinstance(value, torch.SymInt)]
    tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    order = sizes + tensors
    if order == list(range(len(values))):
        return compiled

    def reordered(inputs: list[Any]) -> Sequence[Any]:
        arguments = [inputs[index] for index in order]
        inputs.clear()
        return compiled(arguments)

    return reordered


def _inputs_needed_afterwards(graph: AtenGraph) -> tuple[int, ...]:
    needed = set(graph.mutated_inputs)
    for spec in graph.results:
        match spec:
            case FromInput(index) | ViewOf(base=FromInput(index)):
                needed.add(index)
            case _:
                pass
    return tuple(sorted(needed))


def _storage_base(base: StorageBase, inputs: list[Any]) -> torch.Tensor:
    tensor = inputs[base.index].detach()
    return tensor.as_strided((base.length,), (1,), tensor.storage_offset() + base.offset)


def _result(
    spec: ResultSpec, kept: dict[int, Any], outputs: Sequence[Any], made: dict[ResultSpec, Any]
) -> Any:
    match spec:
        case FromGraph(position):
            return outputs[position]
        case FromInput(index):
            return kept[index]
        case Literal(value):
            return value
        case ViewOf(base, size, stride, offset):
            if spec not in made:  # one view however often it is returned
                whole = _result(base, kept, outputs, made)
                start = whole.storage_offset() + _number(offset, outputs)
                made[spec] = whole.as_strided(
                    [_number(one, outputs) for one in size],
                    [_number(one, outputs) for one in stride],
                    start,
                )
            return made[spec]


def _number(value: int | FromGraph, outputs: Sequence[Any]) -> int:
    return value if isinstance(value, int) else int(outputs[value.position])


def _rebuilt(structure: Any, leaves: Sequence[Any]) -> Any:
    match structure:
        case Leaf(index):
            return leaves[index]
        case tuple():
            return tuple(_rebuilt(one, leaves) for one in structure)
        case list():
            return [_rebuilt(one, leaves) for one in structure]
        case dict():
            return {name: _rebuilt(one, leaves) for name, one in structure.items()}
    raise AssertionError(structure)
