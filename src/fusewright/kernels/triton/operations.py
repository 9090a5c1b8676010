"""Each operation of `ir.ops` in Triton: one row an operation, by kind of argument.

A template's `{0}`, `{1}`, … are its operands: names or numbers, so no brackets are needed around
them. `libdevice` is CUDA's library, `functions` is `runtime.triton_functions`.
"""

from __future__ import annotations

from fusewright.ir.dtype import DType


def _same(*kinds: str, text: str) -> dict[str, str]:
    return dict.fromkeys(kinds, text)


def _libdevice(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"float": f"libdevice.{name}({{0}})"} for name in names}


def _operator(text: str) -> dict[str, str]:
    return _same("float", "signed", "unsigned", text=f"{{0}} {text} {{1}}")


TEMPLATES: dict[str, dict[str, str]] = {
    **_libdevice("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    **_libdevice("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    **_libdevice("asinh", "acosh", "atanh", "erf", "erfc", "lgamma"),
    **_libdevice("rsqrt"),
    # CUDA's own, as Triton links them, take the smallest numbers for 0, of which 1 is the ceiling.
    "floor": {"float": "tl.floor({0})"},
    "ceil": {"float": "tl.ceil({0})"},
    "trunc": {"float": "functions.trunc({0})"},
    "round": {"float": "libdevice.nearbyint({0})"},
    "sqrt": {"float": "functions.sqrt({0})"},
    "reciprocal": {"float": "functions.reciprocal({0})"},
    "sigmoid": {"float": "functions.sigmoid({0})"},
    # Triton before 3.7 takes -x for 0 - x, which loses the sign of zero.
    "neg": {"float": "{0} * -1.0", "signed": "-{0}", "unsigned": "0 - {0}"},
    "abs": _same("float", "signed", text="tl.abs({0})") | {"unsigned": "{0}"},
    "sign": _same("float", "signed", text="functions.sign({0})")
    | {"unsigned": "({0} != 0).to({dtype})"},
    "add": _operator("+"),
    "sub": _operator("-"),
    "mul": _operator("*"),
    "maximum": _same("float", text="functions.maximum({0}, {1})")
    | _same("signed", "unsigned", text="tl.maximum({0}, {1})")
    | {"bool": "{0} | {1}"},
    "minimum": _same("float", text="functions.minimum({0}, {1})")
    | _same("signed", "unsigned", text="tl.minimum({0}, {1})")
    | {"bool": "{0} & {1}"},
    "floor_div": {
        "float": "functions.float_floor_div({0}, {1})",
        "signed": "functions.floor_div({0}, {1})",
        "unsigned": "{0} // {1}",
    },
    "trunc_div": {"float": "functions.trunc(functions.divide({0}, {1}))"}
    | _same("signed", "unsigned", text="{0} // {1}"),
    "remainder": {
        "float": "functions.float_remainder({0}, {1})",
        "signed": "functions.remainder({0}, {1})",
        "unsigned": "{0} % {1}",
    },
    "fmod": {"float": "functions.fmod({0}, {1})"} | _same("signed", "unsigned", text="{0} % {1}"),
    "pow": {"float": "libdevice.pow({0}, {1})"}
    | _same("signed", "unsigned", text="functions.integer_pow({0}, {1})"),
    "div": {"float": "functions.divide({0}, {1})"},
    "atan2": {"float": "libdevice.atan2({0}, {1})"},
    "hypot": {"float": "libdevice.hypot({0}, {1})"},
    "copysign": {"float": "libdevice.copysign({0}, {1})"},
    "nextafter": {"float": "functions.nextafter({0}, {1})"},
    "eq": _operator("==") | {"bool": "{0} == {1}"},
    "ne": _operator("!=") | {"bool": "{0} != {1}"},
    # A bool is one bit: as a signed number, true would be -1.
    "lt": _operator("<") | {"bool": "~{0} & {1}"},
    "le": _operator("<=") | {"bool": "~{0} | {1}"},
    "gt": _operator(">") | {"bool": "{0} & ~{1}"},
    "ge": _operator(">=") | {"bool": "{0} | ~{1}"},
    "isnan": {"float": "{0} != {0}"},
    "isinf": {"float": 'tl.abs({0}) == float("inf")'},
    "signbit": {"float": "libdevice.signbit({0}) != 0"},
    "bitwise_and": _same("signed", "unsigned", "bool", text="{0} & {1}"),
    "bitwise_or": _same("signed", "unsigned", "bool", text="{0} | {1}"),
    "bitwise_xor": _same("signed", "unsigned", "bool", text="{0} ^ {1}"),
    "bitwise_not": _same("signed", "unsigned", "bool", text="~{0}"),
    "shift_left": _same("signed", "unsigned", text="functions.shift_left({0}, {1})"),
    "shift_right": _same("signed", "unsigned", text="functions.shift_right({0}, {1})"),
    "where": _same("float", "signed", "unsigned", "bool", text="tl.where({0}, {1}, {2})"),
    "fma": {"float": "tl.fma({0}, {1}, {2})"},
}
"""Templates by operation, then by the kind of its (last) argument."""

TYPES: dict[DType, str] = {
    DType.F64: "tl.float64",
    DType.F32: "tl.float32",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I64: "tl.int64",
    DType.I32: "tl.int32",
    DType.I16: "tl.int16",
    DType.I8: "tl.int8",
    DType.U8: "tl.uint8",
    DType.BOOL: "tl.int1",
}
"""Triton's name of each element type that bodies hold."""

POINTERS: dict[DType, str] = {
    DType.F64: "*fp64",
    DType.F32: "*fp32",
    DType.F16: "*fp16",
    DType.BF16: "*bf16",
    DType.I64: "*i64",
    DType.I32: "*i32",
    DType.I16: "*i16",
    DType.I8: "*i8",
    DType.U8: "*u8",
    DType.BOOL: "*i1",
}
"""The type of a pointer to it in a kernel's signature; without the asterisk, of a number."""


def operation_text(operation: str, operands: list[str], argument: DType) -> str:
    """The expression for an operation on operands of type `argument`."""
    return TEMPLATES[operation][argument.kind].format(*operands, dtype=TYPES[argument])


def number_text(value: float, *, is_float: bool) -> str:
    """A Python number as Triton source."""
    if is_float and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def constant_text(value: float, dtype: DType) -> str:
    """A number of exactly this type: a bare Python number would be taken as f32 or i32."""
    return f"tl.full([], {number_text(value, is_float=dtype.is_float)}, {TYPES[dtype]})"
