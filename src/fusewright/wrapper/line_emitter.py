"""The base of the emitters: which of their methods writes a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fusewright.ir.lines import (
    Allocate,
    Arena,
    AssertLayout,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CheckNan,
    Conditional,
    CopyInto,
    DebugPrint,
    DefineChoice,
    DefineDevice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Return,
    Reuse,
    ScanLoop,
    TakeConstant,
    TakeInput,
    View,
    WhileLoop,
)
from fusewright.ir.program import CheckFact, ComputeNumber, ReadItem, ReadSize

METHODS: Final[Mapping[type, str]] = {
    DefineDevice: "define_device",
    DefineSymbol: "define_symbol",
    TakeInput: "take_input",
    TakeConstant: "take_constant",
    View: "view",
    EnsureLayout: "ensure_layout",
    Allocate: "allocate",
    Arena: "allocate_arena",
    Place: "place_in_arena",
    Reuse: "reuse",
    FreeIfNotReused: "free",
    Free: "free",
    DefineKernel: "define_kernel",
    CallKernel: "call_kernel",
    DefineChoice: "define_choice",
    CallChoice: "call_choice",
    CallExtern: "call_extern",
    CallExternOut: "call_extern_out",
    CallProgram: "call_program",
    CallUserTriton: "call_user_triton",
    Conditional: "conditional",
    WhileLoop: "while_loop",
    ScanLoop: "scan",
    ComputeNumber: "compute_number",
    ReadSize: "read_size",
    ReadItem: "read_item",
    CheckFact: "check_fact",
    CopyInto: "copy_into",
    DebugPrint: "debug_print",
    CheckNan: "check_nan",
    AssertLayout: "assert_layout",
    Return: "give_back",
}
"""By class of line, the method that takes it."""


class LineEmitter:
    """Writes lines, by a method for each class of them."""

    def __init_subclass__(cls) -> None:
        """TypeError: the emitter lacks a method."""
        missing = [name for name in METHODS.values() if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"{cls.__qualname__} has no {', '.join(missing)}")

    def write_line(self, line: Line) -> None:
        """Write what `line` says."""
        getattr(self, METHODS[type(line)])(line)
