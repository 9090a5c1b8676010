r"""Writes LLVM IR as text: typed registers with operators, one line an instruction.

llvmlite's own builder lacks vector intrinsics and costs more than the parsing of text, so kernels
are written directly:

    b = Builder()
    x = Register(b, "%x", VectorType("float", 8))
    y = x * 2.0 + 1.0          # two lines: fmul, fadd
    print("\n".join(b.lines))

A register of one lane is a scalar (`float`); of more lanes a vector (`<8 x float>`). The operators
follow the element type: `+` is `fadd` on floating-point elements and `add` on integers. Python
numbers become constants of the other operand's type. Nothing here decides what to compute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fusewright.records import field, record

FLOATING = {"half": 16, "float": 32, "double": 64}
INTEGER = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}

Number = int | float | bool


@record
class VectorType:
    """`lanes` elements of one LLVM type; one lane means the scalar type itself."""

    element: str
    """LLVM's name of the element type: float, double, half, i1 … i64, or ptr."""

    lanes: int = 1

    def __str__(self) -> str:
        return self.element if self.lanes == 1 else f"<{self.lanes} x {self.element}>"

    @property
    def suffix(self) -> str:
        """The type as intrinsics spell it in their names: `f32`, `v8f32`, `v8i64`."""
        element = f"f{FLOATING[self.element]}" if self.is_floating else self.element
        element = {"ptr": "p0"}.get(self.element, element)
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    @property
    def is_floating(self) -> bool:
        return self.element in FLOATING

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return FLOATING.get(self.element) or INTEGER.get(self.element) or 64

    def of(self, element: str) -> VectorType:
        """The type of as many lanes of another element type."""
        return VectorType(element, self.lanes)

    def constant(self, value: Number) -> str:
        """The text of `value` in every lane; floating-point values are rounded to the element
        type."""
        text = self.element_constant(value)
        if self.lanes == 1:
            return text
        return f"splat ({self.element} {text})"

    def element_constant(self, value: Number) -> str:
        """The text of one element."""
        match self.element:
            case "float":
                rounded = struct.unpack("f", struct.pack("f", _to_single(float(value))))[0]
                return f"0x{struct.unpack('Q', struct.pack('d', rounded))[0]:016X}"
            case "double":
                return f"0x{struct.unpack('Q', struct.pack('d', float(value)))[0]:016X}"
            case "half":
                return f"0xH{struct.unpack('H', struct.pack('e', float(value)))[0]:04X}"
            case "i1":
                return "true" if value else "false"
            case _:
                return str(_wrap(int(value), self.bits))


def _to_single(value: float) -> float:
    """`value`, with what overflows single precision replaced by an infinity of its sign."""
    largest = 3.4028235677973366e38
    if value >= largest:
        return float("inf")
    return float("-inf") if value <= -largest else value


def bfloat_bits(value: float) -> int:
    """The bfloat16 nearest to `value` (ties to even), as its 16 bits."""
    if value != value:
        return 0x7FC0
    bits: int = struct.unpack("I", struct.pack("f", _to_single(value)))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _wrap(value: int, bits: int) -> int:
    """`value` as a two's complement number of `bits` bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@record(eq=False)
class Register:
    """A value in the text being written: a register's name, or a constant."""

    builder: IRBuilder
    text: str
    type: VectorType
    level: int = 0
    """The builder's level when this was written: whoever writes loops tells by it where the value
    is known. A constant is known everywhere.
    """

    @property
    def is_true(self) -> bool:
        """Whether it is the constant for true."""
        return self.text == "true"

    def __add__(self, other: Operand) -> Register:
        return self.builder.arithmetic("add", self, other)

    def __sub__(self, other: Operand) -> Register:
        return self.builder.arithmetic("sub", self, other)

    def __mul__(self, other: Operand) -> Register:
        return self.builder.arithmetic("mul", self, other)

    def __truediv__(self, other: Operand) -> Register:
        return self.builder.binary("fdiv", self, other)

    def __radd__(self, other: Number) -> Register:
        return self.builder.arithmetic("add", self.like(other), self)

    def __rsub__(self, other: Number) -> Register:
        return self.builder.arithmetic("sub", self.like(other), self)

    def __rmul__(self, other: Number) -> Register:
        return self.builder.arithmetic("mul", self.like(other), self)

    def __rtruediv__(self, other: Number) -> Register:
        return self.builder.binary("fdiv", self.like(other), self)

    def __neg__(self) -> Register:
        if self.type.is_floating:
            return self.builder.emit(self.type, f"fneg {self.type} {self.text}")
        return self.like(0) - self

    def __and__(self, other: Operand) -> Register:
        return self.builder.binary("and", self, other)

    def __or__(self, other: Operand) -> Register:
        return self.builder.binary("or", self, other)

    def __xor__(self, other: Operand) -> Register:
        return self.builder.binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Register:
        return self.builder.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Register:
        """Arithmetic shift; `shift_logical` of the builder is the other one."""
        return self.builder.binary("ashr", self, other)

    def __lt__(self, other: Operand) -> Register:
        return self.builder.compare("lt", self, other)

    def __le__(self, other: Operand) -> Register:
        return self.builder.compare("le", self, other)

    def __gt__(self, other: Operand) -> Register:
        return self.builder.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Register:
        return self.builder.compare("ge", self, other)

    def equal(self, other: Operand) -> Register:
        return self.builder.compare("eq", self, other)

    def unequal(self, other: Operand) -> Register:
        """True where the operands differ or either is NaN."""
        return self.builder.compare("ne", self, other)

    def is_nan(self) -> Register:
        return self.builder.emit(
            self.type.of("i1"), f"fcmp uno {self.type} {self.text}, {self.type.constant(0.0)}"
        )

    def like(self, value: Number) -> Register:
        """A constant of this register's type."""
        return Register(self.builder, self.type.constant(value), self.type)

    def bits(self) -> Register:
        """The register's bits as integers."""
        return self.builder.cast("bitcast", self, f"i{self.type.bits}")

    def as_floating(self) -> Register:
        """The register's bits as floating-point numbers of its width."""
        return self.builder.cast("bitcast", self, {32: "float", 64: "double"}[self.type.bits])


Operand = Register | int | float | bool


@record(frozen=False)
class IRBuilder:
    """Collects the lines of one function body and the names of the definitions that it calls."""

    lines: list[str] = field(default_factory=list)
    required: dict[str, None] = field(default_factory=dict)
    """Names of functions defined elsewhere in the module, in order of first use."""

    inlines: bool = True
    """Ask for calls of functions to be inlined. Off where code runs rarely, and should be short."""

    has_scalef: bool = False
    """The processor multiplies by powers of two in one instruction (AVX-512)."""

    contract: bool = False
    """Allow a product to be joined into one rounding with a sum that says so (LLVM's flag of that
    name): a reduction's. Elsewhere a product is rounded, as eager rounds it, so that a number
    computed twice is the same number: `a * b - max(a * b)` is at most 0, and `a * b - b * a` is 0.
    """

    block: str = "entry"
    """The label of the basic block being written."""

    level: int = 0
    """The number of loops around the lines being written, kept by the writer of loops."""

    _count: int = 0

    def name(self, prefix: str = "t") -> str:
        """A register or label name not used before: `t0`, `t1`, …"""
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, kind: VectorType, instruction: str) -> Register:
        """Write `%tN = instruction`; the register holds a value of type `kind`."""
        text = f"%{self.name()}"
        self.lines.append(f"  {text} = {instruction}")
        return Register(self, text, kind, self.level)

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Open the basic block `name`."""
        self.lines.append(f"{name}:")
        self.block = name

    def constant(self, kind: VectorType, value: Number) -> Register:
        return Register(self, kind.constant(value), kind)

    def vector(self, element: str, values: Sequence[Number]) -> Register:
        """The constant of these values, one a lane."""
        kind = VectorType(element, len(values))
        if kind.lanes == 1:
            return self.constant(kind, values[0])
        elements = ", ".join(f"{element} {kind.element_constant(value)}" for value in values)
        return Register(self, f"<{elements}>", kind)

    # -- arithmetic ---------------------------------------------------------------------------

    def binary(
        self, operation: str, left: Register, right: Operand, *, joins: bool = False
    ) -> Register:
        """`operation` is LLVM's own name; the operands have one type. `joins`: a sum takes in
        products before they are rounded, where `contract` allows that.
        """
        kind = left.type
        flags = "contract " if self.contract and (joins or operation == "fmul") else ""
        return self.emit(kind, f"{operation} {flags}{kind} {left.text}, {text_of(right, kind)}")

    def arithmetic(self, operation: str, left: Register, right: Operand) -> Register:
        """add, sub or mul, floating-point or integer by the operands' type."""
        prefix = "f" if left.type.is_floating else ""
        return self.binary(prefix + operation, left, right)

    def compare(
        self, relation: str, left: Register, right: Operand, *, unsigned: bool = False
    ) -> Register:
        """lt, le, gt, ge, eq, ne; integers signed unless told; on NaN false, but for `ne`."""
        kind = left.type
        if kind.is_floating:
            instruction = f"fcmp {'u' if relation == 'ne' else 'o'}{relation}"
        elif relation in ("eq", "ne"):
            instruction = f"icmp {relation}"
        else:
            # A boolean orders as 0 < 1, which is the unsigned order of one bit.
            sign = "u" if unsigned or kind.element == "i1" else "s"
            instruction = f"icmp {sign}{relation}"
        return self.emit(kind.of("i1"), f"{instruction} {kind} {left.text}, {text_of(right, kind)}")

    def select(self, condition: Register, true: Operand, false: Operand) -> Register:
        """`condition ? true : false` lane by lane; one of the two may be a Python number."""
        kind = true.type if isinstance(true, Register) else register_type(false)
        return self.emit(
            kind,
            f"select {condition.type} {condition.text}, {kind} {text_of(true, kind)}, "
            f"{kind} {text_of(false, kind)}",
        )

    def cast(self, operation: str, value: Register, element: str) -> Register:
        """bitcast, sext, zext, trunc, fpext, fptrunc, sitofp … to another element type."""
        kind = value.type.of(element)
        return self.emit(kind, f"{operation} {value.type} {value.text} to {kind}")

    def shift_logical(self, value: Register, count: Operand) -> Register:
        return self.binary("lshr", value, count)

    # -- calls --------------------------------------------------------------------------------

    def intrinsic(self, name: str, *operands: Operand, flags: str = "") -> Register:
        """An `llvm.` intrinsic overloaded on one type, which is also its result's: fma, sqrt …"""
        kind = next(o.type for o in operands if isinstance(o, Register))
        arguments = ", ".join(f"{kind} {text_of(o, kind)}" for o in operands)
        return self.emit(kind, f"call {flags}{kind} @llvm.{name}.{kind.suffix}({arguments})")

    def fused(self, a: Operand, b: Operand, c: Operand) -> Register:
        """a * b + c with one rounding."""
        return self.intrinsic("fma", a, b, c)

    def absolute(self, value: Register) -> Register:
        """|value| of a floating-point number."""
        return self.intrinsic("fabs", value)

    def copy_sign(self, magnitude: Register, sign: Register) -> Register:
        """|magnitude| with the sign of `sign`. The fence hides where the sign comes from: LLVM
        would take that of a double that was rounded to it, and rounds the double to half precision
        where the result is, for which x86 calls a function that is in no library here.
        """
        return self.intrinsic("copysign", magnitude, self.intrinsic("arithmetic.fence", sign))

    def polynomial(self, x: Register, coefficients: Sequence[float]) -> Register:
        """c0 + c1 x + c2 x² + … by Horner's rule, each step one fused multiply-add."""
        result: Register = x.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fused(result, x, x.like(coefficient))
        return result

    def can_look_up(self, x: Register) -> bool:
        """Whether `look_up` is one instruction for each of x's lanes (AVX-512)."""
        return self.has_scalef and x.type == VectorType("float", 16)

    def look_up(self, row: Sequence[float], index: Register) -> Register:
        """In each of 16 lanes the element of `row` that the index's low four bits name."""
        table = self.vector("float", row)
        return self.emit(
            table.type,
            f"call {table.type} @llvm.x86.avx512.permvar.sf.512({table.type} {table.text}, "
            f"{index.type} {index.text})",
        )

    def call(self, function: str, result: VectorType, *operands: Register) -> Register:
        """A function of this module, recorded as required."""
        self.required.setdefault(function)
        arguments = ", ".join(f"{o.type} {o.text}" for o in operands)
        how = " alwaysinline" if self.inlines else ""
        return self.emit(result, f"call {result} @{function}({arguments}){how}")

    # -- lanes --------------------------------------------------------------------------------

    def extract(self, vector: Register, lane: int | str) -> Register:
        if vector.type.lanes == 1:
            return vector
        scalar = VectorType(vector.type.element)
        return self.emit(scalar, f"extractelement {vector.type} {vector.text}, i32 {lane}")

    def insert(self, vector: Register, value: Register, lane: int) -> Register:
        return self.emit(
            vector.type,
            f"insertelement {vector.type} {vector.text}, {value.type} {value.text}, i32 {lane}",
        )

    def splat(self, scalar: Register, lanes: int) -> Register:
        """The scalar in every one of `lanes` lanes."""
        if lanes == 1:
            return scalar
        kind = VectorType(scalar.type.element, lanes)
        if not scalar.text.startswith("%"):
            return Register(self, f"splat ({scalar.type} {scalar.text})", kind)
        first = self.emit(kind, f"insertelement {kind} poison, {scalar.type} {scalar.text}, i32 0")
        return self.emit(
            kind,
            f"shufflevector {kind} {first.text}, {kind} poison, <{lanes} x i32> zeroinitializer",
        )

    def shuffle(self, left: Register, right: Register | None, lanes: Sequence[int]) -> Register:
        """The lanes chosen from `left` followed by `right`."""
        kind = VectorType(left.type.element, len(lanes))
        other = "poison" if right is None else right.text
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.emit(
            kind,
            f"shufflevector {left.type} {left.text}, {left.type} {other}, "
            f"<{len(lanes)} x i32> <{mask}>",
        )


def register_type(operand: Operand) -> VectorType:
    """The type of an operand that must be a register."""
    assert isinstance(operand, Register)
    return operand.type


def text_of(operand: Operand, kind: VectorType) -> str:
    """An operand's text: a register's name, or a Python number as a constant of type `kind`."""
    return operand.text if isinstance(operand, Register) else kind.constant(operand)
