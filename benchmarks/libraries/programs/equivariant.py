"""Equivariant networks, by e3nn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients

FEATURES = "8x0e + 4x1o + 2x2e"


@program("e3nn")
def spherical_harmonics(compile: Compile) -> Run:
    """Spherical harmonics up to the third degree, with gradients of positions."""
    from e3nn import o3

    compiled = compile(lambda x: o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True))
    positions = torch.randn(64, 3)

    def run() -> Any:
        x = positions.clone().requires_grad_()
        out = compiled(x)
        return out.detach(), torch.autograd.grad(out.sin().sum(), x)

    return run


@program("e3nn", tolerance=1e-3)
def tensor_product(compile: Compile) -> Run:
    """A fully connected tensor product and a gate."""
    from e3nn import nn as gates
    from e3nn import o3

    gate = gates.Gate("8x0e", [torch.relu], "6x0e", [torch.sigmoid], "4x1o + 2x2e")

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct(FEATURES, "0e + 1o", gate.irreps_in)
            self.gate = gate

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.gate(self.product(x, y))

    module = Layer()
    compiled = compile(module)
    x, y = torch.randn(32, 30), torch.randn(32, 4)
    return lambda: gradients(module, compiled(x, y).square().mean())


@program("e3nn")
def linear_and_norm(compile: Compile) -> Run:
    """An equivariant linear layer, batch norm and activation of norms."""
    from e3nn import nn as gates
    from e3nn import o3

    module = nn.Sequential(
        o3.Linear(FEATURES, FEATURES),
        gates.BatchNorm(FEATURES),
        gates.NormActivation(FEATURES, torch.sigmoid),
        o3.Linear(FEATURES, "4x0e"),
    )
    compiled = compile(module)
    x = torch.randn(32, 30)
    return lambda: gradients(module, compiled(x).square().mean())


@program("e3nn")
def rotations(compile: Compile) -> Run:
    """Wigner matrices of random rotations, applied to features."""
    from e3nn import o3

    irreps = o3.Irreps(FEATURES)

    @compile
    def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        matrices = irreps.D_from_angles(angles[0], angles[1], angles[2])
        return x @ matrices.mT

    x, angles = torch.randn(32, 30), torch.rand(3)
    return lambda: rotate(x, angles)


@program("e3nn", tolerance=1e-3)
def convolution_over_neighbours(compile: Compile) -> Run:
    """Messages weighted by a network of radial functions, as in NequIP."""
    from e3nn import nn as layers
    from e3nn import o3
    from e3nn.math import soft_one_hot_linspace

    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct(
                "4x0e + 2x1o", "0e + 1o", "4x0e + 2x1o", shared_weights=False
            )
            self.radial = layers.FullyConnectedNet(
                [8, 16, self.product.weight_numel], torch.nn.functional.silu
            )

        def forward(self, x: torch.Tensor, at: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            source, target = edges
            between = at[source] - at[target]
            sphere = o3.spherical_harmonics("0e + 1o", between, True, normalization="component")
            length = between.norm(dim=1)
            basis = soft_one_hot_linspace(length, 0.0, 3.0, 8, basis="gaussian", cutoff=False)
            messages = self.product(x[source], sphere, self.radial(basis))
            return torch.zeros_like(x).index_add(0, target, messages) / 3

    module = Convolution()
    compiled = compile(module)
    x, at, edges = torch.randn(20, 10), torch.randn(20, 3), torch.randint(20, (2, 60))
    edges = edges[:, edges[0] != edges[1]]
    return lambda: gradients(module, compiled(x, at, edges).square().mean())
