"""Python bytecode as data: take code objects apart, write new ones. Knows nothing of torch."""

from __future__ import annotations

from fusewright.capture.bytecode.assembler import assemble
from fusewright.capture.bytecode.builder import Builder, new_unit, with_body
from fusewright.capture.bytecode.disassembler import disassemble
from fusewright.capture.bytecode.instruction import (
    LABEL,
    NO_POSITIONS,
    CodeUnit,
    ExceptionRegion,
    Instruction,
    Positions,
)

__all__ = [
    "LABEL",
    "NO_POSITIONS",
    "Builder",
    "CodeUnit",
    "ExceptionRegion",
    "Instruction",
    "Positions",
    "assemble",
    "disassemble",
    "new_unit",
    "with_body",
]
