"""Rules of softmax and its relatives: a maximum, a sum of exponentials, and what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fusewright.ir.limits import HALF_TYPES
from fusewright.lower.boxes import Box
from fusewright.lower.builder import Call
from fusewright.lower.reductions import finish
from fusewright.lower.rules import rule
from fusewright.lower.views import dimensions


@rule("aten._softmax.default", "aten._safe_softmax.default")
def softmax(call: Call, x: Box, dim: int, *options: Any, **keywords: Any) -> Any:
    """exp(x - max) / sum; the safe kind gives zeros for a row that is -inf throughout.

    A row is divided once: each of its elements is multiplied by r = 1 / sum rounded, and by what
    rounding took from r, (1 - sum * r) r, which together are right to twice the digits; results of
    half types have no use for it. A division takes as long as half of an exponential; the sum is at
    least 1, so that nothing overflows.
    """
    gathered = dimensions(dim, x.rank)
    call.realise_unless_free(x)
    dtype = call.result.dtype.compute
    safe = call.operator == "aten._safe_softmax.default"
    greatest = call.reduce("max", x.size, gathered, lambda at: call.read(x, at, dtype))
    exponentials = call.lazy(
        x.size,
        dtype,
        lambda at: (call.read(x, at, dtype) - call.read(greatest, at)).apply("exp"),
        call.result.stride,
    )
    call.realise_unless_free(exponentials)
    total = call.reduce("sum", x.size, gathered, lambda at: call.read(exponentials, at))
    scale = call.lazy(total.size, dtype, lambda at: call.read(total, at).apply("reciprocal"))
    call.realise_unless_free(scale)

    def lost_of_scale(at: Any) -> Any:
        rounded = call.read(scale, at)
        return (-call.read(total, at)).apply("fma", rounded, rounded.like(1)) * rounded

    is_exact = call.result.dtype not in HALF_TYPES
    lost = call.lazy(total.size, dtype, lost_of_scale) if is_exact else None
    if lost is not None:
        call.realise_unless_free(lost)

    def element(at: Any) -> Any:
        exponential, factor = call.read(exponentials, at), call.read(scale, at)
        if lost is None:
            share = exponential * factor
        else:
            share = exponential.apply("fma", factor, exponential * call.read(lost, at))
        if not safe:
            return share
        return call.read(greatest, at).apply("eq", -math.inf).where(share.like(0), share)

    return call.elementwise(element)


@rule("aten._log_softmax.default")
def log_softmax(call: Call, x: Box, dim: int, *options: Any, **keywords: Any) -> Any:
    """(x - max) - log(sum of exp(x - max))."""
    gathered = dimensions(dim, x.rank)
    call.realise_unless_free(x)
    dtype = call.result.dtype.compute
    greatest = call.reduce("max", x.size, gathered, lambda at: call.read(x, at, dtype))
    total = call.reduce(
        "sum",
        x.size,
        gathered,
        lambda at: (call.read(x, at, dtype) - call.read(greatest, at)).apply("exp"),
    )
    logarithm = call.lazy(total.size, dtype, lambda at: call.read(total, at).apply("log"))
    call.realise_unless_free(logarithm)
    return call.elementwise(
        lambda at: call.read(x, at, dtype) - call.read(greatest, at) - call.read(logarithm, at)
    )


@rule("aten.logsumexp.default")
def logsumexp(call: Call, x: Box, dim: Sequence[int], keepdim: bool = False) -> Any:
    """log(sum of exp(x - max)) + max, with an infinite maximum taken as 0."""
    gathered = dimensions(dim, x.rank)
    if any(x.size[d].lower == 0 for d in gathered):
        return NotImplemented
    call.realise_unless_free(x)
    dtype = call.result.dtype.compute
    greatest = call.reduce("max", x.size, gathered, lambda at: call.read(x, at, dtype))

    def shift(at: Any) -> Any:
        value = call.read(greatest, at)
        return value.apply("isinf").where(value.like(0), value)

    total = call.reduce(
        "sum", x.size, gathered, lambda at: (call.read(x, at, dtype) - shift(at)).apply("exp")
    )
    kept = call.lazy(total.size, dtype, lambda at: call.read(total, at).apply("log") + shift(at))
    return finish(call, kept, gathered, keepdim, call.result.dtype)


@rule("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")
def softmax_backward(call: Call, gradient: Box, result: Box, dim: int, input_dtype: Any) -> Any:
    """softmax: y * (g - sum(g * y)); log_softmax: g - exp(y) * sum(g)."""
    gathered = dimensions(dim, result.rank)
    dtype = result.dtype.compute
    logarithmic = "log" in call.operator
    call.realise_unless_free(gradient)
    call.realise_unless_free(result)

    def weighted(at: Any) -> Any:
        g = call.read(gradient, at, dtype)
        return g if logarithmic else g * call.read(result, at)

    total = call.reduce("sum", result.size, gathered, weighted)

    def element(at: Any) -> Any:
        g, y, s = call.read(gradient, at, dtype), call.read(result, at), call.read(total, at)
        return g - y.apply("exp") * s if logarithmic else y * (g - s)

    return call.elementwise(element)
