"""A compiled forward and backward graph at run time, joined by one `torch.autograd.Function`.

The forward call hands to autograd what it has to keep: tensors through `save_for_backward`, which
checks that nobody wrote to them meanwhile, frees them after backward, and heeds `retain_graph` and
saved-tensor hooks. Gradients that eager execution would not compute are None.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from fusewright import torch_compat
from fusewright.aot.absent_gradients import backward_without
from fusewright.aot.backward_parts import BackwardPart, backward_parts
from fusewright.aot.graph import AtenGraph
from fusewright.aot.held_memory import held, released
from fusewright.aot.partition import Partition
from fusewright.aot.runtime import Compiled, arranged, in_recorded_types, returns_results
from fusewright.aot.specs import FromGraph, FromInput, Leaf
from fusewright.errors import FusewrightError
from fusewright.native import disable
from fusewright.records import record

NO_SECOND_DERIVATIVE = (
    "fusewright does not compile second derivatives: these gradients were computed by compiled "
    "code, with create_graph=True, and cannot be differentiated again; compile the function that "
    "asks for these gradients (a gradient penalty, say) with the model inside, or run the model "
    "uncompiled there"
)

BATCHED_GRADIENTS = (
    "fusewright does not compile backward for batches of gradients (is_grads_batched=True, vmap "
    "over a backward): run the model uncompiled where you need that, or go over the batch in a loop"
)


@record
class Layout:
    """What the backward graph was traced for: how a tangent lies in memory."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> Layout:
        """The layout of `value`."""
        return cls(tuple(value.shape), value.stride(), value.dtype, value.device)

    @classmethod
    def of_gradient(cls, value: torch.Tensor) -> Layout:
        """The layout that the gradient of `value` has: for a contiguous one, its own."""
        return cls.of(value if value.is_contiguous() else torch.empty_like(value))

    def numbers(self) -> tuple[int, ...]:
        """Sizes and strides."""
        return (*self.size, *self.stride)

    def empty(self) -> torch.Tensor:
        """Memory laid out so, not filled."""
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


@record
class Backward:
    """A compiled backward graph, for calls of which certain results have a gradient."""

    run: Compiled
    tangents: tuple[int, ...]
    """The numbers of the tangents that it takes after the saved values."""

    gradients: tuple[int | None, ...]
    """By input: the place of its gradient among what it gives and, behind that, the tangents; None
    where the gradient is absent.
    """

    saved_tensors_read: frozenset[int]
    """The numbers, among the saved tensors, of those that it reads."""


CompileBackward = Callable[[AtenGraph], Compiled]
"""Gives the function that computes a backward graph."""


class ConnectedHistory(Protocol):
    """A history of a compiled graph's outputs, as a call gives it to them."""

    @property
    def tangents(self) -> tuple[int, ...]:
        """The positions of the outputs that have it."""

    def connected(self, inputs: list[Any], outputs: list[Any]) -> Sequence[torch.Tensor]:
        """The outputs at `tangents`, with a history that leads to the inputs."""


InSegments = Callable[[], Sequence[ConnectedHistory] | None]
"""Gives the histories in the form that a call is to have, if that is not the usual one."""


class TrainingPlan:
    """How to call the compiled graphs of a `Partition`.

    `forward` computes the forward graph. `compile_backward` is called at the first backward, so
    that calls that are never differentiated (validation with gradients left on) do not pay for it,
    and again where other results than before have a gradient. `measured` is given the bytes that
    the first call saves.
    """

    def __init__(
        self,
        partition: Partition,
        forward: Compiled,
        compile_backward: CompileBackward,
        measured: Callable[[int], None] | None,
        in_segments: InSegments | None,
    ) -> None:
        joint = partition.joint
        self.in_segments = in_segments
        self.forward = in_recorded_types(forward)
        self.output_count = joint.output_count
        self.measured = measured
        self.histories = [
            HistoryPlan(part, disable(compile_backward), self.output_count)
            for part in backward_parts(partition)
        ]

    def outputs(self, inputs: list[Any]) -> list[Any]:
        """What the forward graph computes, without a history."""
        set_grad_enabled = torch_compat.set_grad_enabled
        enabled = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            outputs = list(self.forward(inputs))
            for position in range(self.output_count):  # a view here could not be written to
                outputs[position] = torch_compat.without_base(outputs[position])
        finally:
            set_grad_enabled(enabled)
        return outputs

    def call(self, inputs: list[Any]) -> tuple[Any, ...]:
        """The outputs, with their histories."""
        outputs = self.outputs(list(inputs))
        histories: Sequence[ConnectedHistory] = self.histories
        if self.in_segments is not None:
            histories = self.in_segments() or histories
        for history in histories:
            results = history.connected(inputs, outputs)
            for position, result in zip(history.tangents, results, strict=True):
                outputs[position] = result
        if self.measured is not None:
            saved = [one for history in self.histories for one in history.saved(inputs, outputs)]
            self.measured(_memory_beside(saved, inputs))
            self.measured = None
        return tuple(outputs[: self.output_count])

    def note_versions(
        self, outputs: Sequence[Any], inputs: Mapping[int, Any], results: Sequence[Any]
    ) -> None:
        """Let the backward of a call, which is done, know the versions of what eager would save."""
        for history in self.histories:
            node: Any = outputs[history.tangents[0]].grad_fn
            if node is None:  # the call was made without gradients
                return
            node.versions = [
                torch_compat.autograd.SavedVersion((inputs if is_input else results)[number])
                for is_input, number in history.noted
            ]


class HistoryPlan:
    """One of the histories of a compiled graph's outputs, and what computes its gradients."""

    def __init__(
        self, part: BackwardPart, compile_backward: CompileBackward, output_count: int
    ) -> None:
        self.inputs = part.inputs
        """Indices of the inputs that it leads to."""

        self.gradients = part.gradients
        """By input: see `BackwardPart.gradients`."""

        self.tangents = part.outputs
        """By tangent: the position of its output."""

        self.saved_tensors, self.saved_numbers = _by_kind(part)
        self.number_positions = tuple(
            position for position, node in enumerate(part.saved_nodes) if _is_number(node)
        )
        self.layouts = tuple(Layout.of(node.meta["val"]) for node in part.tangent_nodes)
        self.is_dynamic = any(
            isinstance(number, torch.SymInt) for one in self.layouts for number in one.numbers()
        )
        self.can_be_repeated = not (part.is_freed or self.saved_tensors)
        """Whether nothing fails where backward runs twice."""

        self.eager_saves = part.eager_saves
        """What eager saves and this does not."""

        self.noted = _places(save.place for save in part.eager_saves)
        """Where those are found, in the program's inputs or results."""

        self._of_others = part.outputs_of_others
        self._holders = _holders(part, output_count)
        self._whole_backward = part.graph
        self._saved_count = len(part.saved)
        self._compile_backward = compile_backward
        self._backwards: dict[frozenset[int], Backward] = {}
        self._lock = threading.Lock()

    def connected(self, inputs: list[Any], outputs: list[Any]) -> Sequence[torch.Tensor]:
        """The outputs at `tangents`, with a history that leads to the inputs."""
        reached = [inputs[index] for index in self.inputs]
        results: Sequence[torch.Tensor] = torch_compat.autograd.apply_function(
            CompiledFunction, self, inputs, outputs, *reached
        )
        return results

    def saved(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors to save. Another history's outputs are saved without it, which may in turn
        save outputs of this one. Of what holds memory the bytes are saved, so that hooks on saved
        tensors see them: a copy of a tensor without elements holds nothing.
        """
        tensors = _found(self.saved_tensors, inputs, outputs)
        for number in self._of_others:
            tensors[number] = tensors[number].detach()
        for number in self._holders:
            tensors[number] = released(tensors[number], torch.uint8)
        return tensors

    def holder_sizes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[torch.Size]:
        """The sizes of the tensors that hold memory, of which a call saves the bytes."""
        if not self._holders:
            return []
        tensors = _found(self.saved_tensors, inputs, outputs)
        return [tensors[number].shape for number in self._holders]

    def hold_again(self, saved: list[torch.Tensor], sizes: Sequence[torch.Size]) -> None:
        """Put the tensors that hold memory in the places of the bytes that were saved of them."""
        for (number, dtype), size in zip(self._holders.items(), sizes, strict=True):
            memory = saved[number]
            if memory.untyped_storage().nbytes() != memory.nbytes:  # a hook gave a part of a tensor
                memory = memory.clone()
            saved[number] = held(memory, size, dtype)

    def backward(self, absent: frozenset[int]) -> Backward:
        """The backward graph for calls in which the tangents `absent`, by number, are not there,
        compiled when first asked for. Backward may run in compiled code.
        """
        known = self._backwards.get(absent)
        if known is None:
            with self._lock:
                known = self._backwards.get(absent)
                if known is None:
                    known = self._backwards[absent] = self._compiled(absent)
        return known

    def _compiled(self, absent: frozenset[int]) -> Backward:
        partial = backward_without(self._whole_backward, self._saved_count, absent)
        saved = partial.graph.placeholders[: self._saved_count]
        tensors = [node for node in saved if not _is_number(node)]
        read = frozenset(number for number, node in enumerate(tensors) if node.users)
        run = disable(in_recorded_types(self._compile_backward(partial.graph)))
        found = [
            *map(FromGraph, partial.outputs),
            *(None if number in absent else FromInput(number) for number in partial.tangents),
        ]
        places = {one: place for place, one in enumerate(found) if one is not None}
        gradients = tuple(None if one is None else places.get(one) for one in self.gradients)
        return Backward(run, partial.tangents, gradients, read)


def _is_number(node: Any) -> bool:
    return not isinstance(node.meta["val"], torch.Tensor)


Places = tuple[tuple[bool, int], ...]
"""Where values of a call are: whether among its inputs, and at which number."""


def _by_kind(part: BackwardPart) -> tuple[Places, Places]:
    """Where saved tensors, and where saved sizes, are found."""
    pairs = list(zip(part.saved, part.saved_nodes, strict=True))
    tensors = _places(place for place, node in pairs if not _is_number(node))
    return tensors, _places(place for place, node in pairs if _is_number(node))


def _holders(part: BackwardPart, output_count: int) -> dict[int, torch.dtype]:
    """By number among the saved tensors, those without elements that the graph computes for its
    backward alone, with their types: they may hold memory (`held_memory`).
    """
    places = list(zip(part.saved, part.saved_nodes, strict=True))
    tensors = [(place, node.meta["val"]) for place, node in places if not _is_number(node)]
    return {
        number: value.dtype
        for number, (place, value) in enumerate(tensors)
        if isinstance(place, FromGraph)
        and place.position >= output_count
        and any(isinstance(size, int) and size == 0 for size in value.shape)
    }


def _places(specs: Iterable[FromInput | FromGraph | Leaf]) -> Places:
    return tuple((isinstance(spec, FromInput), _number_of(spec)) for spec in specs)


def _number_of(spec: FromInput | FromGraph | Leaf) -> int:
    return spec.position if isinstance(spec, FromGraph) else spec.index


class CompiledFunction(torch.autograd.Function):
    """One call of a compiled graph in one of the histories of its outputs."""

    @staticmethod
    def forward(
        ctx: Any, history: HistoryPlan, inputs: list[Any], outputs: list[Any], *reached: Any
    ) -> Any:
        save_for_backward(ctx, history, inputs, outputs)
        ctx.layouts = history.layouts
        if history.is_dynamic:
            ctx.layouts = [Layout.of_gradient(outputs[i]) for i in history.tangents]
        return tuple([outputs[position] for position in history.tangents])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        history: HistoryPlan = ctx.history
        saved = saved_tensors(ctx, lambda: history.backward(absent_numbers(gradients)))
        if history.eager_saves:
            check_versions(ctx, absent_numbers(gradients))
        if torch.is_grad_enabled():
            read = [*saved, *(one for one in gradients if one is not None)]
            with torch.no_grad():
                computed = _run_backward(ctx, saved, gradients)
            return without_second_derivative(computed, read)
        ctx.maybe_clear_saved_tensors()  # `saved` alone holds them, unless the graph is retained
        return _run_backward(ctx, saved, gradients)


def save_for_backward(
    ctx: Any, history: HistoryPlan, inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    """Have a node of autograd keep what `history` saves of a call."""
    ctx.save_for_backward(*history.saved(inputs, outputs))
    ctx.numbers = _found(history.saved_numbers, inputs, outputs)
    ctx.holder_sizes = history.holder_sizes(inputs, outputs)
    ctx.history = history
    ctx.set_materialize_grads(False)


class ReadsSaved(Protocol):
    """A backward graph that reads some of the saved tensors."""

    @property
    def saved_tensors_read(self) -> frozenset[int]:
        """Their numbers."""


def saved_tensors(ctx: Any, backward: Callable[[], ReadsSaved]) -> list[torch.Tensor]:
    """What the forward call saved. Autograd refuses what was written to meanwhile. Where some
    results have no gradient, what their gradients alone would be computed from is not refused: in
    eager they have nodes of their own, which do not run. `backward` gives the graph that is to run.
    """
    if ctx.history.can_be_repeated:
        return []
    try:
        return list(ctx.saved_tensors)
    except RuntimeError as error:
        if not torch_compat.autograd.UNPACKS_ONE_BY_ONE or "inplace operation" not in str(error):
            raise
        read, count = backward().saved_tensors_read, len(ctx.history.saved_tensors)
        if len(read) == count:
            raise
        return [
            torch_compat.autograd.saved_tensor(ctx, number, number in read)
            for number in range(count)
        ]


def with_numbers(ctx: Any, saved: list[Any]) -> list[Any]:
    """The saved values in the order in which a backward graph takes them: `saved` and numbers."""
    history: HistoryPlan = ctx.history
    history.hold_again(saved, ctx.holder_sizes)
    for position, number in zip(history.number_positions, ctx.numbers, strict=True):
        saved.insert(position, number)
    return saved


def check_versions(ctx: Any, absent: frozenset[int]) -> None:
    """Raise what eager does where it has saved a tensor that was written to since; `ctx` itself
    need not have saved it.
    """
    history: HistoryPlan = ctx.history
    for save, version in zip(history.eager_saves, ctx.versions, strict=True):
        if not save.tangents <= absent:
            version.check(save.version)


def absent_numbers(gradients: Sequence[Any]) -> frozenset[int]:
    """The numbers of the tangents that are not there."""
    return frozenset([number for number, one in enumerate(gradients) if one is None])


def _memory_beside(saved: Sequence[torch.Tensor], inputs: Sequence[Any]) -> int:
    """Bytes of the storages of `saved` that are no storages of `inputs`."""
    storages = {torch_compat.storage_key(one): one.untyped_storage().nbytes() for one in saved}
    for one in inputs:
        if isinstance(one, torch.Tensor):
            storages.pop(torch_compat.storage_key(one), None)
    return sum(storages.values())


def _found(places: Places, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    return [(inputs if is_input else outputs)[number] for is_input, number in places]


def _run_backward(ctx: Any, saved: list[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
    """The gradient of each input of `CompiledFunction.forward`, from those of its outputs."""
    with_numbers(ctx, saved)
    backward = ctx.history.backward(absent_numbers(gradients))
    layouts = ctx.layouts
    try:
        tangents = [tangent(gradients[number], layouts[number]) for number in backward.tangents]
        saved += tangents
        found = [*backward.run(saved), *tangents]
    except RuntimeError as error:
        refuse_batches(gradients, error)
        raise
    taken = [None if place is None else found[place] for place in backward.gradients]
    return (None, None, None, *taken)


def refuse_batches(gradients: Sequence[Any], error: RuntimeError) -> None:
    """Raise what says that gradients cannot be batches, where it was these that raised `error`."""
    if any(torch_compat.is_transformed(one) for one in gradients if one is not None):
        raise FusewrightError(BATCHED_GRADIENTS) from error


def tangent(gradient: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """`gradient` laid out as the backward graph was traced for; zeros where there is none."""
    if gradient is None:
        return layout.empty().zero_()
    if type(gradient) not in (torch.Tensor, torch.nn.Parameter):
        raise FusewrightError(f"a gradient of type {type(gradient).__name__} reached compiled code")
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    if gradient.is_conj() or gradient.is_neg():
        gradient = gradient.resolve_conj().resolve_neg()
    if gradient.stride() == layout.stride:
        return gradient
    return layout.empty().copy_(gradient)


class NoSecondDerivative(torch.autograd.Function):
    """Gradients whose own differentiation is an error that says why."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: Any) -> Any:
        return tuple(None if one is None else one.view_as(one) for one in values[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise FusewrightError(NO_SECOND_DERIVATIVE)


def without_second_derivative(computed: Sequence[Any], read: Sequence[Any]) -> Any:
    """`computed`, whose differentiation with respect to `read` is an error."""
    apply: Callable[..., Any] = NoSecondDerivative.apply
    return apply(len(computed), *computed, *read)


def with_gradients(
    partition: Partition,
    forward: Compiled,
    compile_backward: CompileBackward,
    measured: Callable[[int], None] | None = None,
    in_segments: InSegments | None = None,
) -> Callable[[list[Any]], Any]:
    """A function from the program's inputs (one list) to its results, differentiable by autograd.

    `forward` computes the partition's forward graph; `compile_backward` gives what computes the
    backward graph, or the part of it that a call needs. `measured`, if given, is told the bytes
    that the first call keeps for backward, beside its inputs. `in_segments`, if given, is asked in
    each call for histories in another form.
    """
    plan = TrainingPlan(partition, forward, compile_backward, measured, in_segments)
    joint = partition.joint

    def call(inputs: list[Any]) -> Any:
        if not joint.begins_with_gradients:
            with torch.enable_grad():
                return plan.call(inputs)
        if not torch.is_grad_enabled():  # the same graph, without a history
            arguments = list(inputs)
            inputs.clear()
            return plan.forward(arguments)[: plan.output_count]
        return plan.call(inputs)

    eager_saves = [save for history in plan.histories for save in history.eager_saves]
    if eager_saves:
        read = [save.place.index for save in eager_saves if isinstance(save.place, FromInput)]
        finish = plan.note_versions
    elif returns_results(partition.forward, plan.output_count):
        return call
    else:
        read, finish = [], None
    return arranged(
        partition.forward,
        call,
        joint.tracked_mutations,
        finish,
        read,
        joint.begins_with_gradients,
    )
