"""Traces a program and its gradient together: one graph of forward and backward operators.

    y = torch.sin(x) (captured)   ->   x, tangent0: inputs
                                       sin = aten.sin(x)
                                       cos = aten.cos(x)
                                       mul = aten.mul(tangent0, cos)
                                       return (sin, mul)

The forward half runs with gradients on, so that torch's own autograd engine notes the history of
the fakes; the engine then runs backward from the outputs, and the recorder notes what it calls.
Every rule of eager's autograd thus holds here: no-grad regions, detached values, in-place
operators, custom autograd functions, hooks on tensors inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fusewright import torch_compat
from fusewright.aot.eager_saves import EagerSave, eager_saves, saved_by_nodes
from fusewright.aot.graph import TracedProgram
from fusewright.aot.histories import Reach, Reaching, reaching_outputs, separate, together
from fusewright.aot.math_bits import compute_math_bits
from fusewright.aot.opaque_gradients import watch_formulas
from fusewright.aot.results import ResultPlan, finish_outputs, plan_results
from fusewright.aot.shared_memory import (
    Relatives,
    counts_from_beginning,
    join_histories,
    with_history,
)
from fusewright.aot.specs import FromGraph, FromInput, GeometryChange, ResultSpec, StorageBase
from fusewright.aot.tracer import (
    Recorder,
    located_errors,
    record_inputs,
    run_module,
    tensor_indices,
    traced_program,
)
from fusewright.errors import RaisesInBackward, Unsupported
from fusewright.fake import FakeMode
from fusewright.formulas import Formula
from fusewright.records import field, record, replace
from fusewright.user_kernels import noting_launches

aten = torch.ops.aten


@record
class OutputHistory:
    """Outputs that have one history in autograd, and their gradients."""

    tangents: tuple[int, ...]
    """The numbers of the tangents of these outputs."""

    inputs: tuple[int, ...]
    """Indices of the inputs that the history leads to."""

    gradients: tuple[FromInput | FromGraph | None, ...]
    """By input of the graph: its gradient, one that the backward half returns, or a tangent as it
    is (`FromInput`, counted among all tangents); None where there is none.
    """

    is_freed: bool
    """Whether a second backward fails, since the first frees what it needs."""


@record(kw_only=True, slots=False)
class JointGraph:
    """A functional graph of ATen operators that computes results and gradients.

    Its placeholders are the program's inputs, the inputs that `bases` make, and one tangent (the
    gradient of the loss with respect to an output) for each output that has a gradient. It returns
    one flat tuple: the outputs of the forward half, then gradients.
    """

    graph: fx.Graph
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    output_count: int
    """The number of returned values that are the forward half's."""

    tangents: tuple[int, ...]
    """By tangent, in order: the position of its output."""

    histories: tuple[OutputHistory, ...]
    """Each a part of the backward half that can be run, and freed, by itself."""

    mutated_inputs: tuple[int, ...]
    """Indices of the inputs written to; their new values are the first outputs."""

    tracked_mutations: frozenset[int]
    """Indices of the inputs written to with gradients on: the copy back is part of their history.
    """

    unnoticed_inputs: frozenset[int] = frozenset()
    """Indices of the inputs written to without autograd noticing."""

    interior_inputs: frozenset[int] = frozenset()
    """Indices of the inputs that have an autograd history already."""

    eager_saves: tuple[EagerSave, ...] = ()
    """The inputs and results that eager's backward checks."""

    begins_with_gradients: bool = True
    """Whether gradients are on where the program begins; it may turn them on itself."""

    bases: tuple[StorageBase, ...] = ()
    geometry_changes: tuple[GeometryChange, ...] = ()
    inputs_with_bits: tuple[int, ...] = ()
    results: tuple[ResultSpec, ...] = ()
    structure: Any = None

    @property
    def written_inputs(self) -> set[fx.Node]:
        """The placeholders of inputs whose memory is another after the call."""
        placeholders = list(self.graph.find_nodes(op="placeholder"))
        inputs = placeholders[: len(placeholders) - len(self.tangents)]
        bases = inputs[len(inputs) - len(self.bases) :]
        changed = [change.index for change in self.geometry_changes]  # it counts as a write
        return {*bases, *(inputs[index] for index in (*self.mutated_inputs, *changed))}

    @property
    def tangent_nodes(self) -> list[fx.Node]:
        """The placeholders of the tangents."""
        placeholders = list(self.graph.find_nodes(op="placeholder"))
        return placeholders[len(placeholders) - len(self.tangents) :]

    @property
    def gradients(self) -> tuple[FromInput | FromGraph | None, ...]:
        """By input of the graph: its gradient, where there are no several histories."""
        if self.histories:
            (history,) = self.histories
            return history.gradients
        return (None,) * (len(self.graph.find_nodes(op="placeholder")) - len(self.tangents))

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Nodes of the outputs and of the gradients, in order."""
        return tuple(self.graph.output_node().args[0])  # type: ignore[arg-type]


def trace_joint(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    interior: Sequence[bool],
    fakes: FakeMode,
    decompositions: Mapping[Any, Formula],
    joined: Relatives = (),
    *,
    apart: bool = False,
    verify: bool = False,
) -> JointGraph:
    """Trace `module` on `inputs` (fakes; those that require grad are differentiated) and its
    gradient.

    `interior`: which inputs have an autograd history already, so that the program may write to
    them. `joined`: inputs that are to share a history, each group that of a further input, which
    takes their gradients. `apart`: outputs whose histories eager frees apart have gradients of
    their own. Raises: `Unsupported`, for what cannot be traced or differentiated.
    """
    recorder = Recorder(fakes, decompositions, verify=verify)
    recorder.follows_autograd = True
    with_bits = record_inputs(recorder, module, inputs)
    values = [
        with_history(recorder, value) if inside else value
        for value, inside in zip(inputs, interior, strict=True)
    ]
    bases = []
    holders = list(range(len(inputs)))
    whole = counts_from_beginning(module)
    alone = _views_alone(inputs, interior, joined) if whole else ()
    for members in (*joined, *alone):
        spec, base = join_histories(recorder, values, members, whole=whole)
        holders = [
            len(values) if index in members else holder for index, holder in enumerate(holders)
        ]
        holders.append(len(values))
        values.append(base)
        bases.append(spec)
    with recorder, torch.enable_grad():  # reading the edge of a leaf calls `view_as`
        edges = [get_gradient_edge(value) if _is_tracked(value) else None for value in values]
    recorder.input_indices |= tensor_indices(values[: len(inputs)])
    result = run_module(recorder, module, values[: len(inputs)])
    _refuse_tracked_constants(recorder)
    program = traced_program(recorder, result, with_bits)
    with recorder, torch.enable_grad():
        plan = plan_results(program, values)
        tracked = frozenset(
            index
            for index in plan.mutated
            if not _has_edge(values[holders[index]], edges[holders[index]])
        )
    tangents = [
        position
        for position, value in enumerate(plan.values)
        if _is_tracked(value)
        and (position >= len(plan.mutated) or plan.mutated[position] in tracked)
    ]
    outputs = [plan.values[position] for position in tangents]
    with recorder, torch.enable_grad():
        reaching = reaching_outputs(outputs)
    saved = saved_by_nodes(reaching)
    wanted = [edge if holders[index] == index else None for index, edge in enumerate(edges)]
    likes = [*inputs, *values[len(inputs) :]]
    histories = []
    for reach, gradients in _trace_backward(recorder, outputs, reaching, wanted, apart=apart):
        for index in with_bits:
            gradients[index] = _of_memory(recorder, gradients[index], inputs[index])
        specs = _plan_gradients(recorder, plan, gradients, likes, len(tangents))
        histories.append(OutputHistory(reach.outputs, reach.inputs, specs, reach.is_freed))
    program.has_mutations |= recorder.has_mutations
    saves = tuple(eager_saves(saved, values[: len(inputs)], program.values))
    graph = _finished(program, plan, tangents, histories, tracked, bases, fakes)
    inside = frozenset(index for index, has_history in enumerate(interior) if has_history)
    return replace(graph, interior_inputs=inside, eager_saves=saves)


def _views_alone(inputs: Sequence[Any], interior: Sequence[bool], joined: Relatives) -> Relatives:
    """The inputs with a history that do not begin where their storage does, each a group of its
    own: the engine may apply the `as_strided` that made a view to the gradient of the whole.
    """
    joined_already = {index for members in joined for index in members}
    inside = [index for index, has_history in enumerate(interior) if has_history]
    begins = {
        index: inputs[index].storage_offset() for index in inside if index not in joined_already
    }
    return tuple((index,) for index, begin in begins.items() if begin != 0)


def _is_tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _has_edge(value: Any, edge: GradientEdge | None) -> bool:
    """Whether `value` still has the history that begins at `edge`; None: none."""
    if not _is_tracked(value) or edge is None:
        return edge is None and not _is_tracked(value)
    return get_gradient_edge(value)[:2] == edge[:2]


def _refuse_tracked_constants(recorder: Recorder) -> None:
    """A parameter that the graph holds on to, instead of taking it, would get no gradient."""
    for name, value in recorder.constants.items():
        if value.requires_grad:
            (node,) = recorder.graph.find_nodes(op="get_attr", target=name)
            raise Unsupported(
                "the graph holds a tensor that requires grad, which gets no gradient",
                node.meta.get("location"),
                "make it an input of the graph, as `aot_module` does with parameters",
            )


def _trace_backward(
    recorder: Recorder,
    outputs: Sequence[torch.Tensor],
    reaching: Reaching,
    edges: Sequence[GradientEdge | None],
    *,
    apart: bool,
) -> Iterator[tuple[Reach, list[Any]]]:
    """Run the engine from the tracked `outputs` to `edges`, history by history: which outputs and
    inputs it joins, and a gradient, or None, for each edge.
    """
    fakes = []
    with torch.no_grad():
        for index, output in enumerate(outputs):
            node = recorder.graph.placeholder(f"tangent{index}")
            node.meta["val"] = _dense_like(output, recorder.fakes)
            recorder.bind(node.meta["val"], node)
            fakes.append(node.meta["val"])
    wanted = [edge for edge in edges if edge is not None]
    if not outputs or not wanted:
        return
    watch_formulas(recorder, reaching)
    reaches = separate(reaching, len(outputs), edges)
    for reach in reaches if apart else [together(reaches)]:
        results = [outputs[number] for number in reach.outputs]
        with (
            recorder,
            torch.autograd.set_multithreading_enabled(False),
            located_errors(recorder, "a gradient"),
            noting_launches(),
            _telling_what_eager_raises(recorder),
        ):
            own = [fakes[number] for number in reach.outputs]
            gradients = iter(torch_compat.autograd.gradients(results, own, wanted))
        recorder.origin = {}
        yield reach, [None if edge is None else next(gradients) for edge in edges]


@contextmanager
def _telling_what_eager_raises(recorder: Recorder) -> Iterator[None]:
    """Let exceptions that eager's backward raises as well be told from others."""
    recorder.fakes.refusal = None
    try:
        yield
    except Exception as error:
        if recorder.fakes.refusal is None and not torch_compat.autograd.is_stale_history(error):
            raise
        location = recorder.origin.get("location")
        text = f"backward raises {type(error).__name__}: {error}"
        raise RaisesInBackward(text, location) from error


def _of_memory(recorder: Recorder, gradient: Any, value: torch.Tensor) -> Any:
    """The gradient of what is in the memory of `value`, from the gradient of `value`, whose
    conjugate or negative bit is set.
    """
    if gradient is not None and value.is_conj():
        gradient = recorder.record(aten._conj.default, (gradient,), {})
    if gradient is not None and value.is_neg():
        gradient = recorder.record(aten._neg_view.default, (gradient,), {})
    return gradient


def _dense_like(value: torch.Tensor, fakes: FakeMode) -> Any:
    """A fake like `value`, with its strides where that fills its memory, else dense ones."""
    return fakes.dispatch(aten.empty_like.default, (value,), {})


def _plan_gradients(
    recorder: Recorder,
    plan: ResultPlan,
    gradients: Sequence[Any],
    inputs: Sequence[Any],
    tangent_count: int,
) -> tuple[FromInput | FromGraph | None, ...]:
    """Add the gradients to the outputs of `plan`; gives where each input's gradient is found."""
    placeholders = list(recorder.graph.find_nodes(op="placeholder"))
    tangents = placeholders[len(placeholders) - tangent_count :]
    positions: dict[tuple[fx.Node, Any], FromGraph] = {}
    specs: list[FromInput | FromGraph | None] = []
    for gradient, value in zip(gradients, inputs, strict=True):
        if gradient is None:
            specs.append(None)
            continue
        node = recorder.argument(gradient)
        if node in tangents:
            specs.append(FromInput(tangents.index(node)))
            continue
        like = _dense_like(value, recorder.fakes)
        key = (node, tuple(map(str, like.stride())))
        if key not in positions:
            positions[key] = FromGraph(len(plan.nodes) - plan.output_count)
            plan.nodes.append(node)
            plan.values.append(like)
        specs.append(positions[key])
    return tuple(specs)


def _finished(
    program: TracedProgram,
    plan: ResultPlan,
    tangents: Sequence[int],
    histories: Sequence[OutputHistory],
    tracked: frozenset[int],
    bases: Sequence[StorageBase],
    fakes: FakeMode,
) -> JointGraph:
    likes = [node.meta["val"] for node in plan.nodes[: plan.output_count]]
    likes += plan.values[plan.output_count :]
    outputs, more_bases = finish_outputs(program, plan, likes, fakes)
    program.graph.output(tuple(outputs))
    compute_math_bits(program.graph, fakes)
    absent = (None,) * len(more_bases)
    return JointGraph(
        begins_with_gradients=torch.is_grad_enabled(),
        graph=program.graph,
        constants=program.constants,
        output_count=plan.output_count,
        tangents=tuple(tangents),
        histories=tuple(
            replace(history, gradients=(*history.gradients, *absent)) for history in histories
        ),
        mutated_inputs=plan.mutated,
        unnoticed_inputs=plan.unnoticed,
        tracked_mutations=tracked,
        bases=(*bases, *more_bases),
        geometry_changes=program.geometry_changes,
        inputs_with_bits=program.inputs_with_bits,
        results=plan.results,
        structure=program.structure,
    )
