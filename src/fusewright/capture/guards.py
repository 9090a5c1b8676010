"""Guards: the facts about the outside world that captured code relies on, each with its source and
the user's line.
"""

from __future__ import annotations

import enum
from typing import Any

from fusewright import torch_compat
from fusewright.capture.sources import Source, StateSource
from fusewright.errors import Location
from fusewright.records import record


class GuardKind(enum.Enum):
    """What a guard compares; `x` is what its source names, `expected` what tracing found."""

    TYPE = "type"
    """`type(x) is expected`."""

    IDENTITY = "identity"
    """`x is expected`; the object is held weakly where it can be."""

    CODE = "code"
    """`x.__code__ is expected`, for a function."""

    EQUALS = "equals"
    """`type(x) is type(expected) and x == expected`, with NaN equal to itself and 0.0 unlike -0.0.
    """

    TENSOR = "tensor"
    """`x` has the class, dtype, device, layout, sizes, strides and requires_grad of the tensor
    `expected`.
    """

    LENGTH = "length"
    """`len(x) == expected`, for a built-in container or an instance of a subclass."""

    DICT_KEYS = "dict keys"
    """The keys of dict `x`, in order, are the tuple `expected`."""

    DICT_CONTAINS = "dict contains"
    """`expected in x`, past an overridden `__contains__`."""

    DICT_ABSENT = "dict absent"
    """`expected not in x`, past an overridden `__contains__`."""

    SET_EQUALS = "set equals"
    """`frozenset(x) == expected`."""

    ATTRIBUTES = "attributes"
    """The keys of `x.__dict__`, in order, are the tuple `expected`."""

    ABSENT = "absent"
    """`expected not in x.__dict__`."""

    ATTRIBUTE_ABSENT = "attribute absent"
    """`x` has no attribute named `expected`; only where asking runs no user code."""

    PRESENT = "present"
    """There is something at the source: it may be handed on, whatever it is."""

    CLASS_ABSENT = "class absent"
    """No class in the method resolution order of class `x` has an attribute named `expected`."""

    SAME = "same"
    """`x is y`, where `y` is what the source `expected` names."""

    DISTINCT = "distinct"
    """The objects that the sources in the tuple `expected` name are pairwise different."""

    MEMORY = "memory"
    """The tensors lie in memory beside each other as they did: which share a storage, and where;
    `expected` is a tuple of pairs of a source and a `Placement`.
    """

    SHAPES = "shapes"
    """The relations of the `ShapeGuard` `expected` hold between sizes and integers; no source."""

    GLOBAL_STATE = "global state"
    """Grad mode, inference mode, autocast, default dtype and device, … are as they were; no source,
    nothing expected.
    """


@record
class Guard:
    """One fact."""

    kind: GuardKind
    source: Source | None
    expected: Any = None
    location: Location | None = None
    """The user's line that made the fact matter."""


def current_gpu() -> Guard:
    """The thread's current GPU is as it is now."""
    read = torch_compat.cuda.device
    return Guard(GuardKind.EQUALS, StateSource("torch.cuda.current_device()", read), read())
