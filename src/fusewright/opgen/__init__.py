"""Operators for external hardware: a backend gives one kernel an operator, and gets its variants.

`generate` turns a backend's YAML into files, `write_files` writes them; `fusewright opgen` does
both.
"""

from __future__ import annotations

from fusewright.opgen.declarations import read_declarations
from fusewright.opgen.emit_cpp import PER_FILE
from fusewright.opgen.files import write_files
from fusewright.opgen.generate import TARGETS, emit, generate, read_plan
from fusewright.opgen.report import summary, survey

__all__ = [
    "PER_FILE",
    "TARGETS",
    "emit",
    "generate",
    "read_declarations",
    "read_plan",
    "summary",
    "survey",
    "write_files",
]
