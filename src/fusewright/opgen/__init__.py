"""Operators for external hardware: a backend gives one kernel an operator, and gets its variants.

`generate` turns a backend's YAML into files, `write_files` writes them; `fusewright opgen` does
both.
"""

from __future__ import annotations

from fusewright.opgen.files import write_files
from fusewright.opgen.generate import TARGETS, generate

__all__ = ["TARGETS", "generate", "write_files"]
