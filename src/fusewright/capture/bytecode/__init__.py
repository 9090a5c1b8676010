"""Python bytecode as data: take code objects apart, write new ones. Knows nothing of torch."""

from __future__ import annotations

from fusewright.capture.bytecode.assembler import assemble
from fusewright.capture.bytecode.builder import Builder, new_unit, with_body
from fusewright.capture.bytecode.disassembler import (
    disassemble,
    handles_exceptions,
    header,
    taken_apart,
)
from fusewright.capture.bytecode.instruction import (
    LABEL,
    NO_POSITIONS,
    CodeUnit,
    ExceptionRegion,
    Instruction,
    OffsetOf,
    Positions,
)
from fusewright.capture.bytecode.operations import consumed, produced, skipped_by_jump

__all__ = [
    "LABEL",
    "NO_POSITIONS",
    "Builder",
    "CodeUnit",
    "ExceptionRegion",
    "Instruction",
    "OffsetOf",
    "Positions",
    "assemble",
    "consumed",
    "disassemble",
    "handles_exceptions",
    "header",
    "new_unit",
    "produced",
    "skipped_by_jump",
    "taken_apart",
    "with_body",
]
