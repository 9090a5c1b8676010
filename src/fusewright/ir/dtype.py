"""Element types of buffers and of values inside bodies."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DType(Enum):
    """An element type: its text in IR, its width in bits as stored, its kind, and torch's name for
    it.
    """

    F64 = ("f64", 64, "float", "float64")
    F32 = ("f32", 32, "float", "float32")
    F16 = ("f16", 16, "float", "float16")
    BF16 = ("bf16", 16, "float", "bfloat16")
    I64 = ("i64", 64, "signed", "int64")
    I32 = ("i32", 32, "signed", "int32")
    I16 = ("i16", 16, "signed", "int16")
    I8 = ("i8", 8, "signed", "int8")
    U8 = ("u8", 8, "unsigned", "uint8")
    BOOL = ("bool", 8, "bool", "bool")
    C32 = ("c32", 32, "complex", "complex32")
    C64 = ("c64", 64, "complex", "complex64")
    C128 = ("c128", 128, "complex", "complex128")
    U64 = ("u64", 64, "stored", "uint64")
    """Complex types and u64, the state of attention's random numbers on a GPU, exist as layouts of
    library calls only; bodies hold other numbers.
    """

    OPAQUE = ("opaque", 0, "object", "object")
    """A Python object, which one call gives and another takes: the type of a buffer without size,
    memory or elements.
    """

    def __init__(self, text: str, bits: int, kind: str, torch_name: str) -> None:
        self.text = text
        self.bits = bits
        self.kind = kind
        self.torch_name = torch_name

    def __str__(self) -> str:
        return self.text

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_computed(self) -> bool:
        """Whether bodies hold values of this type."""
        return self.kind not in ("complex", "stored", "object")

    @property
    def compute(self) -> DType:
        """The type in which arithmetic on this type is done: f32 for the half types, itself
        otherwise.
        """
        return DType.F32 if self in (DType.F16, DType.BF16) else self

    def rounded(self, number: float) -> float:
        """The number of this floating point type that is nearest to a number: of a half type to
        its nearest one of single precision, as torch rounds.
        """
        if self is DType.F64 or math.isnan(number):
            return number
        single = ctypes.c_float(number).value
        if self is DType.F16:
            try:
                return float(struct.unpack("e", struct.pack("e", single))[0])
            except OverflowError:
                return math.copysign(math.inf, single)
        if self is DType.BF16 and math.isfinite(single):
            (word,) = struct.unpack("I", struct.pack("f", single))
            half_unit = 0x7FFF + (word >> 16 & 1)  # Of two that are as near, the even one.
            return float(struct.unpack("f", struct.pack("I", word + half_unit & 0xFFFF0000))[0])
        return single


BY_TEXT = {dtype.text: dtype for dtype in DType}
BY_TORCH_NAME = {dtype.torch_name: dtype for dtype in DType}


@functools.cache
def from_torch(dtype: torch.dtype) -> DType:
    """The element type for torch's `dtype`. Raises KeyError, with its name, where there is none."""
    return BY_TORCH_NAME[str(dtype).removeprefix("torch.")]
