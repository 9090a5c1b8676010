"""Items of tensors: views, and copies where a tensor says which."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType

import torch

from fusewright.capture import reasons
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import NONE, ConstantValue
from fusewright.capture.values.numbers import SymbolicValue, is_number
from fusewright.capture.values.regions import IndexRegionValue
from fusewright.capture.values.sequences import ListValue, SliceValue, TupleValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import Unsupported
from fusewright.fake import holds_integers


def tensor_item(machine: Machine, tensor: TensorValue, key: Value) -> Value:
    """An item of a tensor. Raises: Unsupported."""
    if any(isinstance(region, IndexRegionValue) for region in machine.regions):
        gathered = _gathered_item(machine, tensor, key)
        if gathered is not None:
            return gathered
    selected = at_varying_numbers(machine, tensor, key)
    if selected is not None:
        item, rest = selected
        return tensor_item(machine, item, machine.new_tuple(rest)) if rest else item
    try:
        return machine.call_graph(operator.getitem, [tensor, key], {})
    except Unsupported as refusal:
        may_copy = machine.builder.permissions.copies
        if refusal.reason != reasons.FAKE_EXECUTION.name or not may_copy:
            raise
        copy = _copied_item(machine, tensor, key)
        if copy is None:
            raise
        return copy


def _gathered_item(machine: Machine, tensor: TensorValue, key: Value) -> Value | None:
    """An item read at indices that are tensors, as a mode of the program's asks for numbers, too.
    None where the key has other parts.
    """
    keys = _parts(machine, key)
    if not all(isinstance(part, TensorValue) or is_number(part) for part in keys):
        return None
    device = machine.new(tensor.fake.device)
    indices = [
        part
        if isinstance(part, TensorValue)
        else machine.call_graph(torch.tensor, [part], {"device": device})
        for part in keys
    ]
    return machine.call_graph(torch.ops.aten.index.Tensor, [tensor, ListValue(list, indices)], {})


def _copied_item(machine: Machine, tensor: TensorValue, key: Value) -> Value | None:
    """`tensor[:, i]` where a tensor of one integer says where, as a copy: which part of the tensor
    a view would be is not known. None where the key has other parts, or such tensors in slices
    alone.
    """
    keys = _parts(machine, key)
    numbered = [part for part in keys if _is_basic(part)]
    if len(numbered) < sum(part.python_type() not in (type(None), EllipsisType) for part in keys):
        return None
    places = [
        (place, machine.call_tensor_method(part, "long", [], {}))
        for part, place in zip(keys, _places(keys, tensor.fake.dim(), _is_basic), strict=True)
        if isinstance(part, TensorValue)
    ]
    if not places:
        return None
    item: Value = tensor
    for place, index in reversed(places):
        indices = ListValue(list, [*[NONE] * place, index])
        item = machine.call_graph(torch.ops.aten.index.Tensor, [item, indices], {})
    assert isinstance(item, TensorValue)
    machine.builder.note_copy(tensor.fake, item.fake)
    rest = [position for position in keys if not isinstance(position, TensorValue)]
    return tensor_item(machine, item, machine.new_tuple(rest)) if rest else item


def _parts(machine: Machine, key: Value) -> Sequence[Value]:
    """The parts of a key, of which a tuple has several."""
    return key.items(machine) if isinstance(key, TupleValue) else [key]


def _is_basic(key: Value) -> bool:
    """Whether part of a key takes a dimension: a slice, an integer, or a tensor that holds one."""
    if isinstance(key, TensorValue):
        return key.fake.dim() == 0 and holds_integers(key.fake) and key.fake.dtype != torch.uint8
    return isinstance(key, SliceValue) or (is_number(key) and key.python_type() is int)


def at_varying_numbers(
    machine: Machine, tensor: TensorValue, key: Value
) -> tuple[TensorValue, list[Value]] | None:
    """The part of `tensor` that the symbolic numbers of a tuple of keys select, and the keys that
    are left; torch makes constants of such numbers. None where there are none, or the key has parts
    of which it is not known here how many dimensions they take.

        x[:, n, 2:]  ->  x.select(1, n)[:, 2:]
    """
    keys = key.items(machine) if isinstance(key, TupleValue) else []
    if not any(map(_varies, keys)) or not all(map(_is_known, keys)):
        return None
    rank = tensor.fake.dim()
    is_plain = tensor.python_type() in (torch.Tensor, torch.nn.Parameter)
    ellipses = sum(part.python_type() is EllipsisType for part in keys)
    if not is_plain or ellipses > 1 or sum(map(_takes_dimension, keys)) > rank:
        return None
    item = tensor
    for part, place in reversed([*zip(keys, _places(keys, rank, _takes_dimension), strict=True)]):
        if _varies(part):
            dimension = ConstantValue(place)
            selected = machine.call_tensor_method(item, "select", [dimension, part], {})
            assert isinstance(selected, TensorValue)
            item = selected
    return item, [part for part in keys if not _varies(part)]


def _varies(key: Value) -> bool:
    return isinstance(key, SymbolicValue) and key.python_type() is int


def _takes_dimension(key: Value) -> bool:
    """Whether part of a key takes one dimension: a slice, an integer or a tensor of indices."""
    if isinstance(key, TensorValue):
        return holds_integers(key.fake) and key.fake.dtype not in (torch.uint8, torch.bool)
    return _is_basic(key)


def _is_known(key: Value) -> bool:
    return _takes_dimension(key) or key.python_type() in (type(None), EllipsisType)


def _places(keys: Sequence[Value], rank: int, takes: Callable[[Value], bool]) -> Iterator[int]:
    """The dimension of a tensor at which each part of a key stands."""
    place = 0
    for number, part in enumerate(keys):
        if part.python_type() is EllipsisType:
            place = rank - sum(map(takes, keys[number + 1 :]))
        yield place
        place += takes(part)
