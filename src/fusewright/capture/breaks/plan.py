"""Plans for tracing a call: capture tries one plan after the other.

The first plan is to trace the call to its end. An attempt that fails raises `Retrace` with the next
one: to stop before the instruction that cannot be captured, or at an earlier one, or to leave
something out of the graph.
"""

from __future__ import annotations

from typing import Final

from fusewright.capture.graph import ALL_ALLOWED, Permissions
from fusewright.errors import TracedCall, Unsupported
from fusewright.records import record, replace

WIDER: Final = 32
"""The number of instructions searched first for a place to break, and the factor by which it grows
while none of them is one.
"""


@record(kw_only=True)
class TracePlan:
    """The way in which one attempt traces a call."""

    stop: int = -1
    """The number of instructions of the function itself to execute; -1 for all."""

    error: Unsupported | None = None
    """Why the attempt stops there."""

    predicted: TracedCall | None = None
    """The place to stop at, where capture of a call around this one has shown it."""

    window: int = 0
    """The number of instructions before `stop` that are searched for the last place where generated
    code can make all that is live; 0: the attempt breaks at `stop`.
    """

    permissions: Permissions = ALL_ALLOWED
    """Contents that the graph is allowed to have."""

    def whole(self) -> TracePlan:
        """A plan to trace the call to its end, with the same permissions."""
        return TracePlan(permissions=self.permissions)

    def broken(self, stop: int, error: Unsupported) -> TracePlan:
        """A plan to break the graph after `stop` instructions, because of `error`."""
        return TracePlan(stop=stop, error=error, permissions=self.permissions)

    def earlier(self, stop: int) -> TracePlan:
        """A plan to break the graph earlier, after `stop` instructions. Raises the reason for the
        break where the function has done nothing by then.
        """
        assert self.error is not None, "a frame stops at a known break"
        if stop <= 1:
            raise self.error
        return self.broken(stop, self.error)

    def searching(self) -> TracePlan:
        """A plan to look for an earlier place to break, among more instructions than this one looks
        at. Raises the reason for the break where there are none.
        """
        assert self.error is not None, "a frame stops at a known break"
        if self.stop - self.window <= 1:
            raise self.error
        return replace(self, predicted=None, window=max(self.window, 1) * WIDER)


class Retrace(Exception):
    """The call has to be traced again, by another plan."""

    def __init__(self, plan: TracePlan) -> None:
        self.plan = plan
