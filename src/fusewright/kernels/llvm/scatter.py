"""Scatters: elements combined one at a time, in order, into places that may coincide."""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate
from fusewright.kernels.llvm import indexing
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.operations import Operands, apply
from fusewright.kernels.llvm.scope import Scope
from fusewright.kernels.llvm.storage import MEMORY, convert, from_memory, to_memory
from fusewright.kernels.llvm.values import evaluate, set_loaded

OPERATIONS = {"add": "add", "min": "minimum", "max": "maximum"}


def accumulate(scope: Scope, action: Accumulate, dtype: DType) -> None:
    """Combine one element. Such kernels are scalar and run on one thread, so results never depend
    on timing."""
    b = scope.b
    assert scope.lane_count == 1
    value = evaluate(scope, action.value)
    set_loaded(scope, action.indirect)
    pointer = indexing.address(scope, action.buffer, action.index, dtype)
    if action.mode != "store":
        kind = VectorType(MEMORY[dtype])
        element = b.emit(kind, f"load {kind}, ptr {pointer.text}, align {dtype.bytes}")
        current = from_memory(b, element, dtype)
        value = _combined(scope, action, dtype, current, value)
    stored = to_memory(b, value, dtype)
    b.line(f"store {stored.type} {stored.text}, ptr {pointer.text}, align {dtype.bytes}")


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
