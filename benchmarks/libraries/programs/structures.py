"""Structured tensors and geometry: TensorDict, geoopt, Captum."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


@program("tensordict")
def dictionary_of_tensors(compile: Compile) -> Run:
    """A TensorDict goes in, is indexed and comes out with new entries."""
    from tensordict import TensorDict

    body = perceptron(8, 16, 4)

    @compile
    def act(data: Any) -> Any:
        data["action"] = body(data["state"]).tanh()
        data["value"] = data["action"].sum(-1)
        return data

    def run() -> Any:
        data = TensorDict({"state": torch.randn(16, 8)}, batch_size=[16])
        out = act(data)
        return out["action"].detach(), gradients(body, out["value"].square().mean())

    return run


@program("tensordict")
def modules_over_keys(compile: Compile) -> Run:
    """TensorDictModules in sequence, as TorchRL writes policies."""
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    module = TensorDictSequential(
        TensorDictModule(perceptron(8, 16, 16), in_keys=["state"], out_keys=["hidden"]),
        TensorDictModule(nn.Linear(16, 2), in_keys=["hidden"], out_keys=["action"]),
    )
    compiled = compile(module)

    def run() -> Any:
        data = TensorDict({"state": torch.randn(16, 8)}, batch_size=[16])
        return gradients(module, compiled(data)["action"].square().mean())

    return run


@program("geoopt", tolerance=1e-3)
def hyperbolic_embeddings(compile: Compile) -> Run:
    """Distances in a Poincaré ball, with a parameter on the manifold."""
    import geoopt

    ball = geoopt.PoincareBall()
    points = geoopt.ManifoldParameter(0.1 * torch.randn(20, 4), manifold=ball)
    holder = nn.Module()
    holder.points = points

    @compile
    def loss(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return ball.dist(points[first], points[second]).square().mean()

    first, second = torch.randint(20, (2, 32))
    return lambda: gradients(holder, loss(first, second))


@program("captum", tolerance=1e-3)
def attributions(compile: Compile) -> Run:
    """Captum's integrated gradients and saliency of a compiled model."""
    from captum.attr import IntegratedGradients, Saliency

    module = perceptron(8, 32, 3, activation=nn.ReLU)
    compiled = compile(module)
    integrated, saliency = IntegratedGradients(compiled), Saliency(compiled)
    x = torch.randn(4, 8)

    def run() -> Any:
        return (
            integrated.attribute(x, target=1, n_steps=10).detach(),
            saliency.attribute(x.clone().requires_grad_(), target=2).detach(),
        )

    return run


@program()
def state_space_layer(compile: Compile) -> Run:
    """A diagonal state space model: complex poles, a kernel by powers, a convolution by FFT."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.real, self.imaginary = (
                nn.Parameter(torch.rand(8, 4)),
                nn.Parameter(torch.rand(8, 4)),
            )
            self.out = nn.Parameter(torch.randn(8, 4, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            length = x.shape[-1]
            poles = -self.real.exp() + 1j * self.imaginary
            powers = (0.1 * poles[..., None] * torch.arange(length)).exp()
            kernel = (self.out[..., None] * powers).sum(1).real
            spectrum = torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
            return torch.fft.irfft(spectrum, n=2 * length)[..., :length]

    module = Layer()
    compiled = compile(module)
    x = torch.randn(2, 8, 32)
    return lambda: gradients(module, compiled(x).square().mean())


@program()
def optimal_transport(compile: Compile) -> Run:
    """Sinkhorn's iterations in the log domain until the change is small."""
    last = nn.Linear(16, 3, bias=False)  # of which only differences matter
    body = nn.Sequential(perceptron(4, 16), nn.Tanh(), last)

    @compile
    def transport(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cost = torch.cdist(body(x), body(y)).square()
        f, g = torch.zeros(len(x)), torch.zeros(len(y))
        for _ in range(20):
            before = f
            f = -0.5 * torch.logsumexp((g - cost) / 0.5, 1)
            g = -0.5 * torch.logsumexp((f[:, None] - cost) / 0.5, 0)
            if (f - before).abs().max() < 1e-3:
                break
        return (((f[:, None] + g - cost) / 0.5).exp() * cost).sum()

    x, y = torch.randn(12, 4), torch.randn(10, 4)
    return lambda: gradients(body, transport(x, y))
