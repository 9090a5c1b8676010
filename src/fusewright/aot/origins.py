"""Where an operator comes from in the user's program: line, stack and module, read from a captured node's `meta`."""

from __future__ import annotations

import re
from typing import Any

from torch import fx

from fusewright.errors import Location

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in .*(?:\n\s*(?P<text>.*))?')
_MODULE_STEP = re.compile(r"L\['self'\]|_modules\['(\w+)'\]|\['(\w+)'\]|\[(\d+)\]|\.?(\w+)")


def origin_of(node: fx.Node) -> dict[str, Any]:
    """The `meta` entries that traced nodes inherit: `location` (or None), `stack_trace`, `module_path`, `source`."""
    meta = node.meta
    trace = meta.get("stack_trace") or ""
    location = meta.get("location")
    if location is None:
        location = last_frame(trace)
    elif not isinstance(location, Location):
        location = Location(*location)
    path = meta.get("module_path")
    if path is None:
        path = module_path(meta.get("nn_module_stack") or {})
    return {"location": location, "stack_trace": trace, "module_path": path, "source": node.name}


def last_frame(trace: str) -> Location | None:
    """The innermost frame of a printed stack trace."""
    found = None
    for found in _FRAME.finditer(trace):
        pass
    if found is None:
        return None
    return Location(found["file"], int(found["line"]), (found["text"] or "").strip())


def module_path(stack: dict[str, Any]) -> str:
    """The innermost module's path, `encoder.layer.0`, from a stack {key: (path as an expression, type)}."""
    if not stack:
        return ""
    expression = list(stack.values())[-1][0]
    steps = [
        next((group for group in match.groups() if group), "")
        for match in _MODULE_STEP.finditer(expression)
    ]
    return ".".join(step for step in steps if step and step not in ("self", "_modules"))
