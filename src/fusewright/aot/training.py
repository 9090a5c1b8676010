"""A compiled forward and backward graph at run time, joined by one autograd function.

`native.TrainingCall` runs the forward graph and hands to autograd what it has to keep: tensors as
`save_for_backward` would, which checks that nobody wrote to them meanwhile, frees them after
backward, and heeds `retain_graph` and saved-tensor hooks. Gradients that eager execution would not
compute are None. What most calls do is in C (native/history.c); what few need is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from fusewright import torch_compat
from fusewright.aot.absent_gradients import ByAbsentTangents, backward_without
from fusewright.aot.backward_parts import BackwardPart, backward_parts
from fusewright.aot.graph import AtenGraph
from fusewright.aot.leaves import filled, with_leaves
from fusewright.aot.partition import Partition
from fusewright.aot.runtime import Compiled, arranged, returns_results
from fusewright.aot.specs import FromGraph, FromInput, Leaf
from fusewright.containers import tensors
from fusewright.errors import FusewrightError
from fusewright.native import (
    History,
    TrainingCall,
    disable,
    history_backward,
    history_forward,
)
from fusewright.opaque import Opaque, is_number

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


_APPLY = torch_compat.autograd.function_in_c("CompiledFunction", history_forward, history_backward)
"""Makes the node of one call of a compiled graph in one of the histories of its outputs."""

Backward = tuple[Compiled, tuple[int, ...], tuple[int | None, ...]]
"""A compiled backward graph, for calls of which certain results have a gradient; the numbers of
the tangents that it takes after the saved values; by input the place of its gradient among what it
gives and, behind that, the tangents, or None where the gradient is absent.
"""

AddHistories = Callable[[tuple[Any, ...], list[Any]], bool]
"""Given a call's inputs and outputs, puts outputs with a history in the places of those without,
where this is not to be done in the usual form; says whether it has.
"""

CompileBackward = Callable[[AtenGraph], Compiled]
"""Gives the function that computes a backward graph."""


class ConnectedHistory(Protocol):
    """A history of a compiled graph's outputs, as a call gives it to them."""

    def add(self, inputs: tuple[Any, ...], outputs: list[Any], /) -> None:
        """Put outputs with the history in the places of those without."""


class HistoryPlan(History):
    """One of the histories of a compiled graph's outputs, and what computes its gradients.

    `compile_backward` is called at the first backward, so that calls that are never differentiated
    (validation with gradients left on) do not pay for it, and again where other results than before
    have a gradient.
    """

    def __init__(self, part: BackwardPart, compile_backward: CompileBackward) -> None:
        places = list(zip(part.saved, part.saved_nodes, strict=True))
        self.tangents = part.outputs
        """By tangent: the position of its output."""

        self.inputs = part.inputs
        """Indices of the inputs that it leads to."""

        self.saved = _positions_of(place for place, node in places if not _holds_number(node))
        """Where the tensors and opaque values are that a call saves."""

        self.numbers = _positions_of(place for place, node in places if _holds_number(node))
        """Where the numbers are that it saves; the backward graph takes them first."""

        assert all(_holds_number(node) for _, node in places[: len(self.numbers)])
        strides = tuple(tuple(node.meta["val"].stride()) for node in part.tangent_nodes)
        is_dynamic = any(isinstance(step, torch.SymInt) for stride in strides for step in stride)
        self.strides = None if is_dynamic else strides
        """By tangent: its strides; None where each call has its own."""

        self.can_be_repeated = not (part.is_freed or self.saved)
        """Whether nothing fails where backward runs twice."""

        self.eager_saves = part.eager_saves
        """The tensors that eager saves and this does not."""

        self.noted = _positions_of(save.place for save in part.eager_saves)
        """Where those are found, in the program's inputs or results."""

        buffers = [node.meta["val"] for _, node in places if not _holds_number(node)]
        self._of_others = part.outputs_of_others
        self._opaque = [k for k, value in enumerate(buffers) if isinstance(value, Opaque)]
        self._inputs_gradients = part.gradients
        self._whole_backward = part.graph
        self._saved_count = len(part.saved)
        self._compile_backward = compile_backward
        self._backwards: ByAbsentTangents[tuple[Backward, frozenset[int]]] = ByAbsentTangents()
        super().__init__(
            _APPLY,
            inputs=part.inputs,
            tangents=tuple(~position for position in part.outputs),
            numbers=self.numbers,
            saved=self.saved,
            strides=self.strides,
            is_special=bool(self._of_others or self._opaque),
            can_be_repeated=self.can_be_repeated,
            checks_versions=bool(part.eager_saves),
        )

    # Asked by native/history.c, where the answer is not the usual one -----------------------------

    def save_specially(self, saved: Sequence[Any]) -> tuple[tuple[torch.Tensor, ...], Any]:
        """The tensors to save, and what `take_specially` is to know: the opaque values, with leaves
        for their tensors, which stand behind all others. Another history's outputs are saved
        without it, which may in turn save outputs of this one.
        """
        values = list(saved)
        for number in self._of_others:
            values[number] = values[number].detach()
        opaque = [values.pop(number) for number in reversed(self._opaque)]
        structure = with_leaves(opaque[::-1], values, (torch.Tensor,))
        return tuple(values), structure

    def take_specially(self, tensors: Sequence[torch.Tensor], structure: Any) -> list[Any]:
        """The values that were given to `save_specially`, from what it gave."""
        values: list[Any] = list(tensors[: len(self.saved) - len(self._opaque)])
        for number, opaque in zip(self._opaque, filled(structure, tensors), strict=True):
            values.insert(number, opaque)
        return values

    def take_despite(
        self, error: RuntimeError, node: Any, gradients: Sequence[Any]
    ) -> list[torch.Tensor]:
        """The tensors that a node saved, where autograd refuses them with `error`: see
        `saved_despite`.
        """
        _, unread = self._backward(absent_numbers(gradients))
        return saved_despite(error, node, unread)

    def check_versions(self, node: Any, gradients: Sequence[Any]) -> None:
        """Raise what eager does where it has saved a tensor that was written to since; `node`
        itself need not have saved it.
        """
        absent = absent_numbers(gradients)
        for save, version in zip(self.eager_saves, node.versions, strict=True):
            if not save.tangents <= absent:
                version.check(save.version)

    def backward_without(self, gradients: Sequence[Any]) -> Backward:
        """The backward graph for calls in which those of `gradients` that are None are absent."""
        backward, _ = self._backward(absent_numbers(gradients))
        return backward

    def gradient_strides(self, output: torch.Tensor) -> tuple[int, ...]:
        """The strides that the gradient of `output` has: for a contiguous one, its own."""
        return (output if output.is_contiguous() else torch.empty_like(output)).stride()

    def tangent(
        self, node: Any, number: int, gradient: torch.Tensor | None, stride: tuple[int, ...]
    ) -> torch.Tensor:
        """`gradient` laid out as the backward graph was traced for; zeros where there is none."""
        if gradient is None:
            size, dtype, device = torch_compat.autograd.geometry_of_edge(node, number)
            return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
        if type(gradient) not in (torch.Tensor, torch.nn.Parameter):
            kind = type(gradient).__name__
            raise FusewrightError(f"a gradient of type {kind} reached compiled code")
        if gradient.layout is not torch.strided:
            gradient = gradient.to_dense()
        if gradient.is_conj() or gradient.is_neg():
            gradient = gradient.resolve_conj().resolve_neg()
        if gradient.stride() == stride:
            return gradient
        memory = torch.empty_strided(
            gradient.shape, stride, dtype=gradient.dtype, device=gradient.device
        )
        return memory.copy_(gradient)

    def fail(self, error: RuntimeError, gradients: Sequence[Any]) -> Any:
        """Raise what says why backward failed: where gradients are batches, that they cannot be."""
        if any(
            torch_compat.is_transformed(gradient) for gradient in gradients if gradient is not None
        ):
            raise FusewrightError(BATCHED_GRADIENTS) from error
        raise error

    def differentiable(
        self, computed: Sequence[Any], saved: Sequence[Any], gradients: Sequence[Any]
    ) -> Any:
        """The values `computed`, with a history that says that it cannot be differentiated."""
        read = [value for value in (*saved, *gradients) if isinstance(value, torch.Tensor)]
        return without_second_derivative(computed, read)

    # Compiling ------------------------------------------------------------------------------------

    def _backward(self, absent: frozenset[int]) -> tuple[Backward, frozenset[int]]:
        """The backward graph for calls in which the tangents `absent`, by number, are not there,
        compiled when first asked for; and the numbers of the saved tensors that it does not read.
        Backward may run in compiled code.
        """
        return self._backwards.get(absent, self._compiled)

    def _compiled(self, absent: frozenset[int]) -> tuple[Backward, frozenset[int]]:
        partial = backward_without(self._whole_backward, self._saved_count, absent)
        saved = partial.graph.placeholders[: self._saved_count]
        tensors = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
        unread = frozenset(number for number, node in enumerate(tensors) if not node.users)
        run = disable(self._compile_backward(partial.graph))
        sources = [
            *map(FromGraph, partial.outputs),
            *(None if number in absent else FromInput(number) for number in partial.tangents),
        ]
        places = {source: place for place, source in enumerate(sources) if source is not None}
        gradients = tuple(
            None if source is None else places.get(source) for source in self._inputs_gradients
        )
        return (run, partial.tangents, gradients), unread


def _holds_number(node: Any) -> bool:
    return is_number(node.meta["val"])


def _positions_of(specs: Iterable[FromInput | FromGraph | Leaf]) -> tuple[int, ...]:
    """Indices of inputs; of the graph's outputs, or the program's results, as ~index."""
    return tuple(
        ~spec.position
        if isinstance(spec, FromGraph)
        else ~spec.index
        if isinstance(spec, Leaf)
        else spec.index
        for spec in specs
    )


def absent_numbers(gradients: Sequence[Any]) -> frozenset[int]:
    """The numbers of the tangents that are not there."""
    return frozenset([number for number, gradient in enumerate(gradients) if gradient is None])


def saved_despite(error: RuntimeError, node: Any, unread: frozenset[int]) -> list[torch.Tensor]:
    """The tensors that a node saved, where autograd refuses them with `error`. Where some results
    have no gradient, a write to what their gradients alone would be computed from is not refused:
    in eager they have nodes of their own, which do not run. `unread`: numbers of the tensors that
    the backward graph does not read.
    """
    for_a_write = torch_compat.autograd.UNPACKS_ONE_BY_ONE and "inplace operation" in str(error)
    if not for_a_write or not unread:
        raise error
    return torch_compat.autograd.saved_tensors(node, unread)


def _memory_beside(saved: Sequence[torch.Tensor], inputs: Sequence[Any]) -> int:
    """Bytes of the storages of `saved` that are no storages of `inputs`."""
    storages = {
        torch_compat.storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in saved
    }
    for tensor in inputs:
        if isinstance(tensor, torch.Tensor):
            storages.pop(torch_compat.storage_key(tensor), None)
    return sum(storages.values())


def found(places: Iterable[int], inputs: Any, outputs: Sequence[Any]) -> list[Any]:
    """The values at `places`."""
    return [inputs[place] if place >= 0 else outputs[~place] for place in places]


class NoSecondDerivative(torch.autograd.Function):
    """Gradients whose own differentiation is an error that says why."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: Any) -> Any:
        return tuple(None if value is None else value.view_as(value) for value in values[:count])

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
    add_histories: AddHistories | None = None,
) -> Callable[[list[Any]], Any]:
    """A function from the program's inputs (one list) to its results, differentiable by autograd.

    `forward` computes the partition's forward graph; `compile_backward` gives what computes the
    backward graph, or the part of it that a call needs. `measured`, if given, is told the bytes
    that the first call keeps for backward, beside its inputs. `add_histories`, if given, is asked
    in each call.
    """
    joint = partition.joint
    count = joint.output_count
    parts = backward_parts(partition)
    histories = tuple(HistoryPlan(part, disable(compile_backward)) for part in parts)

    def measure(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        assert measured is not None
        saved = [place for history in histories for place in history.saved]
        measured(_memory_beside([*tensors(found(saved, inputs, outputs))], inputs))

    training_call = TrainingCall(
        forward,
        histories,
        count,
        torch_compat.without_base,
        add_histories,
        measure if measured is not None else None,
    )

    def with_gradients_on(inputs: list[Any]) -> Any:
        with torch.enable_grad():
            return training_call(inputs)

    call = training_call if joint.begins_with_gradients else with_gradients_on

    def note_versions(
        outputs: Sequence[Any], inputs: Mapping[int, Any], results: Sequence[Any]
    ) -> None:
        """Let the backward of a call, which is done, know the versions of what eager would save."""
        for history in histories:
            node: Any = outputs[history.tangents[0]].grad_fn
            if node is None:  # the call was made without gradients
                return
            node.versions = [
                torch_compat.autograd.SavedVersion(tensor)
                for tensor in found(history.noted, inputs, results)
            ]

    eager_saves = [save for part in parts for save in part.eager_saves]
    if eager_saves:
        read = [save.place.index for save in eager_saves if isinstance(save.place, FromInput)]
        finish = note_versions
    elif returns_results(partition.forward, count):
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
