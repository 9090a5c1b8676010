"""Each kind of reduction in Triton: the value it starts from, its combination, its end."""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.kernels.triton.operations import TYPES, number_text
from fusewright.records import record


@record
class PlainReduction:
    """A reduction of one number by an associative operation."""

    identity: str
    """The neutral element: zero, one, least or greatest, by name."""

    combine: str
    """Two values into one, elementwise: `{0} + {1}`."""

    across: str
    """A block into one number a row: `tl.sum({0}, {axis}, keep_dims=True)`."""


def _reduce(function: str) -> str:
    return f"tl.reduce({{0}}, {{axis}}, functions.{function}, keep_dims=True)"


_ANY = PlainReduction("zero", "{0} | {1}", "tl.max({0}.to(tl.int32), {axis}, keep_dims=True) != 0")
_ALL = PlainReduction("one", "{0} & {1}", "tl.min({0}.to(tl.int32), {axis}, keep_dims=True) != 0")

_SUM = PlainReduction("zero", "{0} + {1}", "tl.sum({0}, {axis}, keep_dims=True)")

PLAIN: dict[str, dict[str, PlainReduction]] = {
    "sum": dict.fromkeys(("float", "signed", "unsigned"), _SUM),
    "dot": dict.fromkeys(("float", "signed", "unsigned"), _SUM),
    "prod": dict.fromkeys(
        ("float", "signed", "unsigned"), PlainReduction("one", "{0} * {1}", _reduce("multiply"))
    ),
    "max": {
        "float": PlainReduction("least", "functions.maximum({0}, {1})", _reduce("maximum")),
        "signed": PlainReduction(
            "least", "tl.maximum({0}, {1})", "tl.max({0}, {axis}, keep_dims=True)"
        ),
        "unsigned": PlainReduction(
            "least", "tl.maximum({0}, {1})", "tl.max({0}, {axis}, keep_dims=True)"
        ),
        "bool": _ANY,
    },
    "min": {
        "float": PlainReduction("greatest", "functions.minimum({0}, {1})", _reduce("minimum")),
        "signed": PlainReduction(
            "greatest", "tl.minimum({0}, {1})", "tl.min({0}, {axis}, keep_dims=True)"
        ),
        "unsigned": PlainReduction(
            "greatest", "tl.minimum({0}, {1})", "tl.min({0}, {axis}, keep_dims=True)"
        ),
        "bool": _ALL,
    },
    "any": {"bool": _ANY},
    "all": {"bool": _ALL},
    "xor": dict.fromkeys(
        ("signed", "unsigned"),
        PlainReduction("zero", "{0} ^ {1}", "tl.xor_sum({0}, {axis}, keep_dims=True)"),
    )
    | {
        "bool": PlainReduction(
            "zero", "{0} ^ {1}", "tl.xor_sum({0}.to(tl.int32), {axis}, keep_dims=True) != 0"
        )
    },
}
"""Reductions by kind, then by the kind of the value's type."""

ARGUMENT = {"argmax": "least", "argmin": "greatest"}
"""Reductions to a position, with what their value starts from."""


def from_zero(total: str) -> str:
    """A sum that begins at 0, as eager's do, so that it is not -0 where all its terms are."""
    return f"{total} + 0.0"


def identity_text(name: str, dtype: DType) -> str:
    """A neutral number as Triton source."""
    if dtype is DType.BOOL:
        return "True" if name in ("one", "greatest") else "False"
    if name in ("zero", "one"):
        value: float = 1 if name == "one" else 0
        return number_text(float(value), is_float=True) if dtype.is_float else str(value)
    if dtype.is_float:
        return f'float("{"-inf" if name == "least" else "inf"}")'
    low = 0 if dtype.kind == "unsigned" else -(1 << (dtype.bits - 1))
    return str(low if name == "least" else low + (1 << dtype.bits) - 1)


def filled(shape: str, number: str, dtype: DType) -> str:
    """A block of one number."""
    return f"tl.full({shape}, {number}, {TYPES[dtype]})"
