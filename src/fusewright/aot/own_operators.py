"""Operators of this project that take what one of torch's takes, for library calls in graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fusewright import random_state, torch_compat
from fusewright.torch_compat import OpOverload

_library = torch.library.Library(random_state.NAMESPACE, "FRAGMENT")


@functools.cache
def operator_like(name: str, like: OpOverload, function: Callable[..., Any]) -> OpOverload:
    """`function`, which is called with tensors that have data and with meta tensors, as an operator
    that takes what `like` takes. Torch keeps operators once they are defined: this one is when a
    program first needs it.
    """
    returns = ", ".join(str(one.type) for one in torch_compat.operator_returns(like))
    _library.define(f"{name}({torch_compat.arguments_text(like)}) -> ({returns})")
    _library.impl(name, function, "CompositeExplicitAutograd")
    found: OpOverload = getattr(getattr(torch.ops, random_state.NAMESPACE), name).default
    return found
