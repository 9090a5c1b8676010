"""Modes of torch around compiled code and within it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


class Counting(TorchFunctionMode):
    """Counts calls of torch functions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls += 1
        return function(*args, **(kwargs or {}))


class InDouble(TorchFunctionMode):
    """Has factories make float64 tensors."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.zeros, torch.ones):
            kwargs.setdefault("dtype", torch.float64)
        return function(*args, **kwargs)


class Recording(TorchDispatchMode):
    """Records the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@program()
def function_mode_around(compile: Compile) -> Run:
    """A function mode of the user's is on when a compiled module is called."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with Counting() as mode:
            y = module(x)
        return y.detach(), mode.calls

    return run


@program()
def function_mode_within(compile: Compile) -> Run:
    """A function mode is entered in compiled code."""

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        with InDouble():
            return x * torch.ones(8) + torch.zeros(8)

    x = torch.randn(16, 8)
    return lambda: compute(x)


@program()
def dispatch_mode_around(compile: Compile) -> Run:
    """A dispatch mode watches a call of a compiled module: the results alone are compared."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with Recording():
            y = module(x)
        return gradients(module, y.square().mean())

    return run


@program()
def flops_are_counted(compile: Compile) -> Run:
    """FlopCounterMode counts what a compiled module's products cost."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            y = module(x)
        return y, counter.get_total_flops()

    return run


@program()
def default_device_and_dtype(compile: Compile) -> Run:
    """Factories under a default device and dtype."""

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.eye(8) + torch.arange(8.0)

    x = torch.randn(16, 8, dtype=torch.float64)

    def run() -> Any:
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("cpu"):
                return compute(x)
        finally:
            torch.set_default_dtype(torch.float32)

    return run


@program(tolerance=2e-2)
def autocast_around(compile: Compile) -> Run:
    """A training step under autocast to bfloat16."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module(x).float().square().mean()
        return gradients(module, loss)

    return run


@program()
def inference_mode_around(compile: Compile) -> Run:
    """A compiled module under inference_mode, then trained."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with torch.inference_mode():
            y = module(x) * 1
        return y.clone().detach(), gradients(module, module(x).sum())

    return run


@program()
def saved_tensors_hooks_around(compile: Compile) -> Run:
    """What autograd saves goes through hooks of the user's."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with torch.autograd.graph.save_on_cpu():
            loss = module(x).square().mean()
        return gradients(module, loss)

    return run


@program()
def anomaly_detection_around(compile: Compile) -> Run:
    """A training step under detect_anomaly."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return gradients(module, module(x).square().mean())

    return run


@program()
def modules_of_a_parametrized_kind(compile: Compile) -> Run:
    """Weight and spectral norms of torch.nn.utils.parametrizations, trained."""
    from torch.nn.utils.parametrizations import spectral_norm, weight_norm

    module = nn.Sequential(
        weight_norm(nn.Linear(32, 64)), nn.Tanh(), spectral_norm(nn.Linear(64, 8))
    )
    compiled = compile(module)
    x = torch.randn(16, 32)
    return lambda: gradients(module, compiled(x).square().mean())
