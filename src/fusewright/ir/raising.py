"""Operations that may raise while a compiled program runs, because of the values that it is given:
they are computed whether or not anybody reads their results, since eager raises.

ATen operators are listed by name. Values are listed by operation: an index that is checked, and the
division of integers, unless by a number other than 0.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from fusewright.ir.group import Accumulate, Group
from fusewright.ir.index import LoopSymbol, integer
from fusewright.ir.ops import OPERATIONS
from fusewright.ir.value import (
    Apply,
    Constant,
    IndexValue,
    Indirect,
    Load,
    Random,
    Value,
    postorder,
)
from fusewright.records import record

OPERATORS: Final = frozenset(
    {
        "_ctc_loss", "_embedding_bag", "_embedding_bag_forward_only", "_linalg_eigh", "_linalg_svd",
        "binary_cross_entropy", "bincount", "cholesky", "cholesky_inverse", "embedding", "gather",
        "histc", "index", "index_add", "index_copy", "index_fill", "index_put", "index_reduce",
        "index_select", "linalg_eig", "linalg_eigvals", "linalg_lstsq", "masked_scatter",
        "max_unpool2d", "max_unpool3d", "multi_margin_loss", "multilabel_margin_loss_forward",
        "nll_loss2d_forward", "nll_loss_forward", "repeat_interleave", "scatter", "scatter_add",
        "scatter_reduce", "searchsorted", "segment_reduce", "take",
    }
)  # fmt: skip
"""ATen operators that may raise, whatever their types are, without their overloads."""

DIVISIONS: Final = frozenset({"div", "floor_divide", "fmod", "remainder"})
"""ATen operators that raise for integers, where they divide by 0."""


def operator_name(operator: str) -> str:
    """`index` for `aten.index.Tensor`; '' for what is no operator of ATen."""
    namespace, _, rest = operator.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else ""


def library_call_may_raise(operator: str) -> bool:
    """Whether a library call of this name has to be made though nobody reads its result."""
    name = operator_name(operator)
    return name in OPERATORS or name in DIVISIONS


def value_may_raise(value: Value) -> bool:
    """Whether computing the value raises in some cases, not counting what it is computed from."""
    match value:
        case Indirect(check=check):
            return check
        case Apply(operation=operation, dtype=dtype, arguments=(_, divisor)):
            return (
                OPERATIONS[operation].may_raise
                and dtype.kind in ("signed", "unsigned")
                and not (isinstance(divisor, Constant) and divisor.value != 0)
            )
        case _:
            return False


ELEMENTS_PER_CHECK: Final = 16
"""A check is cheap beside so many elements, which would be copied twice."""


@record
class EarlyChecks:
    """Indices that a kernel for the CPU checks at all points of `loops` before it stores anything.
    Each of the threads that share a kernel checks all of them: if one is out of range, none stores.
    """

    indices: tuple[Value, ...]
    loops: tuple[LoopSymbol, ...]
    """The loops along which the indices differ, outermost first."""


def early_checks(group: Group) -> EarlyChecks | None:
    """The checks that come before a group's only scatter, where checking its indices twice costs
    little: each places many elements, or there are few beside the elements that they pick from.
    None where a check needs what the group itself computes.
    """
    scatters = [
        (stage, action)
        for stage in group.stages
        for action in stage.actions
        if isinstance(action, Accumulate)
    ]
    match scatters:
        case [(stage, Accumulate(indirect=indices) as scatter)]:
            values = tuple(postorder(indices))
        case _:
            return None
    own = {*(local.name for local in group.locals), *(buffer.name for buffer in group.writes)}
    all_loops = (*group.outer, *stage.inner)
    loops = tuple(loop for loop in all_loops if any(map(partial(_varies_with, loop), values)))
    is_early = (
        any(map(value_may_raise, values))
        and (len(loops) < len(all_loops) or _are_few(loops, scatter))
        and not any(isinstance(value, Random) for value in values)
        and not any(isinstance(value, Load) and value.buffer in own for value in values)
    )
    return EarlyChecks(indices, loops) if is_early else None


def _are_few(loops: tuple[LoopSymbol, ...], scatter: Accumulate) -> bool:
    """Whether there is one point of the loops, or few beside the elements that a scatter picks
    from: by what its kernel knows, which are numbers, and not the shapes of buffers.
    """
    points = prod((loop.extent for loop in loops), start=integer(1))
    if points == 1:
        return True
    steps = [
        (scatter.index.stride(value.symbol), value.size)
        for value in scatter.indirect
        if isinstance(value, Indirect)
    ]
    picked_from = sum(
        int(size) * int(stride)
        for stride, size in steps
        if stride is not None and stride.is_constant and size.is_constant
    )
    return points.is_constant and int(points) * ELEMENTS_PER_CHECK <= picked_from


def _varies_with(loop: LoopSymbol, value: Value) -> bool:
    return isinstance(value, Load | IndexValue) and loop in value.index.free()
