"""The result of tracing: a functional graph of ATen operators, and how its results become those of
the user's program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from fusewright.aot.specs import GeometryChange, ResultSpec, StorageBase
from fusewright.aot.symbols import SymbolNodes
from fusewright.records import field, record
from fusewright.user_kernels import UserKernelOnCopies


@record(slots=False)
class AtenGraph:
    """A functional graph of ATen operators for inference.

    Invariants: no node writes to its arguments; each node's `meta["val"]` is its fake value (a fake
    tensor, a tuple of them, a number or a `torch.SymInt`); operators are those that
    `formulas` leaves; placeholders are the program's inputs in order; `meta` also holds
    `location` (an `errors.Location` or None), `stack_trace` and `module_path`; of a placeholder,
    `is_released`, where nobody else holds the tensor, so that it goes with its last use.
    """

    graph: fx.Graph
    """Its output node holds one flat tuple: first the new values of `mutated_inputs`, then further
    values.

    Each output tensor is to have the sizes and strides of its `val`, and (inputs are never outputs)
    fresh storage.
    """

    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """The real tensors that `get_attr` nodes name."""

    mutated_inputs: tuple[int, ...] = ()
    """Indices of the inputs that the program writes to; their new values are the graph's first
    outputs, in this order.
    """

    unnoticed_inputs: frozenset[int] = frozenset()
    """The `mutated_inputs` that are written to without autograd noticing."""

    replaced_inputs: tuple[int, ...] = ()
    """`mutated_inputs`, where the outputs may also be computed in these inputs' memory: not where
    the copy back belongs to a history.
    """

    bases: tuple[StorageBase, ...] = ()
    """Inputs that follow the program's own, made before each call."""

    geometry_changes: tuple[GeometryChange, ...] = ()
    """The changes of the sizes of its inputs that the program makes, in order."""

    inputs_with_bits: tuple[int, ...] = ()
    """Indices of the inputs that have their conjugate or negative bit set; the graph takes their
    memory as it is, without the bits.
    """

    results: tuple[ResultSpec, ...] = ()
    """How each leaf of the program's result is obtained, in order."""

    structure: Any = None
    """The program's result with each leaf replaced by a `Leaf`; None when it is the flat tuple of
    `results`.
    """

    @property
    def placeholders(self) -> list[fx.Node]:
        """The nodes of the inputs, in order."""
        return list(self.graph.find_nodes(op="placeholder"))

    @property
    def programs(self) -> dict[str, Callable[..., Any]]:
        """By name of its node: what runs a condition, loop or eager call by eager operators, or
        launches a kernel of the program's in its memory.
        """
        targets = {
            node.name: node.target for node in self.graph.nodes if hasattr(node.target, "graphs")
        }
        return {
            name: target.call if isinstance(target, UserKernelOnCopies) else target
            for name, target in targets.items()
        }

    def module_constants(self, prefix: str = "") -> dict[str, Any]:
        """By name, the objects that the module is given which it is compiled to: constants, and
        what runs eager calls and kernels of the program's. Those of the blocks of conditions and
        loops have the names of these before theirs.
        """
        constants: dict[str, Any] = {prefix + name: own for name, own in self.constants.items()}
        programs = self.programs
        for node in self.graph.nodes:
            blocks = block_graphs(node)
            for name, graph in blocks.items():
                constants |= graph.module_constants(f"{prefix}{name}_")
            if node.name in programs and not blocks:
                constants[prefix + node.name] = programs[node.name]
        return constants

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The nodes that the graph returns, in order."""
        return tuple(self.graph.output_node().args[0])  # type: ignore[arg-type]

    def graph_module(self) -> fx.GraphModule:
        """The graph as a module that can be called: one flat tuple out."""
        return fx.GraphModule(dict(self.constants), self.graph)


def block_graphs(node: fx.Node) -> dict[str, AtenGraph]:
    """The graphs of a condition or loop, by the names of the blocks that they are compiled to:
    `cond_true`. None of another node.
    """
    roles, graphs = (getattr(node.target, name, ()) for name in ("roles", "graphs"))
    return {f"{node.name}_{role}": graph for role, graph in zip(roles, graphs, strict=True)}


UNNOTICED: Final = "unnoticed"
"""In the `meta` of a traced copy into an argument: whether autograd does not notice it."""


@record(frozen=False)
class TracedProgram:
    """A graph under construction: as traced, before mutations are made functional."""

    graph: fx.Graph
    constants: dict[str, torch.Tensor]
    results: list[Any]
    """Leaves of the result: nodes, or literal values."""

    values: list[Any]
    """The leaves of the result as the program sees them: fakes with their autograd history."""

    structure: Any
    symbols: SymbolNodes
    has_mutations: bool
    geometry_changes: tuple[GeometryChange, ...] = ()
    inputs_with_bits: tuple[int, ...] = ()


def constants_of(graph: fx.Graph, constants: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The `constants` that `graph` reads."""
    names = {str(node.target) for node in graph.find_nodes(op="get_attr")}
    return {name: value for name, value in constants.items() if name in names}
