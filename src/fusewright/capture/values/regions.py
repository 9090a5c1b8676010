"""Objects that stand for a region of code in which a mode of torch's thread is on."""

from __future__ import annotations

from typing import Any

from fusewright.capture.values.base import Value


class InferenceRegionValue(Value):
    """What `torch.inference_mode` enters and leaves.

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
