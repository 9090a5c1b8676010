"""What a package computes of weights alone when it is made, and stores in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from fusewright.aot import AtenGraph, FrozenGraph, in_recorded_types, interpreter
from fusewright.packages.container import Section
from fusewright.packages.tensors import memory_of, tensor_row
from fusewright.records import record


@record
class FrozenValues:
    """The values of one entry point."""

    graph: AtenGraph
    """Takes them behind its other inputs."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    packings: tuple[Any, ...]
    """How each is packed when the package is loaded, as its processor wants it; None: not."""

    positions: frozenset[int]
    """The inputs that they were computed of."""

    @classmethod
    def of(cls, frozen: FrozenGraph, inputs: Sequence[Any]) -> FrozenValues:
        """The values for these inputs of the graph."""
        graph, packings = frozen.unpacked()
        compute = in_recorded_types(interpreter(graph))
        values = compute([inputs[position] for position in frozen.positions])
        placeholders = frozen.graph.placeholders[-len(values) :]
        return cls(
            graph=frozen.graph,
            names=tuple(node.name.removeprefix("frozen_") for node in placeholders),
            tensors=tuple(value.detach() for value in values),
            packings=packings,
            positions=frozenset(frozen.positions),
        )

    def added_to(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entry point as its manifest has it, with these values among its inputs, and without
        weights that only they were computed of.
        """
        needed = {place for recipe in entry["results"] for place in _weights_of(recipe)}
        needed |= {number for kind, number, *_ in entry["writes"] if kind == "weight"}
        inputs = [*entry["inputs"]]
        placeholders = self.graph.placeholders
        for position in self.positions - needed:
            if not placeholders[position].users:
                inputs[position] = ["unread", inputs[position][1]]
        rows = [
            {**tensor_row(name, tensor), "packing": packing}
            for name, tensor, packing in zip(self.names, self.tensors, self.packings, strict=True)
        ]
        return {**entry, "inputs": inputs + [["frozen", name] for name in self.names],
                "frozen": rows}  # fmt: skip

    def sections(self, entry: str) -> Iterator[tuple[str, Section]]:
        """Their memory."""
        for name, tensor in zip(self.names, self.tensors, strict=True):
            yield f"{entry}.frozen.{name}", memory_of(tensor)


def _weights_of(recipe: Sequence[Any]) -> Iterator[int]:
    """The weights, by their place among the inputs, that a result is or shows."""
    kind, source, *_ = recipe
    if kind == "weight":
        yield source
    elif kind == "view":
        yield from _weights_of(source)
