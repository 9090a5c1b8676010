"""Names and literals of generated C++."""

from __future__ import annotations

import math
from typing import Final

from fusewright.ir.dtype import DType

RESERVED: Final = frozenset(
    """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr
    continue decltype default delete do double else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not nullptr operator or private
    protected public register return short signed sizeof static struct switch template this throw
    true try typedef typeid typename union unsigned using virtual void volatile while xor main std
    torch fusewright addmm bits boolean call call_one check copy described dtype empty ended figures
    given
    greatest host inputs integer integers item_of joined launch least list_of none on_cpu place real
    reinterpret remainder scan shown some strided truth view while_loop with_layout
    """.split()  # noqa: SIM905  fewer lines than a list
)
"""Names that a buffer cannot have: words of C++, and of the header."""


EXPORTS_HOST: Final = (
    "",
    'extern "C" __attribute__((visibility("default"))) void',
    "fusewright_set_host(FusewrightHost own)",
    "{",
    "    host = own;",
    "}",
)
"""Lets a host say where the debug printer writes."""


def identifier(name: str) -> str:
    """A name of C++."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"{plain}_" if plain in RESERVED else plain


def dtype_name(dtype: DType) -> str:
    return f"{dtype.torch_name}_type"


def integer_text(value: int) -> str:
    if value == -(2**63):
        return "INT64_MIN"
    return f"{value}LL" if abs(value) > 2**31 - 1 else str(value)


def real_text(value: float) -> str:
    if math.isnan(value):
        return "double(NAN)"
    if math.isinf(value):
        return "-double(INFINITY)" if value < 0 else "double(INFINITY)"
    return repr(value)


def text_literal(value: str) -> str:
    """A string literal of C++."""
    letters = []
    for byte in value.encode():
        is_plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        letters.append(chr(byte) if is_plain else f"\\{byte:03o}")
    return f'"{"".join(letters)}"'
