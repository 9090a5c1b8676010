"""Machine code for GPUs as files and packages hold it."""

from __future__ import annotations

import json
from typing import Any, Final

from fusewright.records import record

FORMAT: Final = 1
"""Number of the format of machine code in files: others are not read."""


@record(kw_only=True)
class Cubin:
    """The machine code of one kernel, with what a launch has to know."""

    code: bytes
    function: str
    """Its name in the code."""

    warps: int
    shared_bytes: int
    parameters: int
    """How many the function takes: behind those of the source, Triton's own."""

    scratch_bytes: int
    """How much scratch memory the kernel asks its caller for."""

    def to_bytes(self) -> bytes:
        names = [name for name in type(self).__annotations__ if name != "code"]
        head = {name: getattr(self, name) for name in names}
        line = json.dumps({"format": FORMAT, **head})
        return line.encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Cubin | None:
        """None: this is no machine code in today's format."""
        line, _, code = data.partition(b"\n")
        try:
            head: dict[str, Any] = json.loads(line)
            if head.pop("format") != FORMAT:
                return None
            return cls(code=code, **head)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
