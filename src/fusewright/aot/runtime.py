"""Around a compiled graph at run time: written inputs are copied back, results that alias are made
views.

A compiled graph takes one list of inputs, which it clears so that inputs can be freed early, and
gives a flat tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fusewright import torch_compat
from fusewright.aot.leaves import filled
from fusewright.aot.specs import (
    Detached,
    FromGraph,
    FromInput,
    KnownResult,
    Repeated,
    Replayed,
    ResultSpec,
    StorageBase,
    ViewOf,
)
from fusewright.errors import note_partial_write
from fusewright.runtime.layouts import write_into

if TYPE_CHECKING:
    from fusewright.aot.graph import AtenGraph

COPIED_TOGETHER = 4
"""From how many tensors on a GPU on one call copies them all."""

Compiled = Callable[[list[Any]], Sequence[Any]]
"""One list of inputs in, cleared; a flat tuple of the graph's outputs out."""


def with_results(graph: AtenGraph, compiled: Compiled) -> Callable[[list[Any]], Any]:
    """`compiled`, which computes `graph`, as a function from the program's inputs (one list) to its
    results.
    """
    if returns_results(graph, len(graph.outputs)):
        return compiled
    return arranged(graph, compiled)


def in_recorded_types(compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """`compiled` with autocast off: what it calls was recorded behind autocast's casts. Else an
    operator that calls others, as `cdist` does a product, would have those cast once more.
    """

    def run(inputs: list[Any]) -> Any:
        if not torch_compat.is_autocast_on():  # to turn it off takes ten times as long as this
            return compiled(inputs)
        with torch_compat.without_autocast():
            return compiled(inputs)

    return run


def returns_results(graph: AtenGraph, count: int) -> bool:
    """Whether the first `count` outputs of `graph` are the program's results as they stand."""
    nested = graph.structure is not None
    arranges = graph.bases or graph.inputs_with_bits or graph.geometry_changes
    is_plain = len(graph.results) == count and _are_first_outputs(graph.results)
    return is_plain and not (nested or arranges)


def _are_first_outputs(results: Sequence[ResultSpec]) -> bool:
    return all(spec == FromGraph(position) for position, spec in enumerate(results))


Finish = Callable[[Sequence[Any], Mapping[int, Any], Sequence[Any]], None]
"""Takes the outputs of a compiled graph, inputs by their index, and the program's results."""


def arranged(
    graph: AtenGraph,
    compiled: Compiled,
    tracked: frozenset[int] = frozenset(),
    finish: Finish | None = None,
    finish_takes: Iterable[int] = (),
    begins_with_gradients: bool = True,
) -> Callable[[list[Any]], Any]:
    """`with_results` where there is something to do; mutations of the inputs `tracked` are copied
    back with gradients on, as part of the autograd history, but in a call with gradients off where
    the graph `begins_with_gradients`: another turns them on itself. `finish` is called when all is
    done, and needs the inputs `finish_takes`.
    """
    kept_indices = {*_inputs_needed_afterwards(graph), *finish_takes}
    bases, mutated, structure = graph.bases, graph.mutated_inputs, graph.structure
    results, with_bits = graph.results, graph.inputs_with_bits
    changes = graph.geometry_changes
    are_outputs = _are_first_outputs(results)

    def run(inputs: list[Any]) -> Any:
        for index in with_bits:
            inputs[index] = torch_compat.without_math_bits(inputs[index])
        inputs.extend([_storage_base(base, inputs) for base in bases])
        kept = {index: inputs[index] for index in kept_indices}
        outputs = compiled(inputs)
        if mutated:
            has_history = torch.is_grad_enabled() or not begins_with_gradients
            history = tracked if has_history else frozenset()
            _write(kept, zip(mutated, outputs, strict=False), history, graph.unnoticed_inputs)
        if are_outputs:
            leaves = list(outputs[: len(results)])
        else:
            leaves = []
            for spec in results:
                leaves.append(_result(spec, kept, outputs, leaves))
        for change in changes:
            change.operator(kept[change.index], *change.arguments)
        if finish is not None:
            finish(outputs, kept, leaves)
        return tuple(leaves) if structure is None else filled(structure, leaves)

    return run


def _write(
    inputs: Mapping[int, torch.Tensor],
    values: Iterable[tuple[int, torch.Tensor]],
    history: frozenset[int],
    unnoticed: frozenset[int] = frozenset(),
) -> None:
    """Give inputs their new values, those in `history` as autograd is to know, and those that are
    `unnoticed` so that it counts no write. What kernels have written to an input's own memory is
    the input itself. An exception that comes when some are written to already is marked by
    `note_partial_write`.
    """
    in_place: list[tuple[int, torch.Tensor]] = []
    copies: list[tuple[int, torch.Tensor]] = []
    for index, value in values:
        if value is inputs[index]:
            in_place.append((index, value))
        else:
            copies.append((index, value))
    if unnoticed:
        inputs = {**inputs, **{index: inputs[index].data for index in unnoticed}}
    count = 0
    try:
        with torch.no_grad():
            for targets, together in _on_one_gpu(inputs, copies, history):
                count += 1
                torch_compat.cuda.foreach_copy_(targets, together)
            for index, value in copies:
                if index in history:
                    with torch.enable_grad():
                        write_into(inputs[index], value)
                else:
                    write_into(inputs[index], value)
                count += 1
    except Exception as error:
        if in_place or count:
            note_partial_write(error)
        raise
    if in_place:
        noticed = [target for index, target in in_place if index not in unnoticed]
        tensors = [target for target in noticed if not target.is_inference()]
        torch.autograd.graph.increment_version(tensors)


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def _on_one_gpu(
    inputs: Mapping[int, torch.Tensor],
    copies: list[tuple[int, torch.Tensor]],
    history: frozenset[int],
) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Targets and values that one launch copies, taken out of `copies`: those of one type on a GPU,
    such as the running statistics of all batch norms.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
    for index, value in copies:
        target = inputs[index]
        if _is_on_gpu(target) and index not in history and 0 not in target.stride():
            groups.setdefault((target.device, target.dtype), []).append((index, value))
    large = [group for group in groups.values() if len(group) >= COPIED_TOGETHER]
    taken = {index for group in large for index, _ in group}
    copies[:] = [pair for pair in copies if pair[0] not in taken]
    return [
        ([inputs[index] for index, _ in group], [member for _, member in group]) for group in large
    ]


def _inputs_needed_afterwards(graph: AtenGraph) -> tuple[int, ...]:
    needed = {*graph.mutated_inputs, *(change.index for change in graph.geometry_changes)}
    for spec in graph.results:
        match spec:
            case (
                FromInput(index)
                | ViewOf(base=FromInput(index))
                | Replayed(base=FromInput(index))
                | Detached(
                    base=FromInput(index)
                    | ViewOf(base=FromInput(index))
                    | Replayed(base=FromInput(index))
                )
            ):
                needed.add(index)
            case _:
                pass
    return tuple(sorted(needed))


def _storage_base(base: StorageBase, inputs: list[Any]) -> torch.Tensor:
    tensor = inputs[base.index]
    begin, length = tensor.storage_offset() + base.offset, (base.length,)
    if base.has_history:
        return torch_compat.viewed_tensor(tensor).as_strided(length, (1,), begin)
    item = tensor.itemsize  # the graph counts from the beginning of what it is given
    memory = tensor.untyped_storage()[begin * item : (begin + base.length) * item]
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(memory, 0, length, (1,))


def _result(
    spec: ResultSpec, kept: dict[int, Any], outputs: Sequence[Any], before: Sequence[Any]
) -> Any:
    """The result that `spec` tells of; `before`: those before it."""
    match spec:
        case FromGraph(position):
            return outputs[position]
        case FromInput(index):
            return kept[index]
        case KnownResult(value):
            return value
        case Repeated(index):
            return before[index]
        case ViewOf(base):
            source = _result(base, kept, outputs, before)
            if spec.with_gradients in (None, torch.is_grad_enabled()):
                return _view(spec, source, outputs)
            with torch.set_grad_enabled(spec.with_gradients):
                return _view(spec, source, outputs)
        case Replayed(base):
            source = _result(base, kept, outputs, before)
            with torch.set_grad_enabled(spec.with_gradients):
                return _replayed(spec, source, outputs)
        case Detached(base):
            return _result(base, kept, outputs, before).detach()


def _view(spec: ViewOf, base: torch.Tensor, outputs: Sequence[Any]) -> torch.Tensor:
    size = [_number_from(number, outputs) for number in spec.size]
    stride = [_number_from(number, outputs) for number in spec.stride]
    begin = base.storage_offset() * base.itemsize // spec.dtype.itemsize
    offset = begin + _number_from(spec.offset, outputs)
    if base.is_complex() and spec.dtype is base.dtype.to_real():
        view = torch.view_as_real(base).as_strided(size, stride, offset)
    elif spec.dtype.is_complex and base.dtype is spec.dtype.to_real():
        pairs = base.as_strided((*size, 2), (*(2 * number for number in stride), 1), 2 * offset)
        view = torch.view_as_complex(pairs)
    elif spec.dtype is base.dtype:
        view = base.as_strided(size, stride, offset)
    else:  # differentiable in no eager program either
        view = torch.empty(0, dtype=spec.dtype, device=base.device)
        view.set_(base.untyped_storage(), offset, size, stride)
    if spec.conjugate:
        view = torch_compat.conjugate_view(view)
    return torch_compat.negative_view(view) if spec.negative else view


def _replayed(spec: Replayed, base: torch.Tensor, outputs: Sequence[Any]) -> torch.Tensor:
    view = base if spec.calls else torch.ops.aten.alias.default(base)
    for op, args, kwargs in spec.calls:
        view = op(view, *[_argument(argument, outputs) for argument in args], **kwargs)
    return view


def _argument(value: Any, outputs: Sequence[Any]) -> Any:
    match value:
        case list() | tuple():
            return [_argument(item, outputs) for item in value]
        case FromGraph():
            return _number_from(value, outputs)
    return value


def _number_from(value: int | FromGraph, outputs: Sequence[Any]) -> int:
    return value if isinstance(value, int) else int(outputs[value.position])
