"""Prediction of breaks: a break in a call that was inlined breaks each call around it.

    def model(x):                    The instruction `block(x)` of `model` runs natively, and calls
        return block(x)              `block`, which is captured by itself up to `layer(x)`; that
                                     runs natively, and calls `layer`, …
    def block(x):
        return layer(x)              Capturing `model` has shown all of them already, so that none
                                     but `model` is traced to the point where it fails, to be traced
    def layer(x):                    again from the start up to its break.
        return x * x.max().item()

A prediction is checked when it is used: the call must come to the same instruction, after as many
others. Where it does not, capture goes on as if there had been none.
"""

from __future__ import annotations

from types import CodeType

from fusewright.capture.reasons import LASTING
from fusewright.errors import Unsupported


class PredictedBreak:
    """The break expected of the next call, which runs natively because of a break around it."""

    def __init__(self) -> None:
        self._error: Unsupported | None = None

    def expect(self, error: Unsupported) -> None:
        """Note why a call breaks, at an instruction that is about to run natively."""
        self._error = error if error.reason in LASTING else None

    def take(self, code: CodeType) -> Unsupported | None:
        """Why and where (`calls[0]`) a call of `code` will break, which is about to be captured;
        None if that is not known. It is to be expected once more if it does: a prediction is of the
        next capture alone.
        """
        error, self._error = self._error, None
        if error is None:
            return None
        depths = (depth for depth, call in enumerate(error.calls) if depth and call.code is code)
        depth = next(depths, None)
        return None if depth is None else error.seen_from(depth)
