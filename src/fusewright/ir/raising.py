"""Operations that may raise while a compiled program runs, because of the values that it is given:
they are computed whether or not anybody reads their results, since eager raises.

ATen operators are listed by name. Values are listed by operation: an index that is checked, and the
division of integers, unless by a number other than 0.
"""

from __future__ import annotations

from typing import Final

from fusewright.ir.ops import OPERATIONS
from fusewright.ir.value import Apply, Constant, Indirect, Value

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
