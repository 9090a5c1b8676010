"""Distributions and flows: torch.distributions, Pyro, zuko, nflows."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributions as D
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


@program()
def variational_autoencoder(compile: Compile) -> Run:
    """A Normal posterior, its divergence from the prior, and a Bernoulli likelihood."""
    encoder, decoder = perceptron(20, 32, 8), perceptron(4, 32, 20)
    module = nn.ModuleList([encoder, decoder])

    @compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        mean, log_scale = encoder(x).chunk(2, -1)
        posterior = D.Normal(mean, log_scale.exp())
        latent = posterior.rsample()
        likelihood = D.Bernoulli(logits=decoder(latent)).log_prob(x).sum(-1)
        divergence = D.kl_divergence(posterior, D.Normal(0.0, 1.0)).sum(-1)
        return (divergence - likelihood).mean()

    x = (torch.rand(32, 20) > 0.5).float()
    return lambda: gradients(module, loss(x))


@program()
def policy_gradient(compile: Compile) -> Run:
    """An actor and a critic: actions are drawn, then PPO's clipped objective."""
    actor, critic = perceptron(6, 32, 4), perceptron(6, 32, 1)
    module = nn.ModuleList([actor, critic])

    @compile
    def act(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        policy = D.Categorical(logits=actor(state))
        action = policy.sample()
        return action, policy.log_prob(action)

    @compile
    def loss(state: torch.Tensor, action: Any, before: Any, reward: Any) -> torch.Tensor:
        policy, value = D.Categorical(logits=actor(state)), critic(state)[:, 0]
        ratio = (policy.log_prob(action) - before).exp()
        gain = (reward - value).detach()
        clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        return (reward - value).square().mean() - clipped.mean() - 0.01 * policy.entropy().mean()

    state, reward = torch.randn(32, 6), torch.randn(32)

    def run() -> Any:
        with torch.no_grad():
            action, before = act(state)
        return action, gradients(module, loss(state, action, before, reward))

    return run


@program()
def mixture_density(compile: Compile) -> Run:
    """MixtureSameFamily of independent normals whose parameters a network gives."""
    body = perceptron(4, 32, 3 + 3 * 2 * 2)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights, rest = body(x).split([3, 12], -1)
        mean, scale = rest.view(-1, 3, 4).chunk(2, -1)
        parts = D.Independent(D.Normal(mean, nn.functional.softplus(scale) + 1e-3), 1)
        return -D.MixtureSameFamily(D.Categorical(logits=weights), parts).log_prob(y).mean()

    x, y = torch.randn(32, 4), torch.randn(32, 2)
    return lambda: gradients(body, loss(x, y))


@program()
def squashed_normal(compile: Compile) -> Run:
    """A TransformedDistribution with a tanh, as soft actor-critic samples actions."""
    body = perceptron(6, 32, 4)

    @compile
    def sample(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_scale = body(state).chunk(2, -1)
        normal = D.Normal(mean, log_scale.clamp(-5, 2).exp())
        policy = D.TransformedDistribution(normal, [D.TanhTransform(cache_size=1)])
        action = policy.rsample()
        return action, policy.log_prob(action).sum(-1)

    state = torch.randn(32, 6)

    def run() -> Any:
        action, log_probability = sample(state)
        return action.detach(), gradients(body, (0.2 * log_probability - action.sum(-1)).mean())

    return run


@program()
def families_of_distributions(compile: Compile) -> Run:
    """log_prob and entropy of many families of parameters given."""

    @compile
    def evaluate(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        families = [
            D.Gamma(a, b),
            D.Beta(a, b),
            D.Laplace(a, b),
            D.LogNormal(a, b),
            D.Gumbel(a, b),
            D.Cauchy(a, b),
            D.StudentT(a + 2, b),
            D.Weibull(a, b),
            D.Exponential(a),
        ]
        return [one.log_prob(x) + one.entropy() for one in families]

    a, b, x = torch.rand(16) + 0.5, torch.rand(16) + 0.5, torch.rand(16) * 0.8 + 0.1
    return lambda: evaluate(a, b, x)


@program()
def multivariate_normal(compile: Compile) -> Run:
    """A MultivariateNormal by its Cholesky factor: density, sample, divergence."""
    body = perceptron(4, 16, 9)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean, rest = body(x).split([3, 6], -1)
        factor = torch.zeros(len(x), 3, 3)
        rows, columns = torch.tril_indices(3, 3)
        factor[:, rows, columns] = rest
        factor = factor.tril(-1) + torch.diag_embed(factor.diagonal(dim1=-2, dim2=-1).exp())
        normal = D.MultivariateNormal(mean, scale_tril=factor)
        prior = D.MultivariateNormal(torch.zeros(3), torch.eye(3))
        return (D.kl_divergence(normal, prior) - normal.log_prob(y)).mean()

    x, y = torch.randn(16, 4), torch.randn(16, 3)
    return lambda: gradients(body, loss(x, y))


@program()
def gumbel_softmax_codes(compile: Compile) -> Run:
    """Discrete codes by straight-through Gumbel softmax and a relaxed categorical."""
    encoder, decoder = perceptron(16, 32, 24), perceptron(24, 32, 16)
    module = nn.ModuleList([encoder, decoder])

    @compile
    def loss(x: torch.Tensor, temperature: float) -> torch.Tensor:
        logits = encoder(x).view(-1, 3, 8)
        hard = nn.functional.gumbel_softmax(logits, temperature, hard=True)
        soft = D.RelaxedOneHotCategorical(torch.tensor(temperature), logits=logits).rsample()
        return (decoder((hard + soft).flatten(1)) - x).square().mean()

    x = torch.randn(32, 16)
    temperatures = iter(range(1000000))
    return lambda: gradients(module, loss(x, 1.0 / (1 + 0.01 * (next(temperatures) % 50))))


@program("zuko")
def spline_flow(compile: Compile) -> Run:
    """zuko's neural spline flow: the density of data under a context."""
    from zuko.flows import NSF

    flow = NSF(3, 4, transforms=2, hidden_features=(32, 32))
    compiled = compile(lambda x, c: -flow(c).log_prob(x).mean())
    x, c = torch.randn(32, 3), torch.randn(32, 4)
    return lambda: gradients(flow, compiled(x, c))


@program("nflows")
def masked_flow(compile: Compile) -> Run:
    """nflows: masked affine autoregressive transforms with permutations."""
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        CompositeTransform,
        MaskedAffineAutoregressiveTransform,
        ReversePermutation,
    )

    parts = []
    for _ in range(2):
        parts += [MaskedAffineAutoregressiveTransform(4, 16), ReversePermutation(4)]
    flow = Flow(CompositeTransform(parts), StandardNormal([4]))
    compiled = compile(lambda x: -flow.log_prob(inputs=x).mean())
    x = torch.randn(32, 4)
    return lambda: gradients(flow, compiled(x))


@program("pyro")
def pyro_regression(compile: Compile) -> Run:
    """A step of stochastic variational inference with a compiled network within the model."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import Trace_ELBO

    body = perceptron(3, 16, 1)
    compiled = compile(body)
    x = torch.randn(32, 3)
    y = x.sum(-1) + 0.1 * torch.randn(32)
    spread = torch.zeros((), requires_grad=True)

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        mean = compiled(x)[:, 0]
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, scale), obs=y)

    def guide(x: torch.Tensor, y: torch.Tensor) -> None:
        pyro.sample("scale", dist.LogNormal(spread, 0.1))

    return lambda: gradients(body, Trace_ELBO().differentiable_loss(model, guide, x, y))


@program()
def langevin_sampler(compile: Compile) -> Run:
    """Steps of Langevin dynamics on a learned energy, the gradient taken inside."""
    energy = perceptron(2, 32, 1, activation=nn.SiLU)

    @compile
    def step(x: torch.Tensor, size: float) -> torch.Tensor:
        x = x.detach().requires_grad_()
        slope = torch.autograd.grad(energy(x).sum(), x)[0]
        return (x - size * slope + (2 * size) ** 0.5 * torch.randn_like(x)).detach()

    start = torch.randn(64, 2)

    def run() -> Any:
        x = start
        for _ in range(5):
            x = step(x, 0.01)
        return x

    return run


@program()
def diffusion_sampler(compile: Compile) -> Run:
    """A denoising diffusion model: its loss at random times, and its sampler's loop."""
    body = perceptron(3, 32, 2, activation=nn.SiLU)
    beta = torch.linspace(1e-4, 0.2, 10)
    kept = (1 - beta).cumprod(0)

    @compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        t = torch.randint(10, (len(x),))
        noise = torch.randn_like(x)
        noisy = kept[t, None].sqrt() * x + (1 - kept[t, None]).sqrt() * noise
        return (body(torch.cat([noisy, t[:, None] / 10], -1)) - noise).square().mean()

    @compile
    def sample(x: torch.Tensor) -> torch.Tensor:
        for t in reversed(range(10)):
            at = torch.full((len(x), 1), t / 10)
            noise = body(torch.cat([x, at], -1))
            x = (x - beta[t] / (1 - kept[t]).sqrt() * noise) / (1 - beta[t]).sqrt()
            if t:
                x = x + beta[t].sqrt() * torch.randn_like(x)
        return x

    x = torch.randn(32, 2)

    def run() -> Any:
        result = gradients(body, loss(x))
        with torch.no_grad():
            return result, sample(torch.randn(16, 2))

    return run
