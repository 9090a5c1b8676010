"""Type promotion as torch does it: which type an operator on mixed arguments computes in.

Tensors with dimensions outrank tensors without, which outrank Python numbers; a lower rank only
decides when its kind (bool < integer < float) is greater than the kind of every higher rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from fusewright.ir.dtype import DType, from_torch
from fusewright.ir.index import Index
from fusewright.lower.boxes import Box

Argument = Box | Index | bool | int | float

_KINDS = {"bool": 0, "signed": 1, "unsigned": 1, "stored": 1, "float": 2, "complex": 3}
_NUMBERS = {bool: DType.BOOL, int: DType.I64, Index: DType.I64, float: DType.F32}


def result_type(arguments: Iterable[Argument]) -> DType:
    """The common type of boxes and numbers. A float number counts as f32, torch's default float
    type.
    """
    ranks: list[DType | None] = [None, None, None]
    for argument in arguments:
        if isinstance(argument, Box):
            rank, dtype = (0 if argument.size else 1), argument.dtype
        else:
            rank, dtype = 2, _NUMBERS[type(argument)]
        previous = ranks[rank]
        ranks[rank] = dtype if previous is None else promote(previous, dtype)
    result: DType | None = None
    for ranked in ranks:
        if ranked is not None and (result is None or _KINDS[ranked.kind] > _KINDS[result.kind]):
            result = ranked
    assert result is not None, "there is nothing to promote"
    return result


@cache
def promote(left: DType, right: DType) -> DType:
    """The smallest type that holds both, by torch's own table."""
    common = torch.promote_types(getattr(torch, left.torch_name), getattr(torch, right.torch_name))
    return from_torch(common)
