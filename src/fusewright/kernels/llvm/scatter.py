"""Scatters: elements combined with those in memory.

Points that may meet in one element are taken in order, by one thread. The loops along which they
never do are outside: a vector, or a share of a thread, has elements of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate
from fusewright.ir.index import SizeSymbol
from fusewright.kernels.llvm import memory
from fusewright.kernels.llvm.builder import Register
from fusewright.kernels.llvm.operations import Operands, apply
from fusewright.kernels.llvm.scope import Scope
from fusewright.kernels.llvm.storage import convert
from fusewright.kernels.llvm.values import active_lanes, evaluate, failed_check, set_loaded

STORES = SizeSymbol("stores")
"""The counter of a loop that makes a turn where an index is inside."""

OPERATIONS = {"add": "add", "min": "minimum", "max": "maximum"}


def accumulate(scope: Scope, action: Accumulate, dtype: DType) -> None:
    """Combine the current element(s)."""
    value = scope.spread(evaluate(scope, action.value))
    set_loaded(scope, action.indirect)
    buffer, index, varies = action.buffer, action.index, scope.lane_count > 1
    if action.mode == "store":
        with _if_inside(scope, action):
            memory.store(scope, buffer, index, dtype, value)
    else:
        active = active_lanes(scope, (), vector=varies)
        current = memory.load(scope, buffer, index, dtype, active, varies)
        value = _combined(scope, action, dtype, current, value)
        memory.store(scope, buffer, index, dtype, value)


@contextmanager
def _if_inside(scope: Scope, action: Accumulate) -> Iterator[None]:
    """Code that runs unless an index of `action` has failed its check, in all lanes alike."""
    checks = [failed_check(scope, value) for value in action.indirect]
    outside = [check for check in checks if check is not None]
    if not outside:
        yield
        return
    any_outside = outside[0]
    for other in outside[1:]:
        any_outside = any_outside | other
    number = scope.b.cast("zext", any_outside, "i64")
    with scope.loop((STORES,), number, scope.integer(1), 1, runs=False):
        yield


def _combined(
    scope: Scope, action: Accumulate, dtype: DType, current: Register, value: Register
) -> Register:
    """`current` and `value` combined; half types in single precision, bools as eager does: `add` is
    or."""
    b = scope.b
    operation = OPERATIONS[action.mode]
    if dtype is DType.BOOL and operation == "add":
        operation = "maximum"
    compute = dtype.compute
    operands = Operands(
        b=b,
        dtype=compute,
        values=(convert(b, current, dtype, compute), convert(b, value, dtype, compute)),
        constants=(None, None),
    )
    return convert(b, apply(operation, operands), compute, dtype)
