"""Rules of normalisations: statistics over a group of elements, in two passes, then one pointwise
expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, integer, product
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.factories import constant
from fusewright.lower.reductions import as_number, squared_deviations
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import drop, reshaped


def inverse_deviation(
    call: Call, squares: Box, elements: Index, epsilon: float, dtype: DType
) -> Box:
    """1 / sqrt(variance + epsilon), in memory, so that it is computed once and not for each
    element.
    """
    divisor = as_number(call, elements, dtype)
    factor = 1 / divisor.constant if divisor.constant else None

    def element(at: Position) -> Scalar:
        total = call.read(squares, at)
        variance = total * factor if factor is not None else total / divisor
        return (variance + epsilon).apply("rsqrt")

    box = call.lazy(squares.size, dtype, element)
    call.builder.realise(box)
    return box


def scale_and_shift(
    call: Call, x: Scalar, weight: Box | None, bias: Box | None, at: Position
) -> Scalar:
    """`x * weight + bias`, each where it is given; rounded once where both are."""
    if weight is None:
        return x if bias is None else x + call.read(bias, at, x.dtype)
    factor = call.read(weight, at, x.dtype)
    if bias is None:
        return x * factor
    return x.apply("fma", factor, call.read(bias, at, x.dtype))


@rule("aten.native_layer_norm.default")
def layer_norm(
    call: Call,
    x: Box,
    normalized_shape: Sequence[Any],
    weight: Box | None,
    bias: Box | None,
    epsilon: float,
) -> Any:
    """(result, mean, 1 / deviation) over the last dimensions."""
    gathered = tuple(range(x.rank - len(normalized_shape), x.rank))
    elements = product(x.size[d] for d in gathered)
    if elements.lower == 0:
        return NotImplemented
    call.realise_unless_free(x)
    dtype = x.dtype.compute
    mean, squares = squared_deviations(call, x.size, gathered, lambda at: call.read(x, at))
    inverse = inverse_deviation(call, squares, elements, epsilon, dtype)

    def element(at: Position) -> Scalar:
        centred = call.read(x, at) - call.read(mean, at)
        return scale_and_shift(call, centred * call.read(inverse, at), weight, bias, at)

    return call.elementwise(element), call.same(mean, 1), call.same(inverse, 2)


@rule("aten.native_group_norm.default")
def group_norm(
    call: Call,
    x: Box,
    weight: Box | None,
    bias: Box | None,
    batch: Any,
    channels: Any,
    spatial: Any,
    groups: int,
    epsilon: float,
) -> Any:
    """(result, mean, 1 / deviation) over each of `groups` groups of channels."""
    if product(x.size).lower == 0:
        return NotImplemented
    call.realise_unless_free(x)
    dtype = x.dtype.compute
    group_channels = x.size[1] // groups
    split_size = (x.size[0], integer(groups), group_channels, *x.size[2:])
    gathered = tuple(range(2, len(split_size)))
    grouped = reshaped(call, x, split_size)
    mean, squares = squared_deviations(
        call, split_size, gathered, lambda at: call.read(grouped, at)
    )
    elements = product(split_size[d] for d in gathered)
    inverse = inverse_deviation(call, squares, elements, epsilon, dtype)

    def element(at: Position) -> Scalar:
        row = (at[0], at[1] // group_channels, *(integer(0) for _ in gathered))
        centred = call.read(x, at) - call.read(mean, row)
        channel = (at[1],)
        return scale_and_shift(call, centred * call.read(inverse, row), weight, bias, channel)

    statistics = (
        call.same(drop(call, mean, gathered), 1),
        call.same(drop(call, inverse, gathered), 2),
    )
    return (call.elementwise(element), *statistics)


# Batch normalisation with given statistics --------------------------------------------------------


def _batch_norm(
    call: Call,
    x: Box,
    weight: Box | None,
    bias: Box | None,
    mean: Box,
    variance: Box,
    epsilon: float,
) -> Box:
    """One scale and one shift a channel, computed where they are used: a kernel for them would cost
    more.
    """
    dtype = x.dtype.compute

    def element(at: Position) -> Scalar:
        channel = (at[1],)
        centred = call.read(x, at) - call.read(mean, channel, dtype)
        inverse = (call.read(variance, channel, dtype) + epsilon).apply("rsqrt")
        return scale_and_shift(call, centred * inverse, weight, bias, channel)

    return call.elementwise(element)


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: Call,
    x: Box,
    weight: Box | None,
    bias: Box | None,
    mean: Box,
    variance: Box,
    momentum: float,
    epsilon: float,
) -> Any:
    result = _batch_norm(call, x, weight, bias, mean, variance, epsilon)
    return _with_statistics(call, result, mean, variance, epsilon)


@rule(
    "aten.cudnn_batch_norm.default",
    "aten.miopen_batch_norm.default",
)
def batch_norm(
    call: Call,
    x: Box,
    weight: Box | None,
    bias: Box | None,
    mean: Box | None,
    variance: Box | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    if training or mean is None or variance is None:
        return NotImplemented
    result = _batch_norm(call, x, weight, bias, mean, variance, epsilon)
    return _with_statistics(call, result, mean, variance, epsilon)


def _with_statistics(call: Call, result: Box, mean: Box, variance: Box, epsilon: float) -> Any:
    """The result and, as eager has them without training, further ones: empty tensors, or on a GPU
    the mean and the reciprocal of the deviation.
    """

    def inverse(at: Position) -> Scalar:
        read = call.read(variance, at, call.results[2].dtype.compute)
        return (read + epsilon).apply("rsqrt")

    further = []
    for which, layout in enumerate(call.results[1:], 1):
        if product(layout.size) == 0:
            further.append(constant(call, 0, which))
        elif layout.size == mean.size and which == 1:
            further.append(call.same(mean, which))
        elif layout.size == mean.size and which == 2:
            further.append(call.elementwise(inverse, which))
        else:
            return NotImplemented
    return (result, *further)
