"""Rules of operators that gather what comes before each element: running sums and their like."""

from __future__ import annotations

from typing import Any, Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import product
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import dimension

LONG_ROW: Final = 1 << 14
"""Elements of a row that one program of a GPU scans as fast as a library that has many share it."""

FEW_ROWS: Final = 8
"""Rows whose exponentials a CPU computes together, in vectors."""

MANY_ROWS: Final = 256
"""Rows with which a GPU is busy, each scanned by one program."""

KINDS: Final = {
    "aten.cumsum.default": "sum",
    "aten.cumprod.default": "prod",
    "aten.logcumsumexp.default": "logsumexp",
}


@rule(*KINDS)
def running(call: Call, x: Box, dim: int, *, dtype: Any = None) -> Any:
    """A running sum, product or log of a sum of exponentials, in the result's type."""
    held = call.result.dtype
    if x.rank == 0:
        return call.elementwise(lambda at: call.read(x, at, held.compute))
    along = dimension(dim, x.rank)
    if not _is_worth_it(call, x, along):
        return NotImplemented
    kind = KINDS[call.operator]
    gathered = _gathered_type(held, x.device, kind)

    def element(at: Position) -> Scalar:
        value = call.raw(x, at)
        if x.dtype is not held:  # eager converts first
            value = value.cast(held)
        return value.cast(gathered)

    return call.scan(kind, along, element)


@rule("aten.cummax.default", "aten.cummin.default")
def running_extreme(call: Call, x: Box, dim: int) -> Any:
    """The greatest or smallest so far, and its position; of equals the last."""
    kind = call.operator.split(".")[1].removeprefix("cum")
    if x.rank == 0:
        position = call.elementwise(lambda at: call.number(0, DType.I64), 1)
        return call.elementwise(lambda at: call.stored(x, at)), position
    along = dimension(dim, x.rank)
    if x.dtype is DType.BOOL or not _is_worth_it(call, x, along):
        return NotImplemented
    call.realise_unless_free(x)
    extreme = call.scan(kind, along, lambda at: call.stored(x, at))
    upper = x.size[along].upper
    counted = DType.I32 if upper is not None and upper < 1 << 31 else DType.I64

    def place(at: Position) -> Scalar:
        """Where an element is the most extreme so far; a NaN is, and nothing behind it but NaN."""
        value, most = call.stored(x, at), call.read(extreme, at)
        is_most = value >= most if kind == "max" else value <= most
        if x.dtype.is_float:
            is_most = is_most | value.apply("isnan")
        return is_most.where(call.index(at[along], counted), -1 << (counted.bits - 1))

    return extreme, call.scan("max", along, place, 1)


def _gathered_type(held: DType, device: str, kind: str) -> DType:
    """The type in which eager's kernels gather what is held in this one; for products one in which
    those of a few elements neither vanish nor overflow, since they are multiplied by what came
    before, which may be infinite.
    """
    if held.is_integer:
        return DType.I64 if held is DType.I64 else DType.I32
    is_wide = held is DType.F32 or (held is DType.BF16 and kind == "prod")
    return DType.F64 if is_wide and device == "cpu" else held.compute


def _is_worth_it(call: Call, x: Box, along: int) -> bool:
    """Whether one thread or program is to scan a row. On a GPU the library shares few long ones
    among many; on a CPU its scalar functions are as fast as one row's steps, which wait for each
    other.
    """
    length = call.builder.hint(x.size[along])
    rows = call.builder.hint(product(size for d, size in enumerate(x.size) if d != along))
    if x.device == "cpu":
        return call.operator != "aten.logcumsumexp.default" or rows >= FEW_ROWS
    return length <= LONG_ROW or rows >= MANY_ROWS
