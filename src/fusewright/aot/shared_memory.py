"""Inputs that share memory, where the program writes to one of them: in the graph, all are views of
one further input; in autograd, those that are views of one tensor are so while tracing.

    x, y: inputs, y = x[0]                  x, y, base: inputs
    copy_ = aten.copy_(y, value)      ->    x_view = aten.as_strided(base, …)
                                            y_view = aten.as_strided(base, …)
                                            copy_ = aten.copy_(y_view, value)

A write to a tensor with a history changes the history of what it is a view of, and so that of all
other views: torch's engine sees that on fakes that are views too. After the call the new value of
each input written to is copied into it, where autograd does the same to the real tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.functionalize import may_repeat_elements, memory_owner
from fusewright.aot.specs import StorageBase
from fusewright.aot.tracer import Recorder
from fusewright.errors import Unsupported
from fusewright.fake import FakeMode, FakeTensor
from fusewright.fake.history import History
from fusewright.records import replace

aten = torch.ops.aten

Relatives = tuple[tuple[int, ...], ...]
"""Groups of indices of inputs that are views, in autograd, of the same tensor; or that tensor."""


def relatives(inputs: Sequence[Any]) -> Relatives:
    """Which of `inputs` share a history; inputs that share it with no other are left out."""
    groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            key = id(torch_compat.viewed_tensor(value)), value.requires_grad
            groups[key].append(index)
    return tuple(tuple(members) for members in groups.values() if len(members) > 1)


def by_relatives(
    examples: Sequence[Any],
    run: Callable[[list[Any]], Any],
    compile_for: Callable[[list[Any]], Callable[[list[Any]], Any]],
) -> Callable[[list[Any]], Any]:
    """`run`, compiled for inputs that share histories as `examples` do, as a function of any
    inputs; `compile_for` gives what takes its place for inputs that share them otherwise, of the
    sizes that those have.
    """
    expected = relatives(examples)
    others: dict[Any, Callable[[list[Any]], Any]] = {}

    def call(inputs: list[Any]) -> Any:
        related = relatives(inputs)
        if related == expected:
            return run(inputs)
        sizes = [value.shape if isinstance(value, torch.Tensor) else value for value in inputs]
        key = (related, *sizes)
        if key not in others:
            others[key] = compile_for(inputs)
        return others[key](inputs)

    return call


def counts_from_beginning(module: fx.GraphModule) -> bool:
    """Whether a captured graph says where in a storage a view begins."""
    names = (getattr(node.target, "__name__", node.target) for node in module.graph.nodes)
    return any(str(name).startswith("as_strided") for name in names)


def _span(
    members: Mapping[int, torch.Tensor], fakes: FakeMode, *, whole: bool = False
) -> tuple[Any, StorageBase, int]:
    """A fake of the memory from the first to the last element of the inputs `members`, how it is
    found at run time, and where it begins in their storage, in elements. `whole`: it is to begin
    where the storage does.
    """
    values = tuple(members.values())
    if len({value.dtype for value in values}) > 1:
        raise Unsupported("inputs of different types that share memory, one of which is written to")
    # An empty tensor needs no memory, and its offset may lie beyond the end of its storage.
    holding = [value for value in values if value.numel()] or values[:1]
    start = min(int(value.storage_offset()) for value in holding)  # symbolic sizes become constants
    start = 0 if whole else start
    end = max(int(_end(value)) for value in holding)
    options = {"dtype": values[0].dtype, "device": values[0].device}
    span = fakes.dispatch(aten.empty.memory_format, ([end - start],), options)
    offset = start - int(values[0].storage_offset())
    return span, StorageBase(next(iter(members)), offset, end - start), start


def _within(value: torch.Tensor, start: int) -> tuple[list[int], list[int], int]:
    """Sizes, strides and offset of `value` in memory that begins at `start` of its storage."""
    offset = max(int(value.storage_offset()) - start, 0)  # below 0 for an empty tensor alone
    return [*map(int, value.shape)], [*map(int, value.stride())], offset


def may_overlap(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two fakes of one storage may have an element in common; certain only where not."""
    if tensor.dtype != other.dtype:
        return True
    bounds = [(value.storage_offset(), _end(value)) for value in (tensor, other)]
    if any(not isinstance(number, int) for pair in bounds for number in pair):
        return True
    (first, first_end), (second, second_end) = bounds
    return bool(first < second_end and second < first_end)


def _covers(whole: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether all of `part` certainly lies among the elements of `whole`, of the same storage."""
    if _end(whole) - whole.storage_offset() == whole.numel():
        return bool(whole.storage_offset() <= part.storage_offset() and _end(part) <= _end(whole))
    if max(whole.numel(), part.numel()) > MOST_COMPARED:
        return False
    return bool(torch.isin(_element_places(part), _element_places(whole)).all())


MOST_COMPARED = 1 << 16
"""The number of elements whose places in memory are compared one by one."""


def _element_places(value: torch.Tensor) -> torch.Tensor:
    """The place of each element of a fake, counted from the beginning of its storage."""
    place = torch.tensor([int(value.storage_offset())], device="cpu")
    for size, stride in zip(value.shape, value.stride(), strict=True):
        place = (place[:, None] + torch.arange(size, device="cpu") * stride).flatten()
    return place


def _end(value: torch.Tensor) -> Any:
    """One past the last element of `value`, counted from the beginning of its storage."""
    if value.numel() == 0:
        return value.storage_offset()
    reach = sum(
        (size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True)
    )
    return value.storage_offset() + reach + 1


def join_histories(
    recorder: Recorder, inputs: list[Any], members: Sequence[int], *, whole: bool
) -> tuple[StorageBase, FakeTensor]:
    """Make the fakes `members` of `given` views of a further input, as the tensors that they stand
    for are views of one; gives that input. `whole`: it is to begin where their storage does.
    """
    values = {index: inputs[index] for index in members}
    span, spec, start = _span(values, recorder.fakes, whole=whole)
    span.requires_grad_(values[members[0]].requires_grad)
    *_, last = recorder.graph.find_nodes(op="placeholder")
    with recorder.graph.inserting_after(last):
        node = recorder.graph.placeholder(f"base{spec.index}")
    node.meta["val"] = span
    recorder.bind(span, node)
    base = with_history(recorder, span)
    for index, value in values.items():
        with torch.enable_grad():
            view = base.as_strided(*_within(value, start))
            view = torch_compat.conjugate_view(view) if value.is_conj() else view
            inputs[index] = torch_compat.negative_view(view) if value.is_neg() else view
        recorder.bind(inputs[index], recorder.argument(value))
    return replace(spec, has_history=True), base


def with_history(recorder: Recorder, value: Any) -> Any:
    """A fake like `value` that the program may write to, since it is no leaf; stands for the same
    node.
    """
    if not isinstance(value, FakeTensor) or not value.requires_grad:
        return value
    node = recorder.argument(value)
    with torch.enable_grad():
        inside = History.apply(value)  # type: ignore[no-untyped-call]
    recorder.bind(inside, node)
    return inside


def share_bases(
    graph: fx.Graph, placeholders: Sequence[fx.Node], written: set[fx.Node], fakes: FakeMode
) -> tuple[tuple[StorageBase, ...], dict[fx.Node, fx.Node]]:
    """Where inputs share memory, or `as_strided` shows it, or several elements of one are the same
    in memory, and one of them is written to, let all of them be views of one further input; gives
    those further inputs, and by placeholder the view that takes its place.

    `placeholders`: the inputs'; the graph may have more. `written`: those that are written to.
    """
    restrided: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for view in graph.find_nodes(op="call_function", target=aten.as_strided.default):
        restrided[memory_owner(view)].append(view)
    groups: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(placeholders):
        if _has_elements(node.meta["val"]):
            groups[torch_compat.storage_key(storage_owner(node.meta["val"]))].append(index)
    bases = []
    views: dict[fx.Node, fx.Node] = {}
    last = placeholders[-1] if placeholders else None
    for members in groups.values():
        sharing = {index: placeholders[index] for index in members}
        counted = [view for node in sharing.values() for view in restrided[node]]
        special = (
            len(members) > 1 or counted or may_repeat_elements(sharing[members[0]].meta["val"])
        )
        if special and not written.isdisjoint(sharing.values()):
            assert last is not None
            base, last = _share_base(graph, sharing, counted, last, views, fakes)
            bases.append(base)
    return tuple(bases), views


def _has_elements(value: Any) -> bool:
    """Whether a value is a tensor that may have elements."""
    if not isinstance(value, torch.Tensor):
        return False
    count = value.numel()
    return not isinstance(count, int) or count > 0


def storage_owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose storage tells what a fake aliases."""
    return getattr(tensor, "meta_tensor", tensor)


def _share_base(
    graph: fx.Graph,
    sharing: Mapping[int, fx.Node],
    restrided: Sequence[fx.Node],
    last: fx.Node,
    views: dict[fx.Node, fx.Node],
    fakes: FakeMode,
) -> tuple[StorageBase, fx.Node]:
    """Make a further input, behind `last`, and let views of it take the place of `sharing`, noted
    in `views`. `restrided`: calls of `as_strided` that show this memory.
    """
    values = {index: node.meta["val"] for index, node in sharing.items()}
    span, spec, start = _span(values, fakes)
    with graph.inserting_after(last):
        base = graph.placeholder(f"base{spec.index}")
    base.meta["val"] = span
    for view in restrided:
        part = view.meta["val"]
        if part.dtype != span.dtype or not any(_covers(fake, part) for fake in values.values()):
            raise Unsupported(
                "as_strided shows memory beside the elements of an input that is written to",
                view.meta.get("location"),
            )
        view.args = (base, *_within(part, start))
    for index, value in reversed(values.items()):
        with graph.inserting_after(base):
            view = graph.call_function(aten.as_strided.default, (base, *_within(value, start)))
        view.meta.update(sharing[index].meta)
        sharing[index].replace_all_uses_with(view)
        views[sharing[index]] = view
    return spec, base
