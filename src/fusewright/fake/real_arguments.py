"""Functions of torch whose C++ takes a float as a plain number: written in operators that take one
which varies, so that a program need not be compiled for each.

Each function has the parameters of the one that it stands for and gives its result, in the same
layout, to the last few bits; it gives NotImplemented where it does not cover a call, which is then
made as it stands, with the number as a constant.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fusewright import random_state

Function = Callable[..., Any]

VARYING: Final = (torch.SymFloat, torch.SymInt)


def written_out(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Function | None:
    """What makes a call, given its arguments, that has a number among them which varies; None where
    there is no such number, or torch takes it as it is.
    """
    found = find(WRITTEN_OUT, function)
    if found is None or any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        return None
    written = getattr(found, "func", found)
    kinds = VARYING if written in (tensor, new_tensor, one_hot) else (torch.SymFloat,)
    return found if _holds([*args, *kwargs.values()], kinds) else None


def find(table: Mapping[Any, Function], function: Any) -> Function | None:
    """What stands in a table for a function; for a method of a tensor, with that as an argument."""
    owner = getattr(function, "__self__", None)
    try:
        if isinstance(owner, Tensor):
            found = table.get(getattr(torch.Tensor, function.__name__, None))
            return found and functools.partial(found, owner)
        return table.get(function)
    except TypeError:  # it has no hash
        return None


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value, or one in lists there, is of these kinds."""
    if isinstance(value, list | tuple):
        return any(_holds(one, kinds) for one in value)
    return isinstance(value, kinds)


def _is_unusual(options: Mapping[str, Any]) -> bool:
    """Whether options of a function that makes tensors ask for more than a plain one."""
    return any(value not in (None, False, torch.strided) for value in options.values())


def _is_real(*numbers: Any) -> bool:
    return any(isinstance(number, torch.SymFloat) for number in numbers)


# -- tensors of numbers ----------------------------------------------------------------------------


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


def new_tensor(
    like: Tensor, data: Any, *, dtype: Any = None, device: Any = None, **options: Any
) -> Any:
    """`Tensor.new_tensor`."""
    return tensor(data, dtype=dtype or like.dtype, device=device or like.device, **options)


def one_hot(places: Tensor, num_classes: Any = -1) -> Any:
    """`F.one_hot` of a number of classes that varies."""
    if places.dtype is not torch.int64 or num_classes < 1:
        return NotImplemented
    zeros = places.new_zeros((*places.shape, num_classes))
    return zeros.scatter(-1, places.unsqueeze(-1), 1)


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


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, **options: Any
) -> Any:
    """`torch.linspace`: counted from the nearer end."""
    dtype = dtype or torch.get_default_dtype()
    if _is_unusual(options) or _holds([start, end], (Tensor,)) or steps < 2:
        return NotImplemented
    if dtype not in (torch.float32, torch.float64):
        return NotImplemented
    places = torch.arange(steps, dtype=dtype, device=device)
    step = (end - start) / (steps - 1)
    return torch.where(
        places < steps // 2, start + places * step, end - (steps - 1 - places) * step
    )


def logspace(start: Any, end: Any, steps: int, base: Any = 10.0, **options: Any) -> Any:
    """`torch.logspace`."""
    exponents = linspace(start, end, steps, **options)
    return exponents if exponents is NotImplemented else base**exponents


def _is_differentiated(*values: Any) -> bool:
    """Whether a gradient may be asked for with respect to one of them."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _between_tensors(function: Function, *, for_gradient: bool = False) -> Function:
    """A function of tensors, where numbers are given for some. `for_gradient`: it takes numbers,
    but what computes its gradient does not.
    """

    def call(*operands: Any, **options: Any) -> Any:
        like = next((each for each in operands if isinstance(each, Tensor)), None)
        if (
            like is None
            or like.is_complex()
            or (for_gradient and not _is_differentiated(*operands))
        ):
            return NotImplemented
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        tensors = [
            each
            if isinstance(each, Tensor)
            else torch.full((), each, dtype=dtype, device=like.device)
            for each in operands
        ]
        return function(*tensors, **options)

    return call


power = _between_tensors(torch.pow, for_gradient=True)
interpolated = _between_tensors(torch.lerp, for_gradient=True)


def reversed_power(exponent: Any, base: Any) -> Any:
    """`Tensor.__rpow__`."""
    return power(base, exponent)


def float_power(base: Any, exponent: Any) -> Any:
    """`torch.float_power`: in double precision."""
    operands = [each.double() if isinstance(each, Tensor) else each for each in (base, exponent)]
    found = power(*operands)
    return operands[0] ** operands[1] if found is NotImplemented else found


# -- elements --------------------------------------------------------------------------------------


def nan_to_num(x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    """`torch.nan_to_num`."""
    if not x.is_floating_point():
        return NotImplemented
    limits = torch.finfo(x.dtype)
    x = torch.where(x.isnan(), 0.0 if nan is None else nan, x)
    x = torch.where(x == math.inf, limits.max if posinf is None else posinf, x)
    return torch.where(x == -math.inf, limits.min if neginf is None else neginf, x)


def logit(x: Tensor, eps: Any = None) -> Any:
    """`torch.logit`."""
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    x = x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def isclose(
    x: Tensor, y: Tensor, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Any:
    """`torch.isclose`."""
    if rtol < 0 or atol < 0 or x.dtype != y.dtype or not x.is_floating_point():
        return NotImplemented
    distance = (x - y).abs()
    close = (x == y) | (distance.isfinite() & (distance <= atol + (rtol * y).abs()))
    return close | (x.isnan() & y.isnan()) if equal_nan else close


def rrelu(
    x: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """`F.rrelu` outside training."""
    if training or inplace:
        return NotImplemented
    return F.leaky_relu(x.contiguous(), (lower + upper) / 2)


def celu(x: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Any:
    """`F.celu`."""
    if inplace or not _is_differentiated(x):
        return NotImplemented
    below = torch.where(x > 0, 0, x)
    return torch.where(x > 0, x, alpha * torch.expm1(below / alpha))


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """`F.pad` with a number."""
    return torch.constant_pad_nd(x, pad, value) if mode == "constant" else NotImplemented


def trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Any:
    """`torch.trapezoid` of even steps."""
    pairs = _neighbours(y, x, dim)
    return pairs if pairs is NotImplemented else pairs.sum(dim) * (dx / 2)


def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Any:
    """`torch.cumulative_trapezoid` of even steps."""
    pairs = _neighbours(y, x, dim)
    return pairs if pairs is NotImplemented else pairs.cumsum(dim) * (dx / 2)


def _neighbours(y: Tensor, x: Any, dim: int) -> Any:
    """The sums of neighbours along a dimension."""
    if x is not None or y.shape[dim] < 2 or not y.is_floating_point():
        return NotImplemented
    return y.narrow(dim, 1, y.shape[dim] - 1) + y.narrow(dim, 0, y.shape[dim] - 1)


# -- normalisation and attention -------------------------------------------------------------------


def _wide(x: Tensor) -> Tensor:
    """`x` in the type in which eager computes on it: float32 for the half types."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _normalised(x: Tensor, dims: list[int], eps: Any) -> Tensor:
    """`x`, less its mean over `dims`, by its standard deviation."""
    centred = x - x.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None, like: Tensor) -> Tensor:
    """`x * weight + bias` in the type of `like`."""
    x = x if weight is None else x * weight
    return (x if bias is None else x + bias).to(like.dtype)


def _by_channel(parameter: Tensor | None, x: Tensor) -> Any:
    """A parameter for each channel, to be broadcast over `x`."""
    return None if parameter is None else parameter.view(-1, *[1] * (x.dim() - 2))


def _ends_in(x: Tensor, shape: Sequence[int]) -> bool:
    return 0 < len(shape) <= x.dim() and tuple(x.shape[-len(shape) :]) == tuple(shape)


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: Any = 1e-05,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    """`F.layer_norm`."""
    if not _ends_in(x, shape):
        return NotImplemented
    wide = _normalised(_wide(x.contiguous()), list(range(-len(shape), 0)), eps)
    return _scaled(wide, weight, bias, x)


def rms_norm(x: Tensor, shape: Sequence[int], weight: Any = None, eps: Any = None) -> Any:
    """`F.rms_norm`."""
    if not _ends_in(x, shape):
        return NotImplemented
    wide = _wide(x.contiguous())
    mean = wide.square().mean(list(range(-len(shape), 0)), keepdim=True)
    return _scaled(wide * (mean + eps).rsqrt(), weight, None, x)


def group_norm(
    x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-05,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """`F.group_norm`."""
    if not x.is_contiguous() or x.dim() < 2 or x.shape[1] % groups or x.numel() == 0:
        return NotImplemented
    grouped = _wide(x).reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    wide = _normalised(grouped, [2, 3], eps).view(x.shape)
    return _scaled(wide, _by_channel(weight, x), _by_channel(bias, x), x)


def instance_norm(
    x: Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: Any = 0.1, eps: Any = 1e-05,
) -> Any:  # fmt: skip
    """`F.instance_norm` by the statistics of each instance."""
    if not use_input_stats or running_mean is not None or x.dim() < 3:
        return NotImplemented
    return group_norm(x, x.shape[1], weight, bias, eps)


def batch_norm(
    x: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: Any = 0.1, eps: Any = 1e-05,
) -> Any:  # fmt: skip
    """`F.batch_norm`; in training it updates the running statistics."""
    count = x.numel() // x.shape[1] if x.dim() > 1 and x.numel() else 0
    if count < 2:
        return NotImplemented  # an error in training
    wide = _wide(x if x.dim() > 3 else x.contiguous())
    if training:
        dims = [0, *range(2, x.dim())]
        mean, variance = wide.mean(dims), wide.var(dims, correction=0)
        _average(running_mean, mean, momentum)
        _average(running_var, variance * (count / (count - 1)), momentum)
    else:
        mean, variance = running_mean, running_var
    wide = wide - _by_channel(mean, x)
    wide = wide * _by_channel((variance + eps).rsqrt(), x)
    return _scaled(wide, _by_channel(weight, x), _by_channel(bias, x), x)


def _average(running: Tensor | None, new: Tensor, momentum: Any) -> None:
    if running is not None:
        with torch.no_grad():
            running.copy_(running * (1 - momentum) + new.detach() * momentum)


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


# -- distances and losses --------------------------------------------------------------------------


def _loss(function: Function) -> Function:
    """A loss for each element, to be reduced as the caller wants it."""

    def call(
        *arguments: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean",
        **options: Any,
    ) -> Any:  # fmt: skip
        known = {"none": None, "mean": torch.mean, "sum": torch.sum}
        if size_average is not None or reduce is not None or reduction not in known:
            return NotImplemented
        loss, finish = function(*arguments, **options), known[reduction]
        return loss if finish is None or loss is NotImplemented else finish(loss)

    return call


@_loss
def huber_loss(x: Tensor, y: Tensor, *, delta: Any = 1.0, weight: Any = None) -> Any:
    """`F.huber_loss`."""
    if delta <= 0 or weight is not None:
        return NotImplemented
    z = (x - y).abs()
    return torch.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))


@_loss
def smooth_l1_loss(x: Tensor, y: Tensor, *, beta: Any = 1.0) -> Any:
    """`F.smooth_l1_loss`."""
    if beta <= 0:
        return NotImplemented
    z = (x - y).abs()
    return torch.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)


@_loss
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: Any = 1.0) -> Tensor:
    """`F.hinge_embedding_loss`."""
    apart = torch.where(target != 1, (margin - x).clamp(min=0), 0.0)
    return apart + torch.where(target != -1, x, 0.0)


@_loss
def margin_ranking_loss(x: Tensor, y: Tensor, target: Tensor, margin: Any = 0) -> Any:
    """`F.margin_ranking_loss`."""
    return (margin - target * (x - y)).clamp(min=0) if x.dim() == target.dim() else NotImplemented


@_loss
def cosine_embedding_loss(x: Tensor, y: Tensor, target: Tensor, margin: Any = 0) -> Any:
    """`F.cosine_embedding_loss`."""
    if x.dim() != target.dim() + 1 or x.dim() != y.dim():
        return NotImplemented
    lengths = (x.square().sum(-1) + 1e-12) * (y.square().sum(-1) + 1e-12)
    cosine = (x * y).sum(-1) / lengths.sqrt()
    apart = torch.where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return torch.where(target == 1, 1 - cosine, 0.0) + apart


@_loss
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: Any = 1.0, p: Any = 2,
    eps: Any = 1e-6, swap: bool = False,
) -> Any:  # fmt: skip
    """`F.triplet_margin_loss`."""
    if margin <= 0 or not anchor.dim() == positive.dim() == negative.dim():
        return NotImplemented

    def distance(x: Tensor, y: Tensor) -> Any:
        return pairwise_distance(x, y, p, eps)

    far = distance(anchor, negative)
    far = torch.minimum(far, distance(positive, negative)) if swap else far
    return (margin + distance(anchor, positive) - far).clamp(min=0)


@_loss
def poisson_nll_loss(
    x: Tensor, target: Tensor, log_input: bool = True, full: bool = False, *, eps: Any = 1e-8
) -> Any:
    """`F.poisson_nll_loss` of rates."""
    return NotImplemented if log_input or full else x - target * (x + eps).log()


def cross_entropy(
    x: Tensor, target: Tensor, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0,
) -> Any:  # fmt: skip
    """`F.cross_entropy` with smoothed labels."""
    if not 0 <= label_smoothing <= 1:
        return NotImplemented
    if weight is not None or size_average is not None or reduce is not None or x.dim() < 2:
        return NotImplemented
    classes = x.shape[1]
    if target.is_floating_point():
        smooth = target * (1 - label_smoothing) + label_smoothing / classes
        return F.cross_entropy(x, smooth, reduction=reduction)
    exact = F.cross_entropy(x, target, ignore_index=ignore_index, reduction=reduction)
    counts = target != ignore_index
    even = -torch.where(counts, x.log_softmax(1).sum(1), 0.0)
    match reduction:
        case "mean":
            even = even.sum() / counts.sum()
        case "sum":
            even = even.sum()
    return exact * (1 - label_smoothing) + even * (label_smoothing / classes)


def pairwise_distance(
    x: Tensor, y: Tensor, p: Any = 2.0, eps: Any = 1e-6, keepdim: bool = False
) -> Any:
    """`F.pairwise_distance`."""
    return torch.linalg.vector_norm(x - y + eps, float(p), dim=-1, keepdim=keepdim)


def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: Any = 1e-8) -> Any:
    """`F.cosine_similarity`; the bound of the lengths has no gradient."""
    if not (x.is_floating_point() and x.dtype == y.dtype):
        return NotImplemented
    x, y = torch.broadcast_tensors(x, y)
    lengths = [torch.linalg.vector_norm(each, dim=dim, keepdim=True) for each in (x, y)]
    a, b = (each + (each.clamp(min=eps) - each).detach() for each in lengths)
    return ((x / a) * (y / b)).sum(dim)


# -- random numbers --------------------------------------------------------------------------------


def _drawn(like: Tensor, distribution: str, *parameters: Any) -> Any:
    """Draws in the layout of `like`, as `like.distribution_(*parameters)` makes them."""
    if like.device.type != "cpu":
        return NotImplemented
    return random_state.operator("draw")(like.detach(), distribution, *parameters)


def _drawn_into(distribution: str, names: tuple[str, ...], defaults: tuple[float, ...]) -> Function:
    """`Tensor.uniform_` and its like."""

    def call(target: Tensor, *given: Any, generator: Any = None, **named: Any) -> Any:
        if generator is not None or not target.is_contiguous() or not target.is_floating_point():
            return NotImplemented
        values = [*given, *[None] * (len(names) - len(given))]
        parameters = [
            named.get(name, default) if value is None else value
            for name, value, default in zip(names, values, defaults, strict=True)
        ]
        drawn = _drawn(target, distribution, *parameters)
        return drawn if drawn is NotImplemented else target.copy_(drawn)

    return call


def bernoulli(x: Tensor, p: Any = None, *, generator: Any = None) -> Any:
    """`torch.bernoulli(x, p)`."""
    if generator is not None or not x.is_contiguous():
        return NotImplemented
    return _drawn(x, "bernoulli", p)


def normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    """`torch.normal`, of numbers or tensors."""
    if size is not None:
        drawn = _drawn(torch.empty(size, **options), "normal", mean, std)
    elif options or not all(isinstance(each, Tensor) for each in (mean, std) if not _is_real(each)):
        return NotImplemented
    else:
        like = mean if isinstance(mean, Tensor) else std
        drawn = _drawn(like, "normal", 0.0, 1.0)
        return drawn if drawn is NotImplemented else drawn * std + mean
    return drawn


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


def _feature_dropout(dims: int) -> Function:
    def call(x: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return (
            _dropped(x, _channels(x), p, training, inplace) if x.dim() == dims else NotImplemented
        )

    return call


SELU_FLOOR: Final = -1.7580993408473766
"""What SELU tends to: the value of what alpha dropout drops."""


def _alpha_dropout(by_channel: bool) -> Function:
    def call(x: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Any:
        if inplace or not 0 < p < 1 or x.dtype not in (torch.float32, torch.float64):
            return NotImplemented
        if not training:
            return x
        drawn = _drawn(_channels(x) if by_channel else x, "bernoulli", 1 - p)
        if drawn is NotImplemented:
            return NotImplemented
        kept = (drawn != 0).to(x.dtype)
        scale = 1 / torch.sym_sqrt((SELU_FLOOR**2 * p + 1) * (1 - p))
        shift = (1 - kept) * (SELU_FLOOR * scale) - SELU_FLOOR * scale * p
        return x * (kept * scale) + shift

    return call


WRITTEN_OUT: Final[dict[Any, Function]] = {
    torch.tensor: tensor,
    torch.as_tensor: tensor,
    torch.Tensor.new_tensor: new_tensor,
    F.one_hot: one_hot,
    torch.arange: arange,
    torch.linspace: linspace,
    torch.logspace: logspace,
    **dict.fromkeys((torch.float_power, torch.Tensor.float_power), float_power),
    **dict.fromkeys((torch.nan_to_num, torch.Tensor.nan_to_num), nan_to_num),
    **dict.fromkeys((torch.logit, torch.Tensor.logit, torch.special.logit), logit),
    **dict.fromkeys((torch.isclose, torch.Tensor.isclose), isclose),
    F.rrelu: rrelu,
    F.pad: pad,
    torch.trapezoid: trapezoid,
    torch.cumulative_trapezoid: cumulative_trapezoid,
    **dict.fromkeys((F.layer_norm, torch.layer_norm), layer_norm),
    **dict.fromkeys((F.rms_norm, torch.rms_norm), rms_norm),
    **dict.fromkeys((F.group_norm, torch.group_norm), group_norm),
    F.instance_norm: instance_norm,
    F.batch_norm: batch_norm,
    F.scaled_dot_product_attention: attention,
    F.huber_loss: huber_loss,
    F.smooth_l1_loss: smooth_l1_loss,
    F.hinge_embedding_loss: hinge_embedding_loss,
    F.margin_ranking_loss: margin_ranking_loss,
    F.cosine_embedding_loss: cosine_embedding_loss,
    F.triplet_margin_loss: triplet_margin_loss,
    F.poisson_nll_loss: poisson_nll_loss,
    F.cross_entropy: cross_entropy,
    F.pairwise_distance: pairwise_distance,
    F.cosine_similarity: cosine_similarity,
    **dict.fromkeys((torch.bernoulli, torch.Tensor.bernoulli), bernoulli),
    **{
        getattr(torch.Tensor, f"{name}_"): _drawn_into(name, names, defaults)
        for name, names, defaults in (
            ("bernoulli", ("p",), (0.5,)),
            ("uniform", ("from", "to"), (0.0, 1.0)),
            ("normal", ("mean", "std"), (0.0, 1.0)),
            ("exponential", ("lambd",), (1.0,)),
            ("geometric", ("p",), (0.5,)),
            ("log_normal", ("mean", "std"), (1.0, 2.0)),
            ("cauchy", ("median", "sigma"), (0.0, 1.0)),
        )
    },
    torch.normal: normal,
    F.dropout: dropout,
    F.dropout1d: _feature_dropout(3),
    F.dropout2d: _feature_dropout(4),
    F.dropout3d: _feature_dropout(5),
    F.alpha_dropout: _alpha_dropout(by_channel=False),
    F.feature_alpha_dropout: _alpha_dropout(by_channel=True),
    **{
        function: _between_tensors(function)
        for function in (
            torch.floor_divide, torch.Tensor.floor_divide, torch.div, torch.Tensor.div,
            torch.xlogy, torch.special.xlogy, torch.special.xlog1py, torch.special.zeta,
            torch.bucketize, torch.searchsorted,
        )
    },
    operator.floordiv: _between_tensors(torch.floor_divide),
    **dict.fromkeys((torch.lerp, torch.Tensor.lerp), interpolated),
    **dict.fromkeys((operator.pow, torch.pow, torch.Tensor.pow), power),
    torch.Tensor.__rpow__: reversed_power,
    F.celu: celu,
}  # fmt: skip
"""By function of torch's."""
