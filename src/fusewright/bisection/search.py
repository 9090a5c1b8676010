"""Finds the first stage, kernel and line of a captured graph at which what is computed is wrong."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fusewright.bisection.differences import Difference
from fusewright.bisection.kernels import KernelDiffers
from fusewright.bisection.observe import Reference, copies, expect, observe, with_histories
from fusewright.bisection.stages import (
    Build,
    StepDiffers,
    compared_steps,
    staged,
    stages,
    stages_of_passes,
)
from fusewright.errors import Location
from fusewright.ir.origin import Origin
from fusewright.records import record, replace
from fusewright.schedule import PASSES


@record(kw_only=True)
class Trouble:
    """The trouble with a graph, and the stage at which it begins."""

    stage: str
    what: str
    """The value that differs: `result 0`; `the stage` where it raises."""

    differs: Difference | None
    """The difference; None where the stage raises."""

    error: Exception | None = None
    origins: tuple[Origin | Location, ...] = ()
    """The user's lines, and what is computed there."""

    @property
    def kind(self) -> str:
        """`crash`, `memory`, or how values differ."""
        if isinstance(self.error, KernelDiffers):
            cause = self.error.cause
            if cause is not None:
                return "memory" if type(cause).__name__ == "MemoryFault" else "crash"
            assert self.error.differs is not None
            return self.error.differs.kind
        return "crash" if self.differs is None else self.differs.kind


@record(kw_only=True)
class GraphCheck:
    """A captured graph with the inputs of one call, and what it is to do with them."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]
    expected: Reference

    @classmethod
    def of(cls, graph: fx.GraphModule, inputs: Sequence[Any]) -> GraphCheck:
        """Run the graph eagerly. Raises what it raises."""
        kept = copies(inputs)
        arguments = tuple(with_histories(kept, inputs))
        return cls(graph=graph, inputs=arguments, expected=expect(graph, arguments))

    def trouble(self, name: str, build: Build) -> Trouble | None:
        """The trouble after a stage."""
        try:
            examples = with_histories(copies(self.inputs), self.inputs)
            run = build(self.graph, examples)
            observation = observe(run, self.inputs)
        except Exception as error:
            differs = error.differs if isinstance(error, KernelDiffers) else None
            return Trouble(
                stage=name, what="the stage", differs=differs, error=error, origins=_origins(error)
            )
        differing = self.expected.first_difference(observation)
        if differing is None:
            return None
        return Trouble(stage=name, what=differing[0], differs=differing[1])


def first_trouble(check: GraphCheck, counts: list[int]) -> Trouble | None:
    """The trouble after the first stage that has any, with the user's lines."""
    for stage in stages(counts):
        trouble = check.trouble(stage.name, stage.build)
        if trouble is None:
            continue
        if stage.name == "scheduling":
            return _by_pass(check, trouble)
        if trouble.origins:
            return trouble
        return replace(trouble, origins=_lines(check, trouble, stage.build))
    return None


def build_of(stage: str) -> Build:
    """The backend that goes as far as a stage, by its name or by that of a pass."""
    builds = {candidate.name: candidate.build for candidate in (*stages([]), *stages_of_passes())}
    return builds[stage]


def _by_pass(check: GraphCheck, trouble: Trouble) -> Trouble:
    """The pass behind which scheduling is wrong, and the first step that is."""
    rows = stages_of_passes()
    for count, stage in enumerate(rows):
        pass_trouble = check.trouble(stage.name, stage.build)
        if pass_trouble is None:
            continue
        half = functools.partial(compared_steps, passes=PASSES[:count])
        step = check.trouble(stage.name, staged(half))
        if step is not None and isinstance(step.error, StepDiffers) and step.error.origins:
            return replace(pass_trouble, origins=step.error.origins)
        return replace(
            pass_trouble, origins=pass_trouble.origins or _lines(check, pass_trouble, stage.build)
        )
    return replace(trouble, origins=_lines(check, trouble, build_of("scheduling")))


def _origins(error: Exception) -> tuple[Origin | Location, ...]:
    """The user's lines that an exception names."""
    if isinstance(error, KernelDiffers):
        return error.group.origins
    location = getattr(error, "location", None)
    return (location,) if isinstance(location, Location) else ()


def _lines(check: GraphCheck, trouble: Trouble, build: Build) -> tuple[Location, ...]:
    """The line of the first operator behind which a stage goes wrong."""
    node = first_node(check, trouble, build)
    location = None if node is None else node.meta.get("location")
    if isinstance(location, tuple):
        location = Location(*location)
    return (location,) if isinstance(location, Location) else ()


def first_node(check: GraphCheck, trouble: Trouble, build: Build) -> fx.Node | None:
    """The operator that ends the shortest beginning of a graph with which a stage goes wrong as it
    does with the whole; None where no beginning does.
    """
    nodes = tensor_nodes(check.graph, check.inputs)

    def goes_wrong(place: int) -> bool:
        return same_trouble(trouble, build, prefix(check.graph, nodes[place]), check.inputs)

    low, high = 0, len(nodes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if goes_wrong(middle) else (middle + 1, high)
    return nodes[low] if low < len(nodes) and goes_wrong(low) else None


def same_trouble(
    trouble: Trouble, build: Build, graph: fx.GraphModule, inputs: Sequence[Any]
) -> bool:
    """Whether a stage goes wrong with another graph in the same way. A graph that eager refuses
    does not count.
    """
    try:
        other_trouble = GraphCheck.of(graph, inputs).trouble(trouble.stage, build)
    except Exception:
        return False
    if other_trouble is None or other_trouble.kind != trouble.kind:
        return False
    return other_trouble.differs is not None or type(other_trouble.error) is type(trouble.error)


def prefix(graph: fx.GraphModule, last: fx.Node) -> fx.GraphModule:
    """The graph that ends with `last`, and returns it."""
    shorter = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    placeholders = graph.graph.find_nodes(op="placeholder")
    for node in placeholders:
        copied[node] = shorter.node_copy(node)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            continue
        copied[node] = shorter.node_copy(node, copied.__getitem__)
        if node is last:
            break
    shorter.output((copied[last],))
    return fx.GraphModule(graph, shorter)


def tensor_nodes(graph: fx.GraphModule, inputs: Sequence[Any]) -> list[fx.Node]:
    """The operators of a graph that give a tensor, in order."""
    recorder = ValueRecorder(graph)
    recorder.run(*with_histories(copies(inputs), inputs))
    return [
        node
        for node, value in recorder.values.items()
        if isinstance(value, torch.Tensor) and node.op.startswith("call_")
    ]


class ValueRecorder(fx.Interpreter):
    """Runs a graph, and keeps the value of each node as it was when it was computed."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; copied, where that is a tensor."""
        value = super().run_node(n)
        kept = value
        if isinstance(value, torch.Tensor):
            (kept,) = copies([value])
        self.values[n] = kept
        return value
