"""Distributions: each family's draws, from eager's stream, with their densities and moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributions as d

import fusewright

P = torch.linspace(0.15, 0.85, 4)

FAMILIES: dict[str, Callable[[Tensor], d.Distribution]] = {
    "Bernoulli": d.Bernoulli,
    "Beta": lambda p: d.Beta(p, p + 1),
    "Binomial": lambda p: d.Binomial(5, p),
    "Categorical": d.Categorical,
    "Cauchy": lambda p: d.Cauchy(p, p),
    "Chi2": d.Chi2,
    "ContinuousBernoulli": d.ContinuousBernoulli,
    "Dirichlet": d.Dirichlet,
    "Exponential": d.Exponential,
    "FisherSnedecor": lambda p: d.FisherSnedecor(p + 1, p + 3),
    "Gamma": lambda p: d.Gamma(p, p),
    "Geometric": d.Geometric,
    "Gumbel": lambda p: d.Gumbel(p, p),
    "HalfCauchy": d.HalfCauchy,
    "HalfNormal": d.HalfNormal,
    "Independent": lambda p: d.Independent(d.Normal(p, p), 1),
    "InverseGamma": lambda p: d.InverseGamma(p + 2, p),
    "Kumaraswamy": lambda p: d.Kumaraswamy(p, p),
    "LKJCholesky": lambda p: d.LKJCholesky(3, p[0]),
    "Laplace": lambda p: d.Laplace(p, p),
    "LogNormal": lambda p: d.LogNormal(p, p),
    "LogisticNormal": lambda p: d.LogisticNormal(p, p),
    "LowRankMultivariateNormal": lambda p: d.LowRankMultivariateNormal(p, p[:, None], p),
    "MixtureSameFamily": lambda p: d.MixtureSameFamily(d.Categorical(p), d.Normal(p, p)),
    "Multinomial": lambda p: d.Multinomial(5, p),
    "MultivariateNormal": lambda p: d.MultivariateNormal(p, torch.diag(p)),
    "NegativeBinomial": lambda p: d.NegativeBinomial(5, p),
    "Normal": lambda p: d.Normal(p, p),
    "OneHotCategorical": d.OneHotCategorical,
    "Pareto": lambda p: d.Pareto(p, p + 3),
    "Poisson": d.Poisson,
    "RelaxedBernoulli": lambda p: d.RelaxedBernoulli(p[0], p),
    "StudentT": lambda p: d.StudentT(p + 3),
    "TransformedDistribution": lambda p: d.TransformedDistribution(
        d.Normal(p, p), [d.ExpTransform()]
    ),
    "Uniform": lambda p: d.Uniform(p, p + 1),
    "VonMises": lambda p: d.VonMises(p, p),
    "Weibull": lambda p: d.Weibull(p, p),
    "Wishart": lambda p: d.Wishart(p[0] + 5, torch.diag(p)),
}

BROKEN = {
    "LowRankMultivariateNormal": "it asks whether its parameters are valid, in two steps",
    "MultivariateNormal": "it asks whether its matrix is symmetric, then whether it is positive",
    "VonMises": "it draws until each number is accepted",
    "Wishart": "it draws until no matrix is singular",
}
"""Families that are more than one graph, and why."""

WITHOUT_MEAN = {"LKJCholesky", "LogisticNormal", "RelaxedBernoulli", "TransformedDistribution"}


@pytest.mark.filterwarnings("error:.*defect of fusewright", "error:.*should not be instantiated")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_a_family_is_one_graph(family: str, backend: str) -> None:
    def program(p: Tensor) -> Any:
        made = FAMILIES[family](p)
        sample = made.sample()
        mean = None if family in WITHOUT_MEAN else made.mean
        return sample, made.sample(torch.Size([2])), made.log_prob(sample), mean

    one_graph = family not in BROKEN
    options = {"strict": True} if backend == "fusewright" and one_graph else {}
    compiled = fusewright.compile(program, backend=backend, fullgraph=one_graph, options=options)
    for factor in (1.0, 0.9):
        torch.manual_seed(3)
        expected = program(P * factor)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(P * factor), expected, equal_nan=True)


def test_each_family_of_torch_is_here() -> None:
    others = {
        "Distribution",
        "ExponentialFamily",
        "GeneralizedPareto",
        "OneHotCategoricalStraightThrough",
    }
    others |= {"RelaxedOneHotCategorical"}
    made = {name for name in d.__all__ if isinstance(getattr(d, name), type)}
    families = {name for name in made if issubclass(getattr(d, name), d.Distribution)}
    assert families - others == set(FAMILIES)
