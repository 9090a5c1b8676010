"""A systematic test of guards: kinds of values, ways to read them, places, and changes."""

from __future__ import annotations

from tests.capture.soundness import callables, kinds, objects, tensors

KINDS = (*kinds.KINDS, *objects.KINDS, *callables.KINDS, *tensors.KINDS)
