"""Formulas of activation functions, each from and to the elements of one type."""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewright.lower.scalar import Scalar


def relu(x: Scalar) -> Scalar:
    return x.apply("maximum", 0)


def gelu(x: Scalar, approximate: str = "none") -> Scalar:
    """x times the normal distribution function at x, exactly or by a tanh."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + inner.apply("tanh"))
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).apply("erf"))


def silu(x: Scalar) -> Scalar:
    return x * x.apply("sigmoid")


def leaky_relu(x: Scalar, slope: Scalar | float = 0.01) -> Scalar:
    return (x > 0).where(x, x * slope)


def hardtanh(x: Scalar, lowest: Scalar | float = -1.0, highest: Scalar | float = 1.0) -> Scalar:
    return x.apply("maximum", lowest).apply("minimum", highest)


def elu(
    x: Scalar,
    alpha: Scalar | float = 1.0,
    scale: Scalar | float = 1.0,
    input_scale: Scalar | float = 1.0,
) -> Scalar:
    negative = x.like(alpha) * scale * (x * input_scale).apply("expm1")
    return (x <= 0).where(negative, x * scale)


def celu(x: Scalar, alpha: Scalar | float = 1.0) -> Scalar:
    return (x <= 0).where(x.like(alpha) * (x / alpha).apply("expm1"), x)


def softplus(x: Scalar, beta: Scalar | float = 1.0, threshold: Scalar | float = 20.0) -> Scalar:
    """log(1 + exp(beta x)) / beta, which is x itself to all digits past the threshold."""
    scaled = x * beta
    return (scaled > threshold).where(x, scaled.apply("exp").apply("log1p") / beta)


def mish(x: Scalar) -> Scalar:
    return x * x.apply("exp").apply("log1p").apply("tanh")


def hardswish(x: Scalar) -> Scalar:
    return x * hardtanh(x + 3, 0, 6) * (1 / 6)


def hardsigmoid(x: Scalar) -> Scalar:
    return hardtanh(x + 3, 0, 6) * (1 / 6)


def threshold(x: Scalar, limit: Scalar, value: Scalar) -> Scalar:
    return (x <= limit).where(value, x)


def softshrink(x: Scalar, limit: Scalar | float = 0.5) -> Scalar:
    """The part of x that lies outside of [-limit, limit]: within, 0 without a sign; NaN
    stays NaN.
    """
    limit = x.like(limit)
    return x - x.apply("maximum", -limit).apply("minimum", limit)


def prelu(x: Scalar, weight: Scalar) -> Scalar:
    return (x > 0).where(x, x * weight)


# Backward: the gradient with respect to the activation's input ------------------------------------


def sigmoid_backward(gradient: Scalar, result: Scalar) -> Scalar:
    return gradient * (1 - result) * result


def tanh_backward(gradient: Scalar, result: Scalar) -> Scalar:
    return gradient * (1 - result * result)


def gelu_backward(gradient: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        tanh = (scale * (x + 0.044715 * (x * x * x))).apply("tanh")
        slope = 0.5 * x * (1 - tanh * tanh) * (scale * (1 + 3 * 0.044715 * (x * x)))
        return gradient * (0.5 * (1 + tanh) + slope)
    below = 0.5 * (1 + (x * math.sqrt(0.5)).apply("erf"))
    density = (x * x * -0.5).apply("exp") * (1 / math.sqrt(2 * math.pi))
    return gradient * (below + x * density)


def hardsigmoid_backward(gradient: Scalar, x: Scalar) -> Scalar:
    zero = x.like(0)
    return (x > -3).where((x < 3).where(gradient * (1 / 6), zero), zero)


FORMULAS: dict[str, Callable[..., Scalar]] = {
    "aten.relu.default": relu,
    "aten.gelu.default": gelu,
    "aten.silu.default": silu,
    "aten.leaky_relu.default": leaky_relu,
    "aten.hardtanh.default": hardtanh,
    "aten.elu.default": elu,
    "aten.celu.default": celu,
    "aten.softplus.default": softplus,
    "aten.mish.default": mish,
    "aten.hardswish.default": hardswish,
    "aten.hardsigmoid.default": hardsigmoid,
    "aten.softshrink.default": softshrink,
    "aten._prelu_kernel.default": prelu,
    "aten.sigmoid_backward.default": sigmoid_backward,
    "aten.tanh_backward.default": tanh_backward,
    "aten.gelu_backward.default": gelu_backward,
}
"""Formulas by qualified operator name."""

JUMPING: dict[str, Callable[..., Scalar]] = {
    "aten.threshold.default": threshold,
    "aten.hardsigmoid_backward.default": hardsigmoid_backward,
}
"""Activations and gradients that are not continuous: they jump at a value."""
