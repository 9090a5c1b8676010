"""Calls that check sizes which depend on data: the graph makes the checks when it runs, and what
they tell is known from there on.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright.capture.handlers.registry import DECLINED, handles
from fusewright.capture.handlers.torch_functions import check
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.numbers import SymbolicValue, number_of
from fusewright.capture.values.sequences import ListValue, TupleValue
from fusewright.capture.values.tensors import TensorValue

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


def _promise(machine: Machine, condition: bool | torch.SymBool) -> None:
    if isinstance(condition, torch.SymBool):
        check(machine, machine.new(condition))
