"""Names and literals of generated C++."""

from __future__ import annotations

import math
from typing import Final

from fusewright.ir.dtype import DType

WORDS: Final = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq
    """.split()  # noqa: SIM905  fewer lines than a list
)
"""Words of C++, up to C++20."""

NAMES: Final = frozenset(
    """
    addmm any_part Argument assert_layout bits Block boolean call call_one check check_fact
    check_nan copy debug_name debug_print debug_save described dtype Dtype elements empty ended
    facts_of Failure figures floor_divide fusewright given greatest has_strides host indented inputs
    int32_t int64_t integer integer_in integers Integers is_infinite is_nan item_of joined Kernel
    launch least list_of main Named nearest new_reference none on_cpu place print_to_output real
    reinterpret remainder rounded run_module scan shown shown_element shown_list size_t some std
    strided Tensor torch truth TypeFacts uint64_t Value Values view while_loop with_layout
    """.split()  # noqa: SIM905  fewer lines than a list
)
"""Names of the headers, and of what is written around a module's own lines."""


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
    """A name of C++ that means nothing else."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"{plain}_" if plain in WORDS or plain in NAMES else plain


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
