"""Every kind of value that guards are tested on."""

from __future__ import annotations

from tests.capture.soundness import callables, objects, plain, tensors

KINDS = (*plain.KINDS, *objects.KINDS, *callables.KINDS, *tensors.KINDS)
