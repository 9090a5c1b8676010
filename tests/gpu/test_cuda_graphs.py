"""Compiled code replayed as CUDA graphs gives what it gives when it is launched piece by piece."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fusewright
from benchmarks import models
from tests.gpu.support import CUDA, agree, needs_gpu

pytestmark = needs_gpu

STRICT = {"strict": True}


def replayed(target: Any, **keywords: Any) -> Any:
    return fusewright.compile(target, mode="reduce-overhead", options=STRICT, **keywords)


def replays(compiled: Any) -> int:
    """How many calls of all halves of all graphs were replays; none may have been given up."""
    halves = [half for one in fusewright.compilations(compiled) for half in one.halves]
    assert all(half.record.unrecorded_because == "" for half in halves)
    replayers = [half.replayer for half in halves]
    assert all(one is not None and one.why_not == "" for one in replayers)
    return sum(one.replays for one in replayers if one is not None)


@pytest.mark.parametrize("name", models.MODELS)
def test_inference(name: str) -> None:
    module, inputs = models.build(name)
    module = module.to(CUDA).eval()
    inputs = {key: value.to(CUDA) for key, value in inputs.items()}
    compiled = replayed(module, fullgraph=True)
    with torch.no_grad():
        kept = []
        for step in range(5):
            inputs = {key: value.roll(step, 0).clone() for key, value in inputs.items()}
            results = models.tensors_of(compiled(**inputs))
            kept.append((results, models.tensors_of(module(**inputs))))
        for results, expected in kept:
            agree(results, expected, factor=20)
    assert replays(compiled) == 4


class Classifier(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, bias=False)  # a bias has no gradient but rounding
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm(self.convolution(images))).mean((2, 3))
        return F.cross_entropy(self.head(self.dropout(hidden)), labels)


def batches(count: int, size: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(size, 3, 12, 12, generator=generator).to(CUDA),
            torch.randint(0, 10, (size,), generator=generator).to(CUDA),
        )
        for _ in range(count)
    ]


def plain(call: Callable[..., Any], module: nn.Module, optimizer: Any) -> list[torch.Tensor]:
    losses = []
    for batch in batches(8):
        optimizer.zero_grad()
        loss = call(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def accumulating(call: Callable[..., Any], module: nn.Module, optimizer: Any) -> list[torch.Tensor]:
    losses = []
    for number, batch in enumerate(batches(12)):
        loss = call(*batch)
        loss.backward()
        losses.append(loss.detach())
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def backward_at_the_end(
    call: Callable[..., Any], module: nn.Module, optimizer: Any
) -> list[torch.Tensor]:
    losses = []
    for first, second in zip(batches(10)[::2], batches(10)[1::2], strict=True):
        optimizer.zero_grad()
        pair = [call(*first), call(*second)]
        sum(pair).backward()
        optimizer.step()
        losses += [loss.detach() for loss in pair]
    return losses


def retained(call: Callable[..., Any], module: nn.Module, optimizer: Any) -> list[torch.Tensor]:
    losses = []
    for batch in batches(6):
        optimizer.zero_grad(set_to_none=False)
        loss = call(*batch)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def short_last_batch(
    call: Callable[..., Any], module: nn.Module, optimizer: Any
) -> list[torch.Tensor]:
    losses = []
    for _ in range(3):
        for images, labels in [*batches(4), *batches(1, size=3)]:
            optimizer.zero_grad()
            loss = call(images, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses


@pytest.mark.parametrize(
    "loop", [plain, accumulating, backward_at_the_end, retained, short_last_batch]
)
def test_training(loop: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    module = Classifier().to(CUDA)
    other = copy.deepcopy(module)
    losses = loop(module, module, torch.optim.SGD(module.parameters(), 0.1))
    compiled = replayed(other)
    found = loop(compiled, other, torch.optim.SGD(other.parameters(), 0.1))
    agree(found, losses, factor=30)
    agree(list(other.buffers()), list(module.buffers()), factor=30)
    assert replays(compiled) > 4


def test_dropout_draws_anew_in_each_replay() -> None:
    module = Classifier(dropout=0.5).to(CUDA)
    images, labels = batches(1)[0]
    results = []
    for compiled in (fusewright.compile(module, options=STRICT), replayed(module)):
        compiled(images, labels)
        compiled(images, labels)
        torch.manual_seed(5)
        results.append([compiled(images, labels).detach().clone() for _ in range(4)])
    assert len({float(loss) for loss in results[1]}) == 4
    agree(results[1], results[0])


def test_calls_on_another_stream() -> None:
    weight = torch.randn(64, 64, device=CUDA)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu().sum(0)

    compiled = replayed(f)
    stream = torch.cuda.Stream()
    # All alive at once: one that had the address of the last would count as staying in place.
    inputs = [torch.randn(16, 64, device=CUDA) for _ in range(8)]
    with torch.no_grad():
        for step, x in enumerate(inputs):
            torch.cuda.synchronize()
            if step % 2:
                with torch.cuda.stream(stream):
                    found = compiled(x)
                stream.synchronize()
            else:
                found = compiled(x)
            agree(found, f(x), factor=4)
    assert replays(compiled) == 6


def test_a_cache_that_is_written_in_place() -> None:
    cache = torch.zeros(4, 16, 8, device=CUDA)

    def step(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, x[:, None])
        return cache.sum(1) * x

    compiled, expected = replayed(step), cache.clone()
    with torch.no_grad():
        for position in range(6):
            x, at = torch.randn(4, 8, device=CUDA), torch.tensor([position], device=CUDA)
            agree(compiled(cache, x, at), step(expected, x, at))
            agree(cache, expected)
    assert replays(compiled) == 5


@pytest.mark.parametrize("name", ["ResNetModel", "BertForMaskedLM", "GPT2LMHeadModel"])
def test_backend_cudagraphs_trains(name: str) -> None:
    module, inputs = models.build(name)
    module = module.to(CUDA).eval()
    other = copy.deepcopy(module)
    inputs = {key: value.to(CUDA) for key, value in inputs.items()}
    compiled = fusewright.compile(other, backend="cudagraphs")
    for _ in range(4):
        for call, one in ((module, module), (compiled, other)):
            one.zero_grad()
            tensors = [t for t in models.tensors_of(call(**inputs)) if t.is_floating_point()]
            sum(t.square().mean() for t in tensors).backward()
        pairs = zip(module.parameters(), other.parameters(), strict=True)
        for one, two in pairs:
            if one.grad is not None:
                scale = float(one.grad.abs().max()) + 1e-6
                agree(two.grad / scale, one.grad / scale, factor=100)
