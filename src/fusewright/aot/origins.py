"""Where an operator comes from in the user's program: line, stack and module, read from a captured
node's `meta`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from torch import fx

from fusewright.errors import Location

_MODULE_STEP = re.compile(r"\['(\w+)'\]|\[(\d+)\]|\.?(\w+)")
"""One step of a path such as `L['self']._modules['encoder'].layer[0]`."""

_NOT_IN_A_PATH = frozenset({"L", "self", "_modules", "_parameters", "_buffers"})


def origin_of(node: fx.Node) -> dict[str, Any]:
    """The `meta` entries that traced nodes inherit: `location` (or None), `stack_trace`,
    `module_path`, `source`, and of a checkpointed region its number, `checkpoint`.
    """
    meta = node.meta
    trace = meta.get("stack_trace") or ""
    location = meta.get("location")
    if location is None:
        location = last_frame(trace)
    elif not isinstance(location, Location):
        location = Location(*location)
    path = meta.get("module_path")
    if path is None:
        stack = meta.get("nn_module_stack")
        path = module_path(next(reversed(stack.values()))[0]) if stack else ""
    origin = {"location": location, "stack_trace": trace, "module_path": path, "source": node.name}
    return {**origin, "checkpoint": meta["checkpoint"]} if "checkpoint" in meta else origin


def first_location(graph: fx.Graph) -> Location | None:
    """The user's line where a graph begins, captured or traced."""
    location = next(filter(None, (node.meta.get("location") for node in graph.nodes)), None)
    return Location(*location) if isinstance(location, tuple) else location


@functools.lru_cache(maxsize=1024)
def last_frame(trace: str) -> Location | None:
    """The innermost frame of a printed stack trace; None when there is none."""
    _, separator, frame = trace.rpartition('File "')
    if not separator:
        return None
    file, _, rest = frame.partition('", line ')
    head, _, text = rest.partition("\n")
    line = head.partition(",")[0]
    return Location(file, int(line), text.partition("\n")[0].strip()) if line.isdigit() else None


@functools.lru_cache(maxsize=1024)
def module_path(expression: str) -> str:
    """The path of a module, `encoder.layer.0`, from the expression that front ends know it by."""
    steps = (next(filter(None, match.groups())) for match in _MODULE_STEP.finditer(expression))
    return ".".join(step for step in steps if step not in _NOT_IN_A_PATH)
