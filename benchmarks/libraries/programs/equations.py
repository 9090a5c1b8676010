"""Differential equations, by torchdiffeq and torchsde, and networks in their midst."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


class Field(nn.Module):
    """A velocity that depends on time, as torchdiffeq calls it."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.body = perceptron(width + 1, 32, width, activation=nn.Tanh)

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([y, t.expand(*y.shape[:-1], 1)], -1))


@program("torchdiffeq")
def solver_around(compile: Compile) -> Run:
    """An adaptive solver in Python calls a compiled field."""
    from torchdiffeq import odeint

    field = Field()
    compiled = compile(field)
    y, t = torch.randn(16, 4), torch.linspace(0, 1, 5)
    return lambda: gradients(field, odeint(compiled, y, t, method="dopri5")[-1].square().mean())


@program("torchdiffeq")
def fixed_steps_within(compile: Compile) -> Run:
    """All of a fixed-step solver is compiled."""
    from torchdiffeq import odeint

    field = Field()
    t = torch.linspace(0, 1, 6)

    @compile
    def loss(y: torch.Tensor) -> torch.Tensor:
        return odeint(field, y, t, method="rk4")[-1].square().mean()

    y = torch.randn(16, 4)
    return lambda: gradients(field, loss(y))


@program("torchdiffeq", tolerance=1e-3)
def adaptive_steps_within(compile: Compile) -> Run:
    """All of an adaptive solver is compiled."""
    from torchdiffeq import odeint

    field = Field()
    t = torch.linspace(0, 1, 3)

    @compile
    def solve(y: torch.Tensor) -> torch.Tensor:
        return odeint(field, y, t, rtol=1e-4, atol=1e-4)[-1]

    y = torch.randn(16, 4)
    return lambda: gradients(field, solve(y).square().mean())


@program("torchdiffeq", tolerance=1e-3)
def adjoint(compile: Compile) -> Run:
    """Gradients by the adjoint equation of a compiled field."""
    from torchdiffeq import odeint_adjoint

    field = Field()
    compiled = compile(field)
    y, t = torch.randn(16, 4), torch.linspace(0, 1, 3)

    def run() -> Any:
        end = odeint_adjoint(
            compiled, y, t, method="rk4", adjoint_params=tuple(field.parameters())
        )[-1]
        return gradients(field, end.square().mean())

    return run


@program("torchdiffeq")
def continuous_normalizing_flow(compile: Compile) -> Run:
    """The field and its divergence, which is a trace of gradients, as the right side."""
    from torchdiffeq import odeint

    field = Field(2)

    @compile
    def right_side(t: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        y, _ = state
        with torch.enable_grad():
            y = y.requires_grad_()
            velocity = field(t, y)
            divergence = sum(
                torch.autograd.grad(velocity[:, i].sum(), y, create_graph=True)[0][:, i]
                for i in range(2)
            )
        return velocity, -divergence

    t = torch.tensor([0.0, 0.5, 1.0])

    def run() -> Any:
        start = torch.randn(32, 2), torch.zeros(32)
        y, log_density = odeint(right_side, start, t, method="rk4")
        return gradients(field, y[-1].square().mean() - log_density[-1].mean())

    return run


@program("torchsde", tolerance=1e-3)
def stochastic_equation(compile: Compile) -> Run:
    """Drift and diffusion as networks, solved by torchsde with both compiled."""
    import torchsde

    class Process(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.diffusion = perceptron(3, 16, 3), perceptron(3, 16, 3)
            self.f, self.g = compile(self._drift), compile(self._diffusion)

        def _drift(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y) - t * y

        def _diffusion(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return 0.1 * self.diffusion(y).sigmoid()

    process = Process()
    y, t = torch.randn(16, 3), torch.linspace(0, 1, 4)

    def run() -> Any:
        noise = torchsde.BrownianInterval(0.0, 1.0, size=(16, 3), entropy=7)
        end = torchsde.sdeint(process, y, t, bm=noise, method="euler", dt=0.1)[-1]
        return gradients(process, end.square().mean())

    return run


@program()
def hamiltonian_network(compile: Compile) -> Run:
    """A leapfrog integrator over gradients of a learned energy."""
    energy = perceptron(4, 32, 1, activation=nn.Tanh)

    def force(q: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = energy(torch.cat([q, p], -1)).sum()
        return torch.autograd.grad(total, (q, p), create_graph=True)

    @compile
    def trajectory(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        points = []
        for _ in range(5):
            p = p - 0.05 * force(q, p)[0]
            q = q + 0.1 * force(q, p)[1]
            p = p - 0.05 * force(q, p)[0]
            points.append(torch.cat([q, p], -1))
        return torch.stack(points)

    q, p = torch.randn(16, 2).requires_grad_(), torch.randn(16, 2).requires_grad_()
    return lambda: gradients(energy, trajectory(q, p).square().mean())


@program("neuralop", tolerance=1e-3)
def fourier_neural_operator(compile: Compile) -> Run:
    """A small FNO over a grid."""
    from neuralop.models import FNO

    module = FNO(n_modes=(6, 6), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    compiled = compile(module)
    x = torch.randn(2, 1, 16, 16)
    return lambda: gradients(module, compiled(x).square().mean())
