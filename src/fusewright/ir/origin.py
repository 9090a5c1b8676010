"""Where IR comes from in the user's program: carried beside it, never inside."""

from __future__ import annotations

from fusewright.records import record


@record
class Origin:
    """One operator of the user's program that a buffer, group or kernel computes."""

    operator: str
    """The ATen operator, for example `aten.gelu.default`."""

    file: str = ""
    line: int = 0
    text: str = ""
    """The user's source line, stripped."""

    module_path: str = ""
    """The module that was running, as `bert.encoder.layer.0.output`."""

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}" if self.file else ""
        return f"{self.operator}{place}"
