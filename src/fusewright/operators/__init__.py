"""Facts about ATen operators beyond what torch declares of them, in one table.

    facts(torch.ops.aten.mm.default).kind       OperatorKind.LIBRARY

Stages keep rules, one function an operator, in tables of their own; what is merely true of an
operator stands here once. docs/adding-an-operator.md says which tables a new operator needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import torch

from fusewright.operators.table import TABLE, UNLISTED, Facts, Neutral, OperatorKind
from fusewright.torch_compat import OpOverload, overload_by_name

__all__ = [
    "TABLE",
    "Facts",
    "Neutral",
    "OperatorKind",
    "copy_of_view",
    "facts",
    "is_of_torch",
    "is_pointwise",
    "operator_named",
    "operators_with",
    "trusts_integers",
]


def facts(op: object) -> Facts:
    """The row of an operator, or of what `aten.mm.default` names; an empty one for all others."""
    return _facts(op) if isinstance(op, (OpOverload, str)) else UNLISTED


@functools.cache
def _facts(op: OpOverload | str) -> Facts:
    return TABLE.get(str(op).removeprefix("aten."), UNLISTED)


_NAMESPACES: Final = ("aten", "prim", "prims", "c10d", "_c10d_functional", "fusewright")


def is_of_torch(name: str) -> bool:
    """Whether a name such as `aten.mm.default` is that of an operator which comes with torch, or
    with this compiler.
    """
    return name.partition(".")[0] in _NAMESPACES


def is_pointwise(op: OpOverload) -> bool:
    """Whether an operator computes each element of its result on its own, from a few others."""
    row = facts(op)
    is_listed = row.kind is OperatorKind.POINTWISE or row.is_view
    return is_listed or torch.Tag.pointwise in op.tags


def operator_named(name: str) -> OpOverload | None:
    """The operator with a name of the table; None where this torch has none."""
    packet, _, overload = name.partition(".")
    return overload_by_name("aten", packet, overload)


def copy_of_view(view: OpOverload | str) -> OpOverload | None:
    """The operator that gives the elements of a view as a new tensor, which torch names after it:
    `select_copy.int` after `select.int`.
    """
    packet, _, overload = str(view).removeprefix("aten.").partition(".")
    return overload_by_name("aten", f"{packet}_copy", overload)


def operators_with(condition: Callable[[Facts], object]) -> tuple[OpOverload, ...]:
    """The operators of this torch whose rows meet a condition."""
    operators = (operator_named(name) for name, row in TABLE.items() if condition(row))
    return tuple(op for op in operators if op is not None)


def trusts_integers(op: object) -> bool:
    """Whether kernels of an operator, or of an overload of it that writes to `out`, may not be run
    on integers which nobody has chosen for them.
    """
    packet = str(op).removeprefix("aten.").partition(".")[0]
    return isinstance(op, OpOverload) and packet in _trusting_packets()


@functools.cache
def _trusting_packets() -> frozenset[str]:
    usual = UNLISTED.made_up
    return frozenset(name.partition(".")[0] for name, row in TABLE.items() if row.made_up != usual)
