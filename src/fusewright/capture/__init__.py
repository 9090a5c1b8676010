"""A running Python frame to a torch-level FX graph, guards and new bytecode."""

from __future__ import annotations

from fusewright.capture.frame_capture import Capture, NotCaptured, capture_call
from fusewright.capture.trace import trace

__all__ = ["Capture", "NotCaptured", "capture_call", "trace"]
