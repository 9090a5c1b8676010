"""One measurement of training: a cold first step, or steps in turns, the gradients' errors and the
memory kept for backward. A step is forward, loss and backward; `measure` starts it.

The loss is the sum of the squares of the model's floating-point outputs, computed inside what is
compiled. Gradients begin as None in every step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.compilers import EAGER, OURS, compiler, own_traffic, predicted_saved_bytes
from benchmarks.models import Inputs, build, tensors_of
from benchmarks.sampling import take_turns, typical

LARGEST_GRADIENT_ERROR = 1e-3
"""Relative error of a parameter's gradient above which it counts as wrong, unless eager's own error
is at least half as large.
"""

SMALLEST_GRADIENT = 1e-6
"""Norm of a parameter's gradient, relative to that of all gradients, below which its error is taken
relative to this bound: a gradient that is 0 but for rounding, as that of the bias of attention's
keys, has no relative error.
"""

Gradients = list[torch.Tensor | None]


def sum_of_squares(output: torch.Tensor) -> torch.Tensor:
    """A loss that costs little."""
    return output.square().sum()


def weighted_mean(output: torch.Tensor) -> torch.Tensor:
    """A loss in which each element has a weight of its own: the sum of squares has hardly any
    gradient behind a layer norm.
    """
    return (
        output * torch.arange(output.numel(), device=output.device).cos().view(output.shape)
    ).mean()


class WithLoss(nn.Module):
    """A model that returns its loss: the sum over its floating-point outputs."""

    def __init__(
        self, model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor] = sum_of_squares
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        loss = torch.zeros(())
        for output in tensors_of(self.model(**inputs)):
            if output.is_floating_point():
                loss = loss + self.loss(output)
        return loss


def cold_step(column: str, front_end: str, model: str, dropout: str) -> dict[str, Any]:
    """Seconds of the first step: importing the compiler, compiling both halves, running. Building
    the model is not in it.
    """
    module, inputs = build_with_loss(model, dropout)
    start = time.perf_counter()
    compiler(column, front_end)(module)(**inputs).backward()
    return {"first_call": time.perf_counter() - start}


def steady_steps(columns: list[str], front_end: str, model: str, dropout: str) -> dict[str, Any]:
    """Median seconds a step, and bytes saved for backward, by column; without dropout, also the
    errors of the gradients against eager's in float64.
    """
    module, inputs = build_with_loss(model, dropout)
    compared = dropout == "off"
    expected = exact_gradients(module, inputs) if compared else []
    own_error = gradient_error(gradients_of(module, module, inputs), expected) if compared else 0.0
    results: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], Any]] = {}

    for column in columns:
        compiled = compiler(column, front_end)(module)
        found = gradients_of(module, compiled, inputs)
        steps[column] = partial(gradients_of, module, compiled, inputs)
        results[column] = {"saved": saved_bytes(module, compiled, inputs)}
        if column == OURS:
            results[column] |= own_traffic() | {"predicted_saved": predicted_saved_bytes()}
        if compared:
            error = own_error if column == EAGER else gradient_error(found, expected)
            allowed = max(LARGEST_GRADIENT_ERROR, 2 * own_error)
            results[column] |= {"error": error, "allowed_error": allowed}

    for column, times in take_turns(steps).items():
        results[column] |= {"call": typical(times), "rounds": len(times)}
    return results


def build_with_loss(model: str, dropout: str) -> tuple[nn.Module, Inputs]:
    """The model and its loss, in train mode if `dropout` is "on", in eval mode if it is "off"."""
    module, inputs = build(model)
    return WithLoss(module).train(dropout == "on"), inputs


def gradients_of(module: nn.Module, call: Callable[..., Any], inputs: Inputs) -> Gradients:
    """One step of `call`, which computes `module`: the gradients of its parameters."""
    module.zero_grad(set_to_none=True)
    call(**inputs).backward()
    return [parameter.grad for parameter in module.parameters()]


def exact_gradients(module: nn.Module, inputs: Inputs) -> Gradients:
    """Eager's gradients in float64, wherever the model itself does not choose float32."""
    double = copy.deepcopy(module).double()
    exact_inputs = {
        name: value.double() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    return gradients_of(double, double, exact_inputs)


def gradient_error(found: Gradients, expected: Gradients) -> float:
    """The largest ‖found − expected‖ / ‖expected‖ of the gradients, in float64, but see
    `SMALLEST_GRADIENT`; infinite if one is missing, one too many, or one not finite.
    """
    whole = sum(float(one.norm()) ** 2 for one in expected if one is not None) ** 0.5
    errors = [0.0]
    for ours, theirs in zip(found, expected, strict=True):
        if ours is None and theirs is None:
            continue
        if ours is None or theirs is None or not ours.isfinite().all():
            return float("inf")
        bound = max(float(theirs.norm()), SMALLEST_GRADIENT * whole, 1e-30)
        errors.append(float((ours.double() - theirs).norm()) / bound)
    return max(errors)


def saved_bytes(module: nn.Module, call: Callable[..., Any], inputs: Inputs) -> int:
    """Bytes that one forward call of `call` keeps for backward, beside the parameters, buffers and
    inputs, which are there anyway.

    Measured alike for every column: `torch.autograd.graph.saved_tensors_hooks` sees each tensor
    that autograd saves, those that a compiled `torch.autograd.Function` hands to
    `save_for_backward` included; memory that several of them share counts once, and whole.
    """
    held = {*map(_memory, module.parameters()), *map(_memory, module.buffers())}
    held.update(map(_memory, inputs.values()))
    kept: list[torch.Tensor] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept.append(value.detach())
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        call(**inputs)
    sizes = {_memory(value): value.untyped_storage().nbytes() for value in kept}
    return sum(size for memory, size in sizes.items() if memory not in held)


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()
