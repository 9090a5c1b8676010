"""Two subclasses of tensors as users write them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map


class Labelled(torch.Tensor):
    """Follows functions: its results are of its class."""


class Dispatched(torch.Tensor):
    """Wraps another tensor and follows operators."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Dispatched:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )
        made.inner = inner.detach()
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def unwrap(value: Any) -> Any:
            return value.inner if isinstance(value, cls) else value

        def wrap(value: Any) -> Any:
            return cls(value) if isinstance(value, torch.Tensor) else value

        result = function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(wrap, result)
