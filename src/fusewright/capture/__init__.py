"""A running Python frame to a torch-level FX graph, guards and new bytecode."""

from __future__ import annotations

from fusewright.capture.frame_capture import Capture, ProgramRaised, capture_call
from fusewright.capture.trace import trace

__all__ = ["Capture", "ProgramRaised", "capture_call", "trace"]
