"""Integer powers: by repeated squaring, wrapping around, as torch has them."""

from __future__ import annotations

from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.mathematics.registry import vector_function


def _power(b: IRBuilder, x: Register, y: Register) -> Register:
    """x ** y for y read as unsigned: a loop over the bits of the greatest exponent in the
    vector."""
    kind = x.type
    exponent, base, power = "%exponent", "%base", "%power"
    next_exponent, next_base, next_power = (f"{n}.next" for n in (exponent, base, power))
    one = kind.constant(1)
    b.line("br label %square")
    b.label("square")
    b.line(f"{exponent} = phi {kind} [ {y.text}, %entry ], [ {next_exponent}, %square ]")
    b.line(f"{base} = phi {kind} [ {x.text}, %entry ], [ {next_base}, %square ]")
    b.line(f"{power} = phi {kind} [ {one}, %entry ], [ {next_power}, %square ]")
    bits, squared, result = (Register(b, t, kind) for t in (exponent, base, power))
    product = result * squared
    odd = (bits & 1).unequal(0)
    b.line(
        f"{next_power} = select {odd.type} {odd.text}, {kind} {product.text}, {kind} {result.text}"
    )
    b.line(f"{next_base} = mul {kind} {squared.text}, {squared.text}")
    b.line(f"{next_exponent} = lshr {kind} {bits.text}, {one}")
    left = Register(b, next_exponent, kind).unequal(0)
    if kind.lanes > 1:
        name = f"llvm.vector.reduce.or.{left.type.suffix}"
        left = b.emit(VectorType("i1"), f"call i1 @{name}({left.type} {left.text})")
    b.line(f"br i1 {left.text}, label %square, label %raised")
    b.label("raised")
    return Register(b, next_power, kind)


def unsigned_power(b: IRBuilder, x: Register, y: Register) -> Register:
    return _power(b, x, y)


def signed_power(b: IRBuilder, x: Register, y: Register) -> Register:
    """A negative exponent gives 1 for base 1, +-1 for base -1, else 0."""
    negative = y < 0
    exponent = b.select(negative, y.like(0), y)
    power = _power(b, x, exponent)
    alternating = b.select((y & 1).equal(0), y.like(1), y.like(-1))
    inverse = b.select(x.equal(1), x, b.select(x.equal(-1), alternating, x.like(0)))
    return b.select(negative, inverse, power)


for _element in ("i8", "i16", "i32", "i64"):
    vector_function("ipow", _element)(signed_power)
    vector_function("upow", _element)(unsigned_power)
