"""Products of bfloat16 that one instruction multiplies in pairs along the depth, and adds up in
single precision.

A pair is 32 bits, as a number of single precision is. So a product of which each row of both
operands lies in pairs is packed and computed like one of half the depth, whose numbers are the bits
of pairs; only the instruction is another.
"""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.index import LoopSymbol, known_multiple
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.ir.value import Expressions, Value
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.records import replace

LANES = 16
"""Pairs that the instruction multiplies."""


def paired(product: MatrixProduct) -> MatrixProduct | None:
    """The product of pairs that a product of bfloat16 is; None where an operand does not lie in
    pairs: its rows, along the depth, or what is between them, may be odd.
    """
    depth = product.depth
    if not known_multiple(depth.extent, 2):
        return None
    half = LoopSymbol(depth.name, depth.extent // 2)
    make = Expressions()

    def in_pairs(operand: Value) -> Value | None:
        load = load_of(operand)
        if load.dtype is not DType.BF16 or load.index.stride(depth) != 1:
            return None
        index = load.index.substitute({depth: 2 * half.index})
        if not known_multiple(index, 2):
            return None
        return make.load(load.buffer, index // 2, DType.F32)

    left, right = in_pairs(product.left), in_pairs(product.right)
    if left is None or right is None:
        return None
    return replace(product, left=left, right=right, depth=half)


def multiply_pairs(b: IRBuilder, left: Register, right: Register, total: Register) -> Register:
    """`total`, and the products of each pair of bfloat16 in two vectors of their bits. The
    processor takes subnormal factors for zeros, as it does in the library's products.
    """
    kind = VectorType("bfloat", 2 * LANES)
    bits = [b.emit(kind, f"bitcast {x.type} {x.text} to {kind}") for x in (left, right)]
    operands = ", ".join(f"{kind} {register.text}" for register in bits)
    call = f"call {total.type} @llvm.x86.avx512bf16.dpbf16ps.512"
    return b.emit(total.type, f"{call}({total.type} {total.text}, {operands})")
