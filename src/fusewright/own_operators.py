"""Operators of this project, for library calls in graphs. Torch keeps operators once they are
defined: each is when a program first needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.torch_compat import OpOverload

NAMESPACE: Final = "fusewright"


@functools.cache
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "FRAGMENT")


def define(
    name: str,
    signature: str,
    function: Callable[..., Any],
    *,
    namespace: str = NAMESPACE,
    tags: Sequence[torch.Tag] = (),
) -> OpOverload:
    """A new operator that runs `function`, which is called with tensors that have data and with
    meta tensors.
    """
    library = _library(namespace)
    library.define(name + signature, tags=tuple(tags))
    library.impl(name, function, "CompositeExplicitAutograd")
    operator: OpOverload = getattr(getattr(torch.ops, namespace), name).default
    return operator


@functools.cache
def operator_like(name: str, like: OpOverload, function: Callable[..., Any]) -> OpOverload:
    """`function` as an operator that takes what `like` takes, and gives as many tensors."""
    returns = ", ".join(str(result.type) for result in torch_compat.operator_returns(like))
    return define(name, f"({torch_compat.arguments_text(like)}) -> ({returns})", function)
