"""Element types in memory and in registers; conversions between them as torch does them."""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.limits import HALF_TYPES
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType, bfloat_bits

MEMORY: dict[DType, str] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "half",
    DType.BF16: "i16",
    DType.I64: "i64",
    DType.I32: "i32",
    DType.I16: "i16",
    DType.I8: "i8",
    DType.U8: "i8",
    DType.BOOL: "i8",
}
"""LLVM's element type of each type in memory. A bfloat16 is 16 bits, never LLVM's `bfloat`, which
processors without instructions for it keep as single precision between blocks, rounded by a
function of the C compiler that no process has.
"""

REGISTER: dict[DType, str] = {**MEMORY, DType.BOOL: "i1"}
"""LLVM's types of elements in registers, where a bool is one bit."""


def constant(b: IRBuilder, value: float | int | bool, dtype: DType, lanes: int = 1) -> Register:
    """A constant of an IR type in every lane."""
    if dtype is DType.BF16:
        value = bfloat_bits(float(value))
    return b.constant(VectorType(REGISTER[dtype], lanes), value)


def from_memory(b: IRBuilder, loaded: Register, dtype: DType) -> Register:
    """A loaded element as a register value: a byte of a bool becomes a bit."""
    return loaded.unequal(0) if dtype is DType.BOOL else loaded


def to_memory(b: IRBuilder, value: Register, dtype: DType) -> Register:
    """The reverse of `from_memory`."""
    return b.cast("zext", value, "i8") if dtype is DType.BOOL else value


def convert(b: IRBuilder, value: Register, source: DType, target: DType) -> Register:
    """Conversion between IR types: float to integer truncates, anything to bool is `!= 0`.

    A float out of an integer's range gives what the processor gives, as in eager; never undefined
    behaviour.
    """
    if source is target:
        return value
    if target is DType.BOOL:
        return (_widened(b, value) if source is DType.BF16 else value).unequal(0)
    if source is DType.BOOL:
        operation = "uitofp" if target.is_float else "zext"
        if target in HALF_TYPES:
            return convert(b, convert(b, value, source, DType.F32), DType.F32, target)
        return b.cast(operation, value, REGISTER[target])
    match source.is_float, target.is_float:
        case True, True:
            return _float_to_float(b, value, source, target)
        case True, False:
            return _float_to_integer(b, value, source, target)
        case False, True:
            if target in HALF_TYPES:
                return _float_to_float(b, convert(b, value, source, DType.F32), DType.F32, target)
            signedness = "s" if source.kind == "signed" else "u"
            return b.cast(f"{signedness}itofp", value, REGISTER[target])
        case _:
            return _integer_to_integer(b, value, source, target)


def _integer_to_integer(b: IRBuilder, value: Register, source: DType, target: DType) -> Register:
    if source.bits == target.bits:
        return value
    if source.bits > target.bits:
        return b.cast("trunc", value, REGISTER[target])
    return b.cast("sext" if source.kind == "signed" else "zext", value, REGISTER[target])


def _float_to_integer(b: IRBuilder, value: Register, source: DType, target: DType) -> Register:
    if source in HALF_TYPES:
        value = _float_to_float(b, value, source, DType.F32)
    # Narrow types go through i32, and so wrap, as they do in eager.
    wide = "i64" if target is DType.I64 else "i32"
    kind = value.type.of(wide)
    whole = b.cast("fptosi", value, wide)
    # Out of range the result is arbitrary to LLVM; freezing makes it some number, the processor's
    # own.
    frozen = b.emit(kind, f"freeze {kind} {whole.text}")
    return frozen if wide == REGISTER[target] else b.cast("trunc", frozen, REGISTER[target])


def _float_to_float(b: IRBuilder, value: Register, source: DType, target: DType) -> Register:
    if source is DType.BF16:
        return _float_to_float(b, _widened(b, value), DType.F32, target)
    if target is DType.BF16:
        if source is not DType.F32:
            value = _float_to_float(b, value, source, DType.F32)
        return _to_bfloat(b, value)
    if source is target:
        return value
    if source is DType.F64 and target is DType.F16:
        value = b.cast("fptrunc", value, "float")
        return b.cast("fptrunc", value, "half")
    return b.cast("fpext" if target.bits > source.bits else "fptrunc", value, REGISTER[target])


def _widened(b: IRBuilder, value: Register) -> Register:
    """The bits of bfloat16 as single precision."""
    return (b.cast("zext", value, "i32") << 16).as_floating()


def _to_bfloat(b: IRBuilder, value: Register) -> Register:
    """Round single precision to bfloat16, ties to even, in integers: the processor's own
    instruction flushes subnormals."""
    bits = value.bits()
    odd = b.shift_logical(bits, 16) & 1
    rounded = b.shift_logical(bits + odd + 0x7FFF, 16)
    rounded = b.select(value.is_nan(), rounded.like(0x7FC0), rounded)
    return b.cast("trunc", rounded, "i16")
