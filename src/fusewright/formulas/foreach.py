"""Operators on lists of tensors, taken apart while tracing, so that each tensor's loops can fuse
with others.

    _foreach_add([a, b], [c, d])   ->   add(a, c), add(b, d)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.fake_rules.arguments import by_name
from fusewright.torch_compat import OpOverload

PREFIX = "_foreach_"


def is_foreach(op: OpOverload) -> bool:
    """Whether an operator does the same to each tensor of a list."""
    return op.overloadpacket.__name__.startswith(PREFIX)


def apply_to_each(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The results of an operator on lists that writes nothing, computed one by one; NotImplemented
    for an operator that has no plain form, or factors that are known only when it runs.
    """
    single = _single_form(op)
    names = [argument.name for argument in torch_compat.operator_arguments(op)]
    arguments = by_name(names, args, kwargs)
    if single is None or isinstance(arguments.get("scalars"), Tensor):
        return NotImplemented
    listed = [name for name, value in arguments.items() if isinstance(value, list | tuple)]
    return [
        single(**arguments | dict(zip(listed, items, strict=True)))
        for items in zip(*(arguments[name] for name in listed), strict=True)
    ]


@functools.cache
def _single_form(op: OpOverload) -> Callable[..., Tensor] | None:
    """The form of an operator for one tensor, with the arguments' names of the operator on
    lists.
    """
    name = op.overloadpacket.__name__.removeprefix(PREFIX)
    if name in _FORMS:
        return _FORMS[name]
    function = getattr(torch, name, None)
    return None if function is None else functools.partial(_call, function)


def _call(function: Callable[..., Tensor], **arguments: Any) -> Tensor:
    """Call a function of torch with tensors and a scalar by position, the rest by name."""
    options = {
        name: arguments.pop(name) for name in ("alpha", "memory_format") if name in arguments
    }
    return function(*arguments.values(), **options)


def _scaled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def form(
        self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1, scalars: Any = None
    ) -> Tensor:
        return function(self, tensor1, tensor2, value=value if scalars is None else scalars)

    return form


def _bounded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def form(self: Tensor, other: Any = None, scalar: Any = None, scalars: Any = None) -> Tensor:
        return function(
            self, next(bound for bound in (other, scalar, scalars) if bound is not None)
        )

    return form


def _norm(self: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    return torch.linalg.vector_norm(self, ord, dtype=dtype)


def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return torch.ops.aten.copy.default(self, src)


def _zero(self: Tensor) -> Tensor:
    return torch.zeros_like(self)


_FORMS: dict[str, Callable[..., Tensor]] = {
    "addcmul": _scaled(torch.addcmul),
    "addcdiv": _scaled(torch.addcdiv),
    "maximum": _bounded(torch.clamp_min),
    "minimum": _bounded(torch.clamp_max),
    "norm": _norm,
    "copy": _copy,
    "zero": _zero,
}
"""Names of operators whose form for one tensor torch calls otherwise."""
