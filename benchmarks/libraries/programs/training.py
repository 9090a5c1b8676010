"""Loops of training: optimisers, schedulers, Lightning, Accelerate, metrics."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers as they are now."""
    return {name: one.detach().clone() for name, one in module.state_dict().items()}


@program(tolerance=1e-3)
def whole_step(compile: Compile) -> Run:
    """Forward, backward, clipping and AdamW with a schedule, all in one compiled function."""
    module = perceptron(16, 32, 4)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)

    @compile
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(32, 16), torch.randint(4, (32,))

    def run() -> Any:
        loss = step(x, y)
        schedule.step()
        return loss, _state(module)

    return run


@program(tolerance=1e-3)
def optimizer_step_alone(compile: Compile) -> Run:
    """SGD with momentum and weight decay, whose step is compiled."""
    module = perceptron(16, 64, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    step = compile(optimizer.step)
    x = torch.randn(32, 16)

    def run() -> Any:
        optimizer.zero_grad()
        module(x).square().mean().backward()
        step()
        return _state(module)

    return run


@program(tolerance=1e-3)
def accumulation(compile: Compile) -> Run:
    """Gradients of several batches are accumulated before a step."""
    module = nn.Sequential(
        nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
    )
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    compiled = compile(module)
    batches = torch.randn(4, 16, 16)

    def run() -> Any:
        optimizer.zero_grad()
        for batch in batches:
            (compiled(batch).square().mean() / len(batches)).backward()
        optimizer.step()
        return _state(module)

    return run


@program(tolerance=1e-3)
def generative_adversarial_step(compile: Compile) -> Run:
    """Both losses of a GAN in one compiled function, each with its optimiser."""
    generator, critic = perceptron(4, 32, 8), perceptron(8, 32, 1)
    first = torch.optim.SGD(generator.parameters(), lr=1e-2)
    second = torch.optim.SGD(critic.parameters(), lr=1e-2)

    @compile
    def losses(noise: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fake = generator(noise)
        of_critic = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        return of_critic, F.softplus(-critic(fake)).mean()

    real = torch.randn(32, 8)

    def run() -> Any:
        of_critic, of_generator = losses(torch.randn(32, 4), real)
        first.zero_grad()
        of_generator.backward(retain_graph=True)
        second.zero_grad()
        of_critic.backward()
        first.step()
        second.step()
        return of_critic.detach(), of_generator.detach(), _state(critic)["0.weight"]

    return run


@program("lightning", tolerance=1e-3)
def lightning_module(compile: Compile) -> Run:
    """training_step of a LightningModule with logging, compiled as Lightning does."""
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(16, 32, 4)
            self.save_hyperparameters()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self(x), y)

    module = Model()
    step = compile(module.training_step)
    batches = [(torch.randn(16, 16), torch.randint(4, (16,))) for _ in range(4)]
    return lambda: [gradients(module, step(one, i)) for i, one in enumerate(batches)]


@program("accelerate", tolerance=1e-3)
def accelerated_loop(compile: Compile) -> Run:
    """Accelerate prepares a compiled model and its optimiser and runs backward."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    module = perceptron(16, 32, 4)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    compiled, prepared = accelerator.prepare(compile(module), optimizer)
    x, y = torch.randn(32, 16), torch.randint(4, (32,))

    def run() -> Any:
        with accelerator.accumulate(compiled):
            loss = F.cross_entropy(compiled(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(compiled.parameters(), 1.0)
            prepared.step()
            prepared.zero_grad()
        return loss.detach(), _state(module)

    return run


@program("torchmetrics")
def metrics_in_the_step(compile: Compile) -> Run:
    """Accuracy and a mean of torchmetrics, updated within what is compiled."""
    from torchmetrics import MeanMetric
    from torchmetrics.classification import MulticlassAccuracy

    module = perceptron(16, 32, 4)
    accuracy, mean = MulticlassAccuracy(4, validate_args=False), MeanMetric()

    @compile
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = module(x)
        loss = F.cross_entropy(out, y)
        accuracy.update(out, y)
        mean.update(loss)
        return loss

    x, y = torch.randn(32, 16), torch.randint(4, (32,))

    def run() -> Any:
        result = gradients(module, step(x, y))
        told = accuracy.compute(), mean.compute().detach()
        accuracy.reset()
        mean.reset()
        return result, told

    return run


@program("torchmetrics")
def metrics_as_functions(compile: Compile) -> Run:
    """Functional metrics of regression and images."""
    from torchmetrics.functional import mean_squared_error, pearson_corrcoef, r2_score
    from torchmetrics.functional.image import peak_signal_noise_ratio

    @compile
    def evaluate(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x.flatten(), y.flatten()
        return (
            mean_squared_error(*flat),
            r2_score(*flat),
            pearson_corrcoef(*flat),
            peak_signal_noise_ratio(x, y, data_range=1.0),
        )

    x = torch.rand(2, 3, 16, 16)
    y = (x + 0.1 * torch.randn_like(x)).clamp(0, 1)
    return lambda: evaluate(x, y)


@program("pytorch_metric_learning")
def metric_learning(compile: Compile) -> Run:
    """Triplets mined within a batch, and their margin loss."""
    from pytorch_metric_learning.losses import NTXentLoss, TripletMarginLoss

    body = perceptron(16, 32, 8)
    triplet, contrast = TripletMarginLoss(), NTXentLoss()

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        embedded = body(x)
        return triplet(embedded, y) + contrast(embedded, y)

    x, y = torch.randn(24, 16), torch.arange(24) % 4
    return lambda: gradients(body, loss(x, y))


@program()
def contrastive_learning(compile: Compile) -> Run:
    """SimCLR: two views by a random augmentation, normalised, and the contrast of all pairs."""
    body = perceptron(32, 64, 16)

    @compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        views = torch.cat([x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2)])
        z = F.normalize(body(views), dim=-1)
        similar = (z @ z.T / 0.5).fill_diagonal_(float("-inf"))
        return F.cross_entropy(similar, torch.arange(len(z)).roll(len(x)))

    x = torch.randn(16, 32)
    return lambda: gradients(body, loss(x))


@program()
def distillation(compile: Compile) -> Run:
    """A student learns from a teacher in eval mode without gradients."""
    teacher, student = perceptron(16, 64, 4).eval(), perceptron(16, 16, 4)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = F.log_softmax(teacher(x) / 2, -1)
        out = student(x)
        soft = F.kl_div(F.log_softmax(out / 2, -1), wanted, log_target=True, reduction="batchmean")
        return 0.5 * 4 * soft + 0.5 * F.cross_entropy(out, y)

    x, y = torch.randn(32, 16), torch.randint(4, (32,))
    return lambda: gradients(student, loss(x, y))


@program(tolerance=1e-3)
def meta_learning(compile: Compile) -> Run:
    """MAML: inner steps of gradient descent through which the outer loss is differentiated."""
    from torch.func import functional_call

    module = perceptron(4, 16, 1)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = dict(module.named_parameters())
        for _ in range(2):
            inner = (functional_call(module, weights, (x,)) - y).square().mean()
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {
                name: one - 0.1 * slope
                for (name, one), slope in zip(weights.items(), slopes, strict=True)
            }
        return (functional_call(module, weights, (x,)) - y).square().mean()

    x, y = torch.randn(16, 4), torch.randn(16, 1)
    return lambda: gradients(module, loss(x, y))
