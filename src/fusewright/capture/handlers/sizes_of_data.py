"""Calls that check sizes which depend on data: the graph makes the checks when it runs, and what
they tell is known from there on.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from fusewright.capture.handlers.registry import DECLINED, handles
from fusewright.capture.handlers.torch_functions import check
from fusewright.capture.interpreter.tensor_calls import check_required
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.numbers import SymbolicValue, is_of_data, number_of
from fusewright.capture.values.sequences import ListValue, TupleValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.symbolic.facts import Required

_FIRST = ConstantValue(0)


@handles(torch.split, torch.Tensor.split, torch.split_with_sizes, torch.Tensor.split_with_sizes)
def split(machine: Machine, tensor: Value, sizes: Value, dim: Value = _FIRST) -> Any:
    """`x.split([n, m])`: no part is negative, and together they are all of `x`."""
    if not isinstance(tensor, TensorValue) or not isinstance(sizes, ListValue | TupleValue):
        return DECLINED
    parts = sizes.items(machine)
    if not any(isinstance(part, SymbolicValue) and part.is_of_data for part in parts):
        return DECLINED
    whole = tensor.fake.shape[dim.constant()]
    end: Any = 0
    for part in parts:
        size = number_of(part)
        end = end + size
        _promise(machine, size >= 0)
        _promise(machine, end == whole if part is parts[-1] else end <= whole)
    return DECLINED


@handles(torch.tensor_split, torch.Tensor.tensor_split)
def tensor_split(
    machine: Machine, tensor: Value, places: Value, *rest: Value, **keywords: Value
) -> Any:
    """`x.tensor_split([n, m])`, also where a tensor holds the places: these go up, and are within
    `x`, or the call runs as it is written.
    """
    if not isinstance(tensor, TensorValue):
        return DECLINED
    if isinstance(places, TensorValue):
        fake = places.fake
        if (fake.dim(), fake.dtype, fake.device.type) != (1, torch.int64, "cpu"):
            return DECLINED
        places = machine.call(machine.attribute(places, "tolist"), [])
    if not isinstance(places, ListValue | TupleValue):
        return DECLINED
    numbers = [number_of(place) for place in places.items(machine)]
    if any(isinstance(number, torch.SymInt) and is_of_data(number) for number in numbers):
        dim = rest[0] if rest else keywords.get("dim", _FIRST)
        bounds = [0, *numbers, tensor.fake.shape[dim.constant()]]
        for begin, end in itertools.pairwise(bounds):
            is_up = begin <= end
            if isinstance(is_up, torch.SymBool) and is_up.node.depends_on_data():
                check_required(machine, torch.tensor_split, Required(is_up))
    return machine.call_graph(torch.tensor_split, [tensor, places, *rest], keywords)


def _promise(machine: Machine, condition: bool | torch.SymBool) -> None:
    if isinstance(condition, torch.SymBool):
        check(machine, machine.new(condition))
