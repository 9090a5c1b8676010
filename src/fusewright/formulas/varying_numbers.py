"""Formulas of torch whose C++ takes a float as a plain number: written in operators that take one
which varies, so that a program need not be compiled for each.

Each function has the parameters of the one that it stands for and gives its result, in the same
layout, to the last few bits; it gives NotImplemented where it does not cover a call, which is then
made as it stands, with the number as a constant.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fusewright import random_state
from fusewright.formulas.table import Formula, When, formula, formula_of_call

_KINDS: Final = (
    (When.VARYING_REAL, (torch.SymFloat,)),
    (When.VARYING_NUMBER, (torch.SymFloat, torch.SymInt)),
)

_varying_real = functools.partial(formula, when=When.VARYING_REAL)


def written_out(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Formula | None:
    """The formula of a call that has a number among its arguments which varies; None where there is
    no such number, or torch takes it as it is.
    """
    for when, kinds in _KINDS:
        written = formula_of_call(function, when)
        if written is not None and not any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
            return written if _holds([*args, *kwargs.values()], kinds) else None
    return None


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value, or one in lists there, is of these kinds."""
    if isinstance(value, list | tuple):
        return any(_holds(item, kinds) for item in value)
    return isinstance(value, kinds)


def _is_unusual(options: Mapping[str, Any]) -> bool:
    """Whether options of a function that makes tensors ask for more than a plain one."""
    return any(value not in (None, False, torch.strided) for value in options.values())


def _is_real(*numbers: Any) -> bool:
    return any(isinstance(number, torch.SymFloat) for number in numbers)


# -- tensors of numbers ----------------------------------------------------------------------------


@formula(torch.tensor, torch.as_tensor, when=When.VARYING_NUMBER)
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Any:
    """`torch.tensor`, of numbers and lists of numbers."""
    if requires_grad or _holds(data, (Tensor, complex)) or _is_unusual(options):
        return NotImplemented
    if dtype is None:
        of_floats = _holds(data, (float, torch.SymFloat))
        dtype = torch.get_default_dtype() if of_floats else torch.int64
    if not isinstance(data, list | tuple):
        return torch.full((), data, dtype=dtype, device=device)
    rows = [tensor(row, dtype=dtype, device=device) for row in data]
    return torch.stack(rows)


@formula(torch.Tensor.new_tensor, when=When.VARYING_NUMBER)
def new_tensor(
    like: Tensor, data: Any, *, dtype: Any = None, device: Any = None, **options: Any
) -> Any:
    """`Tensor.new_tensor`."""
    return tensor(data, dtype=dtype or like.dtype, device=device or like.device, **options)


@formula(F.one_hot, when=When.VARYING_NUMBER)
def one_hot(places: Tensor, num_classes: Any = -1) -> Any:
    """`F.one_hot` of a number of classes that varies."""
    if places.dtype is not torch.int64 or num_classes < 1:
        return NotImplemented
    zeros = places.new_zeros((*places.shape, num_classes))
    return zeros.scatter(-1, places.unsqueeze(-1), 1)


@_varying_real(torch.arange)
def arange(*bounds: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """`torch.arange`, of floats: the count is guarded."""
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if (
        _is_unusual(options)
        or not _is_real(start, end, step)
        or not (dtype is None or dtype.is_floating_point)
    ):
        return NotImplemented
    if step == 0 or (end - start) / step < 0:
        return NotImplemented  # an error
    places = torch.arange(math.ceil((end - start) / step), dtype=torch.float64, device=device)
    return (places * step + start).to(dtype or torch.get_default_dtype())


def _is_differentiated(*values: Any) -> bool:
    """Whether a gradient may be asked for with respect to one of them."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _between_tensors(function: Formula, *, for_gradient: bool = False) -> Formula:
    """A function of tensors, where numbers are given for some. `for_gradient`: it takes numbers,
    but what computes its gradient does not.
    """

    def call(*operands: Any, **options: Any) -> Any:
        like = next((operand for operand in operands if isinstance(operand, Tensor)), None)
        if (
            like is None
            or like.is_complex()
            or (for_gradient and not _is_differentiated(*operands))
        ):
            return NotImplemented
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        tensors = [
            operand
            if isinstance(operand, Tensor)
            else torch.full((), operand, dtype=dtype, device=like.device)
            for operand in operands
        ]
        return function(*tensors, **options)

    return call


for _function in (
    torch.floor_divide, torch.Tensor.floor_divide, torch.div, torch.Tensor.div, torch.xlogy,
    torch.special.xlogy, torch.special.xlog1py, torch.special.zeta, torch.bucketize,
    torch.searchsorted,
):  # fmt: skip
    _varying_real(_function)(_between_tensors(_function))
_varying_real(operator.floordiv)(_between_tensors(torch.floor_divide))
_varying_real(torch.lerp, torch.Tensor.lerp)(_between_tensors(torch.lerp, for_gradient=True))

power = _between_tensors(torch.pow, for_gradient=True)
formula(operator.pow, torch.pow, torch.Tensor.pow, when=When.VARYING_NUMBER)(power)


@formula(torch.Tensor.__rpow__, when=When.VARYING_NUMBER)
def reversed_power(exponent: Any, base: Any) -> Any:
    """`Tensor.__rpow__`."""
    return power(base, exponent)


# -- padding and attention ------------------------------------------------------------------------


@_varying_real(F.pad)
def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """`F.pad` with a number."""
    return torch.constant_pad_nd(x, pad, value) if mode == "constant" else NotImplemented


@_varying_real(F.scaled_dot_product_attention)
def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: Any = 0.0,
    is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """`F.scaled_dot_product_attention`: the query is scaled beforehand."""
    if query.dtype not in (torch.float32, torch.float64) or not _is_real(scale):
        return NotImplemented
    return F.scaled_dot_product_attention(
        query * scale, key, value, attn_mask, dropout_p, is_causal, scale=1.0, enable_gqa=enable_gqa
    )


# -- random numbers --------------------------------------------------------------------------------


def _drawn(like: Tensor, distribution: str, *parameters: Any) -> Any:
    """Draws in the layout of `like`, as `like.distribution_(*parameters)` makes them."""
    if like.device.type != "cpu":
        return NotImplemented
    return random_state.operator("draw")(like.detach(), distribution, *parameters)


def _drawn_into(distribution: str, names: tuple[str, ...], defaults: tuple[float, ...]) -> Formula:
    """`Tensor.uniform_` and its like."""

    def call(target: Tensor, *positional: Any, generator: Any = None, **named: Any) -> Any:
        if generator is not None or not target.is_contiguous() or not target.is_floating_point():
            return NotImplemented
        values = [*positional, *[None] * (len(names) - len(positional))]
        parameters = [
            named.get(name, default) if value is None else value
            for name, value, default in zip(names, values, defaults, strict=True)
        ]
        drawn = _drawn(target, distribution, *parameters)
        return drawn if drawn is NotImplemented else target.copy_(drawn)

    return call


for _name, _parameters, _defaults in (
    ("bernoulli", ("p",), (0.5,)),
    ("uniform", ("from", "to"), (0.0, 1.0)),
    ("normal", ("mean", "std"), (0.0, 1.0)),
    ("exponential", ("lambd",), (1.0,)),
    ("geometric", ("p",), (0.5,)),
    ("log_normal", ("mean", "std"), (1.0, 2.0)),
    ("cauchy", ("median", "sigma"), (0.0, 1.0)),
):
    _into = _drawn_into(_name, _parameters, _defaults)
    _varying_real(getattr(torch.Tensor, f"{_name}_"))(_into)


@_varying_real(torch.bernoulli, torch.Tensor.bernoulli)
def bernoulli(x: Tensor, p: Any = None, *, generator: Any = None) -> Any:
    """`torch.bernoulli(x, p)`."""
    if generator is not None or not x.is_contiguous():
        return NotImplemented
    return _drawn(x, "bernoulli", p)


@_varying_real(torch.normal)
def normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    """`torch.normal`, of numbers or tensors."""
    if size is not None:
        drawn = _drawn(torch.empty(size, **options), "normal", mean, std)
    elif options or not all(
        isinstance(parameter, Tensor) for parameter in (mean, std) if not _is_real(parameter)
    ):
        return NotImplemented
    else:
        like = mean if isinstance(mean, Tensor) else std
        drawn = _drawn(like, "normal", 0.0, 1.0)
        return drawn if drawn is NotImplemented else drawn * std + mean
    return drawn


@_varying_real(F.dropout)
def dropout(x: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`F.dropout`."""
    return _dropped(x, x, p, training, inplace)


def _dropped(x: Tensor, like: Tensor, p: Any, training: bool, inplace: bool) -> Any:
    """`x` with what is dropped where `like` has a place for it."""
    if inplace or not 0 < p < 1 or not x.is_floating_point() or x.numel() == 0:
        return NotImplemented
    if not training:
        return x
    kept = _drawn(like, "bernoulli", 1 - p)
    return kept if kept is NotImplemented else x * ((kept != 0).to(x.dtype) / (1 - p))


def _channels(x: Tensor) -> Tensor:
    """A tensor of one element for each channel."""
    return x.new_empty((*x.shape[:2], *[1] * (x.dim() - 2)))


def _feature_dropout(dims: int) -> Formula:
    def call(x: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return (
            _dropped(x, _channels(x), p, training, inplace) if x.dim() == dims else NotImplemented
        )

    return call


for _dims, _function in enumerate((F.dropout1d, F.dropout2d, F.dropout3d), 3):
    _varying_real(_function)(_feature_dropout(_dims))
