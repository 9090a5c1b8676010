"""Gaussian processes, by GPyTorch and BoTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron

POINTS = 40


def _sine() -> tuple[torch.Tensor, torch.Tensor]:
    """Points in [0, 1] and a noisy sine there."""
    x = torch.linspace(0, 1, POINTS)
    return x, (6 * x).sin() + 0.1 * torch.randn(POINTS)


def _exact(kernel: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
    """GPyTorch's model of the tutorial, with a kernel."""
    import gpytorch

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = kernel

        def forward(self, x: torch.Tensor) -> Any:
            covariance = self.covariance(x)
            return gpytorch.distributions.MultivariateNormal(self.mean(x), covariance)

    return Exact()


def _trained(model: Any, likelihood: Any, compile: Compile) -> Run:
    """One step of maximising the marginal likelihood."""
    import gpytorch

    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    x, y = model.train_inputs[0], model.train_targets

    @compile
    def loss() -> torch.Tensor:
        return -objective(model(x), y)

    return lambda: gradients(model, loss())


@program("gpytorch")
def exact_regression(compile: Compile) -> Run:
    """A step of training an exact process with an RBF kernel."""
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    model = _exact(kernel, *_sine())
    return _trained(model, model.likelihood, compile)


@program("gpytorch")
def sum_of_kernels(compile: Compile) -> Run:
    """A step of training with Matern, periodic and linear kernels added and multiplied."""
    from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, ScaleKernel

    kernel = ScaleKernel(MaternKernel(nu=2.5)) * PeriodicKernel() + LinearKernel()
    model = _exact(kernel, *_sine())
    return _trained(model, model.likelihood, compile)


@program("gpytorch", tolerance=1e-3)
def deep_kernel(compile: Compile) -> Run:
    """A perceptron in front of an RBF kernel."""
    import gpytorch

    class Deep(gpytorch.kernels.RBFKernel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            last = nn.Linear(16, 2, bias=False)  # of which only differences matter
            self.features = nn.Sequential(perceptron(1, 16), nn.Tanh(), last)

        def forward(self, first: torch.Tensor, second: torch.Tensor, **options: Any) -> Any:
            return super().forward(self.features(first), self.features(second), **options)

    model = _exact(Deep(), *_sine())
    return _trained(model, model.likelihood, compile)


@program("gpytorch")
def kernel_as_a_function(compile: Compile) -> Run:
    """The matrix of a kernel with a length scale a dimension, dense."""
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))
    x, y = torch.randn(64, 4), torch.randn(32, 4)
    compiled = compile(lambda x, y: kernel(x, y).to_dense())
    return lambda: gradients(kernel, compiled(x, y).sum())


@program("gpytorch", tolerance=1e-3)
def prediction(compile: Compile) -> Run:
    """Mean and variance of a process at new points."""
    import gpytorch

    model = _exact(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), *_sine())
    model.eval()
    new = torch.linspace(0, 1, 25)

    @compile
    def predict(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        predicted = model.likelihood(model(x))
        return predicted.mean, predicted.variance

    def run() -> Any:
        with torch.no_grad():
            return predict(new)

    return run


@program("gpytorch", tolerance=1e-3)
def variational_regression(compile: Compile) -> Run:
    """A sparse variational process: one step on a batch."""
    import gpytorch

    class Sparse(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, inducing: torch.Tensor) -> None:
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, inducing, posterior, learn_inducing_locations=True
                )
            )
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            covariance = self.covariance(x)
            return gpytorch.distributions.MultivariateNormal(self.mean(x), covariance)

    x, y = _sine()
    model = Sparse(x[::4, None].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=POINTS)
    step = compile(lambda x, y: -objective(model(x), y))
    return lambda: gradients(model, step(x[:, None], y))


def _acquired(acquire: Any, candidates: torch.Tensor, compile: Compile) -> Run:
    """What an acquisition function gives at candidates, and its gradient."""
    compiled = compile(acquire)

    def run() -> Any:
        points = candidates.clone().requires_grad_()
        values = compiled(points)
        return values.detach(), torch.autograd.grad(values.sum(), points)

    return run


@program("botorch", tolerance=1e-3)
def expected_improvement(compile: Compile) -> Run:
    """BoTorch's analytic acquisition function and its gradient at candidates."""
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(20, 2, dtype=torch.float64)
    y = (x * 6).sin().sum(-1, keepdim=True)
    acquire = LogExpectedImprovement(SingleTaskGP(x, y), best_f=y.max())
    return _acquired(acquire, torch.rand(16, 1, 2, dtype=torch.float64), compile)


@program("botorch", tolerance=1e-3)
def knowledge_by_sampling(compile: Compile) -> Run:
    """BoTorch's Monte-Carlo acquisition function over four candidates at once."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x = torch.rand(20, 2, dtype=torch.float64)
    y = (x * 6).sin().sum(-1, keepdim=True)
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=1)
    acquire = qLogExpectedImprovement(SingleTaskGP(x, y), best_f=y.max(), sampler=sampler)
    return _acquired(acquire, torch.rand(8, 4, 2, dtype=torch.float64), compile)
