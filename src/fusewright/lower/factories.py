"""Rules of operators that make a tensor from numbers: constants and sequences, computed where they
are read.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, as_index, contiguous_strides, integer
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.rules import rule, words
from fusewright.lower.scalar import Scalar
from fusewright.symbolic.real import Real


def constant(call: Call, value: Any, which: int = 0) -> Box:
    """Eager's result number `which` filled with one number."""
    dtype = call.results[which].dtype
    if isinstance(value, (Index, Real)):
        return call.elementwise(lambda at: call.real(value, dtype.compute), which)
    return call.elementwise(lambda at: call.number(value, dtype), which)


@rule("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(call: Call, like_or_size: Any, *arguments: Any, **options: Any) -> Any:
    """`full(size, value)`, `full_like(x, value)` and `new_full(x, size, value)`: the value comes
    last.
    """
    return constant(call, arguments[-1])


@rule("aten.scalar_tensor.default")
def scalar_tensor(call: Call, value: Any, **options: Any) -> Box:
    return constant(call, value)


@rule(
    *(
        f"aten.{name}.default"
        for name in words(
            """
            zeros zeros_like new_zeros new_empty empty_like empty_strided new_empty_strided
            _efficientzerotensor
            """
        )
    ),
    "aten.empty.memory_format",
)
def zeros(call: Call, *arguments: Any, **options: Any) -> Box:
    """Memory without contents counts as zeros: what nobody reads is not computed. (But
    `empty_permuted` has no rule: decompositions give its memory to library calls that read nothing
    of it.) The zeros that autograd makes without any memory get some: kernels read it.
    """
    return constant(call, 0)


@rule("aten.zero.default")
def zero(call: Call, x: Box) -> Box:
    return constant(call, 0)


@rule("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(call: Call, *arguments: Any, **options: Any) -> Box:
    return constant(call, 1)


@rule("aten.arange.start_step")
def arange(call: Call, start: Any, end: Any, step: Any = 1, **options: Any) -> Any:
    """start + i * step, computed in the result's type (in f64 and rounded once for floats, as
    eager).
    """
    dtype = call.result.dtype
    if all(isinstance(number, (int, Index)) for number in (start, step)):
        return call.elementwise(
            lambda at: call.index(as_index(start) + at[0] * as_index(step)).cast(dtype.compute)
        )
    if isinstance(start, Index) or isinstance(step, Index):
        return NotImplemented

    def element(at: Position) -> Scalar:
        exact = call.index(at[0], DType.F64)
        return (exact * float(step) + float(start)).cast(dtype.compute)

    return call.elementwise(element)


def round_float(value: float, dtype: DType) -> float:
    """The number of a floating type that is nearest to `value`."""
    torch_dtype = getattr(torch, dtype.torch_name)
    return torch.tensor(value, dtype=torch_dtype, device="cpu").item()


@rule("fusewright.philox_uniform.default")
def philox_uniform(call: Call, seed: Box, size: Any) -> Any:
    """The number of each element in row-major order; a library call on the CPU, whose kernels make
    none.
    """
    layout = call.result
    if layout.device == "cpu":
        return NotImplemented
    strides = contiguous_strides(layout.size)

    def element(at: Position) -> Scalar:
        start, expressions = call.read(seed, ()), call.builder.expressions
        place = sum((i * stride for i, stride in zip(at, strides, strict=True)), integer(0))
        drawn = expressions.random("uniform", start.value, place, layout.dtype)
        return Scalar(drawn, expressions)

    return call.elementwise(element)


@rule("aten.linspace.default")
def linspace(call: Call, start: Any, end: Any, steps: Any, **options: Any) -> Any:
    """Counted from the nearer end, as eager does, so that both ends are exact: `step * i + end`
    with the step in the result's type, rounded once; on the CPU, of half types, at every step.
    """
    dtype = call.result.dtype
    if not (dtype.is_float and isinstance(steps, int) and steps > 1):
        return NotImplemented
    if not (isinstance(start, (int, float)) and isinstance(end, (int, float))):
        return NotImplemented
    first, last, intervals = (round_float(number, dtype) for number in (start, end, steps - 1))
    step = round_float(round_float(last - first, dtype) / intervals, dtype)

    is_half = dtype.compute is not dtype and call.result.device == "cpu"

    def rounded(number: Scalar) -> Scalar:
        return number.cast(dtype).cast(dtype.compute)

    def from_end(end: float, step: float, distance: Index) -> Scalar:
        number, places = call.number(step, dtype.compute), call.index(distance, dtype.compute)
        if is_half:
            return rounded(number * rounded(places)) + end
        return number.apply("fma", places, number.like(end))

    def element(at: Position) -> Scalar:
        near = from_end(first, step, at[0])
        far = from_end(last, -step, steps - 1 - at[0])
        return (call.index(at[0]) < steps // 2).where(near, far)

    return call.elementwise(element)


@rule("aten.eye.default", "aten.eye.m")
def eye(call: Call, *arguments: Any, **options: Any) -> Box:
    dtype = call.result.dtype.compute

    def element(at: Position) -> Scalar:
        on_diagonal = call.index(at[0]).apply("eq", call.index(at[1]))
        return on_diagonal.cast(dtype)

    return call.elementwise(element)
