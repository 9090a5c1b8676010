"""Guards: the facts about the outside world that captured code relies on, each with its source and
the user's line, and the program in C that checks them at every call.

    kinds           what guards compare: one row a kind
    tensor_pattern  what is expected of a tensor
    placement       how the inputs of a graph that writes lie in memory
    shapes          relations between symbolic sizes and numbers
    states          what is expected of torch and the thread
    program         guards as a tree of objects to load and test
    guard_set       whether the guards of one compiled function hold, and in words which failed
"""

from fusewright.capture.guards.guard_set import Check, GuardSet
from fusewright.capture.guards.kinds import Guard, GuardKind, Kind
from fusewright.capture.guards.placement import has_memory, placements
from fusewright.capture.guards.program import build_guards
from fusewright.capture.guards.shapes import Reading, ShapeGuard
from fusewright.capture.guards.states import current_gpu
from fusewright.capture.guards.tensor_pattern import Extents, TensorPattern

__all__ = [
    "Check",
    "Extents",
    "Guard",
    "GuardKind",
    "GuardSet",
    "Kind",
    "Reading",
    "ShapeGuard",
    "TensorPattern",
    "build_guards",
    "current_gpu",
    "has_memory",
    "placements",
]
