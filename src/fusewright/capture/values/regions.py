"""Objects that stand for a region of code in which a mode of torch's thread is on."""

from __future__ import annotations

from typing import Any

from fusewright import torch_compat
from fusewright.capture.values.base import Value


class InferenceRegionValue(Value):
    """The region that `torch.inference_mode` enters and leaves.

    It cannot be made again in generated code: where the graph breaks inside such a region, the
    region is entered and left for real, between graphs.
    """

    __slots__ = ("entered", "node")

    def __init__(self, entered: Any, node: Any) -> None:
        super().__init__(None)
        self.entered = entered
        """Torch's own object, entered for tracing."""
        self.node = node
        """The graph's node that enters the region."""

    def python_type(self) -> type:
        return type(self.entered)

    def leave(self) -> None:
        """Put the thread back into the mode that it was in."""
        torch_compat.states.leave_inference_mode(self.entered)


class IndexRegionValue(Value):
    """torch's mode in which `x[i]`, where `i` is a tensor without dimensions, reads an element at a
    place that stays a tensor. Outside of the mode eager looks at the number in `i` and gives a
    view, which vmap cannot do. Mask functions of attention run in it; generated code cannot enter
    it.
    """

    __slots__ = ("mode",)

    def __init__(self, mode: Value) -> None:
        super().__init__(None)
        self.mode = mode

    def python_type(self) -> type:
        return self.mode.python_type()

    def leave(self) -> None:
        """The thread was not changed: functions on fakes mean what they mean."""
