"""Tensors of other kinds: subclasses, sparse, complex, NumPy's arrays, scripted modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


class WithUnit(torch.Tensor):
    """A tensor that carries a unit through torch functions."""

    unit: str

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(result, WithUnit):
            units = [one.unit for one in args if isinstance(one, WithUnit) and hasattr(one, "unit")]
            result.unit = units[0] if units else ""
        return result


def with_unit(tensor: torch.Tensor, unit: str) -> WithUnit:
    """A tensor in a unit."""
    made = tensor.as_subclass(WithUnit)
    made.unit = unit
    return made


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class Scaled(torch.Tensor):
    """A wrapper: numbers and one factor, kept apart."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, factor: torch.Tensor) -> Scaled:
        made = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=numbers.dtype)
        made.numbers, made.factor = numbers, factor
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        plain = [one.numbers * one.factor if isinstance(one, Scaled) else one for one in args]
        return function(*plain, **(kwargs or {}))


@program()
def subclass_with_a_unit(compile: Compile) -> Run:
    """A subclass whose torch functions pass a unit on."""

    @compile
    def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2 + y).relu().sum(-1)

    x, y = with_unit(torch.randn(32, 32), "m"), with_unit(torch.randn(32, 32), "m")

    def run() -> Any:
        result = compute(x, y)
        return result.as_subclass(torch.Tensor), result.unit

    return run


@program()
def plain_subclass_through_a_module(compile: Compile) -> Run:
    """A subclass that changes nothing is the input of a perceptron."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32).as_subclass(Plain)

    def run() -> Any:
        with torch.no_grad():
            return module(x).as_subclass(torch.Tensor)

    return run


@program()
def wrapper_subclass_as_a_weight(compile: Compile) -> Run:
    """A weight in two parts behind __torch_dispatch__, as quantised weights are."""

    @compile
    def compute(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight).relu() * 2

    weight = Scaled(torch.randn(32, 32), torch.tensor(0.1))
    x = torch.randn(16, 32)
    return lambda: compute(x, weight)


@program()
def parameter_subclass(compile: Compile) -> Run:
    """A subclass of nn.Parameter with an attribute, in a module."""

    class Tagged(nn.Parameter):
        pass

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Tagged(torch.randn(32, 32) * 0.1)
            self.weight.decay = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ self.weight) if self.weight.decay else x

    module = Model()
    compiled = compile(module)
    x = torch.randn(16, 32)
    return lambda: gradients(module, compiled(x).square().mean())


@program()
def numpy_in_the_middle(compile: Compile) -> Run:
    """A step of a model goes through NumPy and back."""
    first, second = perceptron(32, 32), perceptron(32, 8)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        hidden = first(x).detach().numpy()
        scaled = np.clip(hidden, -1, 1) - hidden.mean(axis=-1, keepdims=True)
        return second(torch.from_numpy(scaled)).detach()

    x = torch.randn(16, 32)
    return lambda: compute(x)


@program()
def numpy_function(compile: Compile) -> Run:
    """A function of NumPy arrays alone."""

    @compile
    def softmax(x: np.ndarray) -> np.ndarray:
        x = np.exp(x - x.max(axis=-1, keepdims=True))
        return x / x.sum(axis=-1, keepdims=True)

    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return lambda: softmax(x)


@program()
def numpy_scalars(compile: Compile) -> Run:
    """NumPy's numbers as factors and sizes."""
    factor, width = np.float32(0.5), np.int64(8)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return (x * float(factor))[:, : int(width)].sum(-1) * np.sqrt(2.0)

    x = torch.randn(64, 64)
    return lambda: compute(x)


@program()
def sparse_product_csr(compile: Compile) -> Run:
    """A product with a sparse matrix in CSR, as message passing does."""
    adjacency = (torch.rand(200, 200) < 0.03).float().to_sparse_csr()
    module = perceptron(16, 32, 8)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return module(adjacency @ x).relu()

    x = torch.randn(200, 16)

    def run() -> Any:
        with torch.no_grad():
            return compute(x)

    return run


@program()
def sparse_product_coo_trained(compile: Compile) -> Run:
    """torch.sparse.mm with gradients of the dense side."""
    adjacency = (torch.rand(200, 200) < 0.03).float().to_sparse_coo().coalesce()
    module = perceptron(16, 32, 8)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(adjacency, module(x)).square().mean()

    x = torch.randn(200, 16)
    return lambda: gradients(module, compute(x))


@program()
def sparse_made_within(compile: Compile) -> Run:
    """A sparse matrix is made of indices and weights in compiled code."""
    index = torch.randint(0, 100, (2, 400))

    @compile
    def compute(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        matrix = torch.sparse_coo_tensor(index, weight, (100, 100))
        return (matrix @ x).tanh()

    weight, x = torch.rand(400), torch.randn(100, 16)
    return lambda: compute(weight, x)


@program()
def complex_module(compile: Compile) -> Run:
    """Complex linear layers with a modulus activation, trained."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 32, dtype=torch.complex64)
            self.second = nn.Linear(32, 8, dtype=torch.complex64)
            self.bias = nn.Parameter(torch.zeros(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            size = hidden.abs()
            hidden = hidden * (size + self.bias).relu() / (size + 1e-6)
            return self.second(hidden).abs()

    module = Model()
    compiled = compile(module)
    x = torch.randn(16, 16, dtype=torch.complex64)
    return lambda: gradients(module, compiled(x).square().mean())


@program()
def filter_by_fourier_transform(compile: Compile) -> Run:
    """A Fourier layer: learned factors of the lowest frequencies."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8, 16, dtype=torch.complex64) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spectrum = torch.fft.rfft(x)
            out = torch.zeros_like(spectrum)
            out[..., :16] = torch.einsum("bim,iom->bom", spectrum[..., :16], self.weight)
            return torch.fft.irfft(out, n=x.shape[-1])

    module = Layer()
    compiled = compile(module)
    x = torch.randn(4, 8, 64)
    return lambda: gradients(module, compiled(x).square().mean())


@program()
def rotary_as_complex(compile: Compile) -> Run:
    """Rotary embedding by view_as_complex."""
    angles = torch.outer(torch.arange(16.0), 0.1 ** torch.arange(4.0))
    rotation = torch.polar(torch.ones_like(angles), angles)

    @compile
    def rotate(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def turned(x: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * rotation[:, None]).flatten(3).type_as(x)

        return turned(q), turned(k)

    q, k = torch.randn(2, 16, 4, 8), torch.randn(2, 16, 4, 8)
    return lambda: rotate(q, k)


@program()
def scripted_submodule(compile: Compile) -> Run:
    """A module with one scripted layer."""
    module = nn.Sequential(perceptron(32, 64), torch.jit.script(perceptron(64, 64)), nn.Tanh())
    compiled = compile(module)
    x = torch.randn(16, 32)
    return lambda: gradients(module, compiled(x).square().mean())


@program()
def traced_submodule(compile: Compile) -> Run:
    """A module with one traced layer, without gradients."""
    traced = torch.jit.trace(perceptron(64, 64), torch.randn(16, 64))
    compiled = compile(nn.Sequential(perceptron(32, 64), traced, nn.Tanh()))
    x = torch.randn(16, 32)

    def run() -> Any:
        with torch.no_grad():
            return compiled(x)

    return run


@program()
def scripted_function(compile: Compile) -> Run:
    """A scripted function called from compiled code."""

    @torch.jit.script
    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return gelu(x).sum(-1) + 1

    x = torch.randn(64, 64)
    return lambda: compute(x)


@program()
def nested_tensor(compile: Compile) -> Run:
    """A jagged tensor goes through a linear layer."""
    layer = nn.Linear(16, 16)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return layer(x).relu()

    parts = [torch.randn(n, 16) for n in (3, 5, 2)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return lambda: compute(nested).values().detach()


@program()
def masked_positions(compile: Compile) -> Run:
    """Sizes that depend on data: only masked rows are computed."""
    module = perceptron(16, 32, 16)

    @compile
    def compute(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[mask] = module(x[mask])
        return out.sum(-1)

    x, mask = torch.randn(64, 16), torch.rand(64) > 0.5
    return lambda: compute(x, mask).detach()
