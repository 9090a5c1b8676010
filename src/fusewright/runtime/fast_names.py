"""Operators that compiled programs call as plain functions."""

from __future__ import annotations

from typing import Final

FAST_NAMES: Final = {
    "aten.mm.out": "torch.mm",
    "aten.mm.default": "torch.mm",
    "aten.addmm.out": "torch.addmm",
    "aten.addmm.default": "torch.addmm",
    "aten.bmm.out": "torch.bmm",
    "aten.bmm.default": "torch.bmm",
    "aten.baddbmm.out": "torch.baddbmm",
    "aten.baddbmm.default": "torch.baddbmm",
    "aten.convolution.default": "torch.convolution",
    "fusewright.rnn_tanh.default": "torch.rnn_tanh",
    "fusewright.rnn_relu.default": "torch.rnn_relu",
    "aten.bernoulli.p": "runtime.bernoulli",
}
"""Operators that have a plain function with the same arguments: its argument parser is 1 µs faster
than `torch.ops`, and 10 µs where the operator is written in Python; or one of ours is faster.
All of them read elements only, and keep no tensor that they are given.
"""

OPERATOR_OF_FUNCTION: Final = {
    path: name for name, path in FAST_NAMES.items() if not name.endswith(".out")
}
"""By path of such a function, the operator that it is; its results are new."""
