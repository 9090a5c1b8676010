"""The entrances of this floor: a captured graph to a functional ATen graph, for inference or with
its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.clean_up import clean_up
from fusewright.aot.graph import AtenGraph
from fusewright.aot.joint import JointGraph, trace_joint
from fusewright.aot.results import finish_graph
from fusewright.aot.shared_memory import Relatives, relatives
from fusewright.aot.tracer import trace
from fusewright.context import CompileContext
from fusewright.errors import Unsupported, UnsupportedOperator
from fusewright.fake import FakeMode, FakeTensor
from fusewright.formulas import Formula, When, formulas
from fusewright.records import replace
from fusewright.symbolic.nodes import SYMBOLIC

COMPILER_DECOMPOSITIONS: Mapping[Any, Formula] = formulas(When.COMPILED)
"""Decompositions for this compiler: of operators for which its lowering has no rules, or worse."""


def trace_inference(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    context: CompileContext,
    decompositions: Mapping[Any, Formula] = COMPILER_DECOMPOSITIONS,
) -> AtenGraph:
    """The functional ATen graph that `module` amounts to on inputs like `example_inputs`, without
    gradients.

    `example_inputs`: one for each placeholder; real tensors, or where sizes are symbolic
    `FakeTensor`s of one `FakeMode`; numbers. Raises `Unsupported`, naming the user's line, for what
    cannot be traced.
    """
    fakes, inputs = _fake_inputs(example_inputs)
    with context.stage("trace"):
        chosen = _chosen(decompositions, context)
        program = trace(module, inputs, fakes, chosen, verify=context.options.verify)
    with context.stage("functionalize"):
        graph = finish_graph(program, inputs, fakes)
    with context.stage("clean up"):
        return replace(graph, constants=clean_up(graph, verify=context.options.verify))


def trace_training(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    context: CompileContext,
    decompositions: Mapping[Any, Formula] = COMPILER_DECOMPOSITIONS,
) -> JointGraph:
    """The functional ATen graph of `module` and of its gradient with respect to those of
    `example_inputs` that require grad.

    `example_inputs`: as for `trace_inference`. Raises `Unsupported`, naming the user's line, for
    what cannot be traced or differentiated.
    """
    interior = [
        isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf
        for value in example_inputs
    ]
    without_hooks = torch_compat.autograd.without_saved_tensor_hooks()
    # The search for NaN reads values, which fakes lack; compiled gradients are searched when they
    # are there, as those of any other node.
    without_search = torch.autograd.set_detect_anomaly(False)
    with context.stage("trace"), without_hooks, without_search:
        chosen = _chosen(decompositions, context)
        verify = context.options.verify
        graph = _trace_joint(module, example_inputs, interior, chosen, verify=verify)
        written = _written_relatives(graph, example_inputs)
        if written:  # they lie in one history; that is known only now, and rare
            graph = _trace_joint(module, example_inputs, interior, chosen, written, verify=verify)
    with context.stage("clean up"):
        return replace(graph, constants=clean_up(graph, verify=context.options.verify))


def _chosen(
    decompositions: Mapping[Any, Formula], context: CompileContext
) -> Mapping[Any, Formula]:
    """`decompositions`, and those of draws where these need not be eager's."""
    if context.options.eager_random:
        return decompositions
    return {**decompositions, **formulas(When.FREE_DRAWS)}


def _trace_joint(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    interior: Sequence[bool],
    decompositions: Mapping[Any, Formula],
    joined: Relatives = (),
    *,
    verify: bool,
) -> JointGraph:
    fakes, inputs = _fake_inputs(example_inputs)
    return trace_joint(
        module, inputs, interior, fakes, decompositions, joined, apart=True, verify=verify
    )


def _written_relatives(graph: JointGraph, example_inputs: Sequence[Any]) -> Relatives:
    """The groups of inputs that share a history, one of which is written to."""
    written = set(graph.mutated_inputs)
    return tuple(group for group in relatives(example_inputs) if not written.isdisjoint(group))


def needs_gradients(module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether a call with these inputs has results that eager would give a history."""
    tracked = any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )
    return tracked and _runs_with_gradients(module.graph)


def _runs_with_gradients(graph: fx.Graph) -> bool:
    """Whether an operator of a captured graph, called in the present grad mode, has gradients."""
    enabled = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.target is torch_compat.set_grad_enabled:
            enabled = bool(node.args[0])
        elif enabled and node.op not in ("placeholder", "get_attr", "output"):
            return True
    return False


def _fake_inputs(example_inputs: Sequence[Any]) -> tuple[FakeMode, list[Any]]:
    """The mode to trace in and a fake for each example, no two the same."""
    for value in example_inputs:
        if isinstance(value, FakeTensor):
            value.fake_mode.allows_unknown_sizes = True
            return value.fake_mode, list(example_inputs)
    symbolic = (value.node for value in example_inputs if isinstance(value, SYMBOLIC))
    mode = FakeMode(next((node.facts for node in symbolic), None), allows_unknown_sizes=True)
    try:
        return mode, [
            _fake_input(mode, value) if isinstance(value, torch.Tensor) else value
            for value in example_inputs
        ]
    except UnsupportedOperator as error:
        raise Unsupported(f"an input of the graph: {error}") from error


def _fake_input(mode: FakeMode, value: torch.Tensor) -> FakeTensor:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise Unsupported(
            f"an input of the graph is a {type(value).__name__}, a subclass of torch.Tensor, whose "
            "operators may do anything",
            remedy="compile functions of the plain tensors that it is made of",
        )
    return mode.fake_distinct(value)


def has_symbols(value: Any) -> bool:
    """Whether `value` is a symbolic number or a tensor with one among its sizes, strides and
    offset.
    """
    if not isinstance(value, torch.Tensor):
        return isinstance(value, SYMBOLIC)
    if value.layout is not torch.strided:
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return any(isinstance(number, SYMBOLIC) for number in numbers)
