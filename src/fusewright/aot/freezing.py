"""Frozen inference: what a graph computes of a module's weights alone is computed once.

    w, mean, variance, x = inputs              x, weight, bias = inputs, frozen values
    c = aten.convolution(x, w)           ->    c = aten.convolution(x, weight, bias)
    n = aten.batch_norm(c, mean, variance)

Batch norms behind convolutions are first folded into their weights, in double precision. Then the
graph is cut in two: `prepare` computes from the frozen inputs what the rest reads of them, which
gets it as further inputs. Nothing of the weights' values is in either half, so that both hold for
others, too: `runtime/frozen.py` runs `prepare` again where weights were changed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.aot.common_subexpressions import is_repeatable
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.functionalize import memory_owner, shown_memory
from fusewright.aot.graph import AtenGraph, constants_of
from fusewright.aot.interpret import interpreter
from fusewright.aot.partition import ancestors, byte_count, subgraph
from fusewright.aot.runtime import in_recorded_types
from fusewright.opaque import BUFFERS, Opaque
from fusewright.records import record, replace
from fusewright.runtime.frozen import Call, FrozenCall
from fusewright.torch_compat import (
    PACKED_CONVOLUTION,
    OpOverload,
    has_onednn_kernels,
    is_view_operator,
    pack_convolution_weight,
)

aten = torch.ops.aten

LARGEST: Final = 2
"""A value may be as many times larger than the inputs that it is computed of: a mask made of a
small parameter is cheaper to compute in the kernel that reads it.
"""

SMALL: Final = 1 << 16
"""Bytes of a value that is never too large."""


Packing = tuple[Any, ...]
"""The arguments of `pack_convolution_weight` behind the weight."""


@record(kw_only=True)
class FrozenGraph:
    """A graph without what it computes of its frozen inputs, and that."""

    graph: AtenGraph
    """Takes the values of `prepare` behind its other inputs."""

    prepare: AtenGraph
    """Takes the inputs at `positions`, and returns tensors and opaque values."""

    positions: tuple[int, ...]
    """The frozen inputs that `prepare` reads."""

    names: tuple[str, ...]
    """The names of the inputs that `prepare` reads, as the user would write them."""

    bytes: int
    """The size of the results, packed ones as they were before."""

    def __str__(self) -> str:
        size = f"{self.bytes / 2**20:.1f} MiB"
        count = len(self.prepare.outputs)
        return f"{count} tensors, computed of {len(self.positions)} weights, {size}"

    def unpacked(self) -> tuple[AtenGraph, tuple[Packing | None, ...]]:
        """`prepare` without its last steps, which pack weights as this processor wants them: all of
        its results are plain tensors. And of each result, how it is packed then.
        """
        outputs: list[Any] = []
        packings: list[Packing | None] = []
        for output in self.prepare.outputs:
            is_packed = output.target is pack_convolution_weight
            outputs.append(output.args[0] if is_packed else output)
            packings.append(tuple(output.args[1:]) if is_packed else None)
        needed = ancestors(outputs)
        nodes = [node for node in self.prepare.graph.nodes if node in needed]
        graph = subgraph(nodes, self.prepare.placeholders, outputs)
        return AtenGraph(graph=graph, constants=self.prepare.constants), tuple(packings)

    def call(self, run: Call, *, refuses: bool) -> Call:
        """`run`, which takes the graph's inputs, with the frozen values added. `refuses`: a weight
        that changes is an error.
        """
        prepare = in_recorded_types(interpreter(self.prepare))
        return FrozenCall(run, prepare, self.positions, self.names, refuses=refuses)


def weights_of(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> dict[int, str]:
    """By position: the inputs of a captured graph that are parameters and buffers of modules, as
    the user would write them. Torch's capture does not tell: there, all parameters.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return {
        position: str(node.meta.get("source", node.name))
        for position, (node, value) in enumerate(zip(placeholders, example_inputs, strict=True))
        if node.meta.get("is_of_module", isinstance(value, torch.nn.Parameter))
    }


def freeze(
    graph: AtenGraph, weights: Mapping[int, str], *, layouts_are_free: bool
) -> FrozenGraph | None:
    """Cut off what a graph computes of its inputs `weights`, which it may change; None where
    there is nothing to cut off. Batch norms are folded for good. `layouts_are_free`: tensors may
    lie otherwise than eager's, so that convolutions may have their channels last.
    """
    if graph.bases:  # Inputs share memory, and one of them is written to.
        return None
    placeholders = graph.placeholders
    frozen = {
        placeholders[position] for position in weights if position not in graph.mutated_inputs
    }
    fold_batch_norms(graph.graph, frozen)
    if layouts_are_free:
        lay_out_convolutions(graph.graph, frozen)
    constant = _constant_nodes(graph.graph, frozen)
    border = [
        node
        for node in graph.graph.nodes
        if node in constant
        and constant[node].computes
        and any(user not in constant for user in node.users)
        and isinstance(node.meta["val"], BUFFERS)
    ]
    if not border:
        return None
    prepare, positions = _prepared(graph, border)
    size = 0
    last = placeholders[-1]
    for node in border:
        with graph.graph.inserting_after(last):
            last = graph.graph.placeholder(f"frozen_{node.name}")
        last.meta = dict(node.meta)
        for user in [user for user in node.users if user not in constant]:
            user.replace_input_with(node, last)
        size += _bytes(node if isinstance(node.meta["val"], torch.Tensor) else node.args[0])
    remove_dead_code(graph.graph)
    return FrozenGraph(
        graph=replace(graph, constants=constants_of(graph.graph, graph.constants)),
        prepare=prepare,
        positions=positions,
        names=tuple(weights[position] for position in positions),
        bytes=size,
    )


# What is constant ---------------------------------------------------------------------------------


@record
class _Constant:
    """A node that depends on frozen inputs, and on nothing that changes."""

    computes: bool
    """Whether it is more than a view of one of them."""

    bytes: int
    """The size of the inputs that it is computed of."""


def _constant_nodes(graph: fx.Graph, frozen: Collection[fx.Node]) -> dict[fx.Node, _Constant]:
    """The nodes that depend on frozen inputs alone: a result of the graph is none, since it has to
    have memory of its own. What depends on no input at all is constant where a constant reads it,
    and computed by kernels where others do.
    """
    results = graph.output_node().all_input_nodes
    returned = {*results, *map(memory_owner, results), *map(shown_memory, results)}
    constant: dict[fx.Node, _Constant] = {
        node: _Constant(computes=False, bytes=_bytes(node)) for node in frozen
    }
    made: set[fx.Node] = set()
    """The nodes that depend on no input."""
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node in returned or not _may_be_computed_before(node):
            continue
        if all(argument in made for argument in inputs):
            made.add(node)
            continue
        if not all(argument in constant or argument in made for argument in inputs):
            continue
        parts = [constant[argument] for argument in inputs if argument in constant]
        size = sum(part.bytes for part in parts)
        if _bytes(node) <= max(LARGEST * size, SMALL):
            computes = not _is_view(node) or any(part.computes for part in parts)
            constant[node] = _Constant(computes=computes, bytes=size)
    return constant


def _may_be_computed_before(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return True
    target: Any = node.target
    if node.op != "call_function" or not is_repeatable(target):
        return False
    return isinstance(target, OpOverload) or target in (operator.getitem, *_OURS)


def _is_view(node: fx.Node) -> bool:
    target: Any = node.target
    return isinstance(target, OpOverload) and is_view_operator(target)


def _bytes(node: fx.Node) -> int:
    """The size of a node's tensors."""
    values = node.meta.get("val")
    return sum(map(byte_count, values if isinstance(values, (tuple, list)) else [values]))


def _prepared(graph: AtenGraph, border: Sequence[fx.Node]) -> tuple[AtenGraph, tuple[int, ...]]:
    """The graph that computes the nodes of the border, and the inputs that it takes."""
    needed = ancestors(border)
    read = {place: node for place, node in enumerate(graph.placeholders) if node in needed}
    nodes = [node for node in graph.graph.nodes if node in needed]
    prepared = subgraph(nodes, tuple(read.values()), border)
    constants = constants_of(prepared, graph.constants)
    return AtenGraph(graph=prepared, constants=constants), tuple(read)


# Batch norms --------------------------------------------------------------------------------------


def fold_batch_norms(graph: fx.Graph, frozen: Collection[fx.Node]) -> int:
    """Fold batch norms with frozen statistics into the convolutions that they follow. Gives how
    many were folded.
    """
    folded = 0
    for norm in list(graph.nodes):
        if norm.target is not aten._native_batch_norm_legit_no_training.default:
            continue
        convolution, *parameters, _momentum, epsilon = norm.args
        if not _folds(norm, convolution, parameters, frozen):
            continue
        weight, bias = convolution.args[1:3]
        scale, shift, mean, variance = parameters
        with graph.inserting_before(convolution):
            new_weight = graph.call_function(folded_weight, (weight, scale, variance, epsilon))
            new_bias = graph.call_function(
                folded_bias, (weight, bias, scale, shift, mean, variance, epsilon)
            )
        fake = weight.meta["val"]
        new_weight.meta = {**weight.meta, "val": torch.empty_like(fake)}
        new_bias.meta = {**weight.meta, "val": fake.new_empty(fake.shape[0])}
        convolution.args = (convolution.args[0], new_weight, new_bias, *convolution.args[3:])
        for item in list(norm.users):
            item.replace_all_uses_with(convolution)
            graph.erase_node(item)
        graph.erase_node(norm)
        folded += 1
    return folded


def _folds(
    norm: fx.Node, convolution: Any, parameters: Sequence[Any], frozen: Collection[fx.Node]
) -> bool:
    """Whether a batch norm of single or double precision can be part of a convolution's weight."""
    if not isinstance(convolution, fx.Node) or len(convolution.users) != 1:
        return False
    if convolution.target is not aten.convolution.default or convolution.args[6]:
        return False
    if any(item.target is not operator.getitem or item.args[1] != 0 for item in norm.users):
        return False
    operands = [*convolution.args[1:3], *parameters]
    if not all(operand is None or operand in frozen for operand in operands):
        return False
    tensors = [convolution.args[0], *(operand for operand in operands if operand is not None)]
    return {node.meta["val"].dtype for node in tensors} in ({torch.float32}, {torch.float64})


def folded_weight(
    weight: torch.Tensor, scale: torch.Tensor | None, variance: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """The weight of a convolution that does what a batch norm behind it would."""
    factor = _factor(scale, variance, epsilon).reshape(-1, *[1] * (weight.dim() - 1))
    return (weight.double() * factor).to(weight.dtype)


def folded_bias(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    scale: torch.Tensor | None,
    shift: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Its bias, of the weight's type."""
    centre = -mean.double() if bias is None else bias.double() - mean.double()
    moved = centre * _factor(scale, variance, epsilon)
    return (moved if shift is None else moved + shift.double()).to(weight.dtype)


def _factor(scale: torch.Tensor | None, variance: torch.Tensor, epsilon: float) -> torch.Tensor:
    root = torch.rsqrt(variance.double() + epsilon)
    return root if scale is None else root * scale.double()


# Layouts ------------------------------------------------------------------------------------------


def lay_out_convolutions(graph: fx.Graph, frozen: Collection[fx.Node]) -> int:
    """Lay the weights of convolutions of images out as the library's fastest kernels want them;
    `lower/convolution.py` then gives other operands channels that lie together. Gives how many.

    On a CPU weights are packed as oneDNN does at each call otherwise, in single precision. Its
    activations are left to kernels: its ReLU makes zeros of NaN.
    """
    changed = 0
    for convolution in graph.find_nodes(op="call_function", target=aten.convolution.default):
        weight: Any = convolution.args[1]
        fake = weight.meta["val"]
        if weight not in frozen and weight.target is not folded_weight:
            continue
        if fake.dim() != 4 or convolution.args[6]:
            continue
        if fake.is_cuda and fake.dtype in (torch.float16, torch.bfloat16):
            layout = torch.channels_last
            with graph.inserting_before(convolution):
                moved = graph.call_function(
                    aten.clone.default, (weight,), {"memory_format": layout}
                )
            moved.meta = {**weight.meta, "val": fake.clone(memory_format=layout)}
            convolution.args = (convolution.args[0], moved, *convolution.args[2:])
        elif fake.device.type == "cpu" and fake.dtype is torch.float32:
            if not has_onednn_kernels(fake.dtype):
                continue
            _pack(graph, convolution)
        else:
            continue
        changed += 1
    return changed


def _pack(graph: fx.Graph, convolution: fx.Node) -> None:
    x, weight, bias, stride, padding, dilation, _, _, groups = convolution.args
    shape = x.meta["val"].shape  # type: ignore[union-attr]
    size = list(shape) if all(isinstance(length, int) for length in shape) else None
    with graph.inserting_before(convolution):
        packed = graph.call_function(
            pack_convolution_weight, (weight, padding, stride, dilation, groups, size)
        )
    packed.meta = {**weight.meta, "val": Opaque()}  # type: ignore[union-attr]
    assert PACKED_CONVOLUTION is not None
    convolution.target = PACKED_CONVOLUTION
    convolution.args = (x, packed, bias, padding, stride, dilation, groups, "none", [], "")


_OURS: Final = (folded_weight, folded_bias, pack_convolution_weight)
"""Functions that stand in graphs until they are cut."""
