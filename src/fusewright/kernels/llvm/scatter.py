"""Scatters: elements combined with those in memory.

Points that may meet in one element are taken in order, by one thread. The loops along which they
never do are outside: a vector, or a share of a thread, has elements of its own.

The indices of rows that are stored are checked before the first row is: each share of a thread
checks all of them, and stores nothing if one is out of range.
"""

from __future__ import annotations

from contextlib import ExitStack

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate
from fusewright.ir.raising import EarlyChecks
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import Register
from fusewright.kernels.llvm.operations import Operands, apply
from fusewright.kernels.llvm.scope import I64, Scope
from fusewright.kernels.llvm.storage import convert
from fusewright.kernels.llvm.values import active_lanes, evaluate, set_loaded

OPERATIONS = {"add": "add", "min": "minimum", "max": "maximum"}


def accumulate(scope: Scope, action: Accumulate, dtype: DType) -> None:
    """Combine the current element(s)."""
    value = scope.spread(evaluate(scope, action.value))
    set_loaded(scope, action.indirect)
    buffer, index, varies = action.buffer, action.index, scope.lane_count > 1
    if action.mode != "store":
        active = active_lanes(scope, (), vector=varies)
        current = memory.load(scope, buffer, index, dtype, active, varies)
        value = _combined(scope, action, dtype, current, value)
    memory.store(scope, buffer, index, dtype, value)


def check_early(scope: Scope, checks: EarlyChecks) -> None:
    """At the kernel's entry: check all indices, and return the code of a fault if one is out of
    range.
    """
    b, status = scope.b, scope.status()
    with ExitStack() as stack:
        for loop in checks.loops:
            extent = indexing.scalar(scope, loop.extent)
            stack.enter_context(scope.loop((loop,), scope.integer(0), extent, 1, runs=False))
        for index in checks.indices:
            evaluate(scope, index)
    code = b.emit(I64, f"load i64, ptr {status.text}, align 8")
    outside, inside = b.name("outside"), b.name("inside")
    b.line(f"br i1 {code.unequal(0).text}, label %{outside}, label %{inside}")
    b.label(outside)
    b.line(f"ret i64 {code.text}")
    b.label(inside)


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
