"""Objects whose end runs code of the program: a generator that waits inside `try` or `with`, and
whatever has `__del__`.

When the last reference to one goes, that code runs at once, between two instructions. Generated
code drops objects when a call ends, so a call that holds the last reference runs as it is.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any, Final

import torch

from fusewright.capture.bytecode import handles_exceptions
from fusewright.native import Frame

_GENERATORS: Final = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, collections.deque)
_MOST_OBJECTS: Final = 256

_OWN_REFERENCES: Final = 4
"""The number of references to an argument that its call alone holds: from the continuation or the
interpreter's frame, from `Frame.locals`, from a variable here, and as an argument of `getrefcount`.
"""

_REFERENCES_TO_A_PART: Final = 4
"""The number of references to an object that one other alone holds: from that, from the list of its
parts, from a variable here, and as an argument of `getrefcount`.
"""


def has_finalizer(cls: type) -> bool:
    """Whether instances of a class run code written in Python when they are dropped."""
    return isinstance(getattr(cls, "__del__", None), types.FunctionType)


def holds_last_references(frame: Frame) -> bool:
    """Whether a call alone holds an object whose end the program could notice: dropping it runs
    code of the program, or ends a weak reference, except to tensors: most of those are torch's own.
    """
    return any(
        _is_noticed(argument)
        for argument in frame.locals.values()
        if sys.getrefcount(argument) <= _OWN_REFERENCES
    )


def _is_noticed(object: Any) -> bool:
    """Whether the program could notice the end of an object, or of a part held by it alone."""
    waiting = [object]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return False
        item = waiting.pop()
        cls = type(item)
        if has_finalizer(cls):
            return True
        if isinstance(item, _GENERATORS):
            if _may_clean_up(item):
                return True
        elif not isinstance(item, torch.Tensor) and weakref.getweakrefcount(item):
            return True
        if isinstance(item, (*_CONTAINERS, Iterator)):
            for part in gc.get_referents(item):
                if gc.is_tracked(part) and sys.getrefcount(part) <= _REFERENCES_TO_A_PART:
                    waiting.append(part)
    return False


def _may_clean_up(generator: Any) -> bool:
    """Whether a generator has code left that runs when it is dropped."""
    frame = getattr(generator, "gi_frame", None) or getattr(generator, "cr_frame", None)
    return frame is not None and handles_exceptions(frame.f_code)
