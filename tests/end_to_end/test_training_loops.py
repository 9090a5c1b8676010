"""Training loops as people write them, with the model compiled: losses and gradients of every step
are eager's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fusewright
from fusewright.errors import FusewrightError
from tests.threads import in_threads, with_threads

STRICT = {"strict": True, "verify": True}
WITH_BREAKS = {"strict": False, "verify": True}
LETTERS = 13

Loop = Callable[[nn.Module, nn.Module], Iterator[Any]]
"""Trains the first module by calls of the second, which is it or is it compiled; yields what is to
be the same for both.
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The models are too small to share out."""
    with with_threads(1):
        yield


class Predictor(nn.Module):
    """Embedding, a residual block with dropout, and a head that shares the embedding's weight."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 16)
        self.inner = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.outer = nn.Linear(32, 16)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, LETTERS, bias=False)
        self.head.weight = self.embedding.weight

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.outer(F.gelu(self.norm(self.inner(x)))))  # type: ignore[no-any-return]

    def forward(self, letters: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        x = self.embedding(letters)
        return F.cross_entropy(self.head(x + self.block(x)), following)


class Checkpointed(Predictor):
    def __init__(self, dropout: float, use_reentrant: bool) -> None:
        super().__init__(dropout)
        self.use_reentrant = use_reentrant

    def forward(self, letters: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        x = self.embedding(letters)
        x = x + checkpoint(self.block, x, use_reentrant=self.use_reentrant)
        return F.cross_entropy(self.head(x), following)


def batches(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    for _ in range(count):
        yield tuple(torch.randint(0, LETTERS, (2, 8), generator=generator))  # type: ignore[misc]


def gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {
        name: None if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


def check(
    loop: Loop, model: nn.Module, tolerance: float = 1e-4, options: dict[str, Any] = STRICT
) -> nn.Module:
    """Run `loop` in eager on a copy, and compiled; compare all that it yields. Gives the compiled
    model.
    """
    reference = copy.deepcopy(model)
    compiled = fusewright.compile(model, options=options)
    torch.manual_seed(3)
    expected = list(loop(reference, reference))
    torch.manual_seed(3)
    found = list(loop(model, compiled))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    return compiled  # type: ignore[no-any-return]


def train(model: nn.Module, compute: nn.Module, steps: int = 4) -> Iterator[Any]:
    """Adam with clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for letters, following in batches(steps):
        optimizer.zero_grad()
        loss = compute(letters, following)
        loss.backward()
        yield loss.detach()
        yield nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        yield gradients(model)
        optimizer.step()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_clipped_gradients_and_a_tied_weight(dropout: float) -> None:
    """Dropout draws what eager draws."""
    compiled = check(train, Predictor(dropout))
    assert len(fusewright.compilations(compiled)) == 1


def test_dropout_is_reproducible_and_new_in_every_step() -> None:
    compiled = fusewright.compile(Predictor(0.5), options=STRICT)
    (batch,) = batches(1)

    def losses() -> list[float]:
        torch.manual_seed(1)
        return [compiled(*batch).item() for _ in range(3)]

    first = losses()
    assert first == losses()
    assert len(set(first)) == 3


def test_gradients_are_accumulated() -> None:
    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        optimizer = torch.optim.SGD(model.parameters(), 1e-1, momentum=0.9)
        for number, batch in enumerate(batches(6)):
            (compute(*batch) / 3).backward()
            yield gradients(model)
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    check(loop, Predictor())


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 5e-3)], ids=str
)
def test_autocast_with_scaled_gradients(dtype: torch.dtype, tolerance: float) -> None:
    """The third loss is infinite: its step is left out, and the scale halved, as in eager."""

    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        optimizer = torch.optim.SGD(model.parameters(), 1e-1)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2)
        for number, batch in enumerate(batches(5)):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = compute(*batch)
            scaler.scale(loss * (torch.inf if number == 2 else 1)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            yield loss.detach().float()
            yield {} if number == 2 else gradients(model)
            yield scaler.get_scale()

    check(loop, Predictor(), tolerance)


def test_frozen_parameters_and_their_thaw() -> None:
    def loop(model: Any, compute: nn.Module) -> Iterator[Any]:
        model.inner.requires_grad_(False)
        yield from train(model, compute, 2)
        model.inner.requires_grad_(True)
        yield from train(model, compute, 2)

    compiled = check(loop, Predictor())
    assert len(fusewright.compilations(compiled)) == 2


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_blocks(use_reentrant: bool) -> None:
    """The reentrant kind runs the engine inside of a backward: it stays a call between graphs."""
    options = WITH_BREAKS if use_reentrant else STRICT
    check(train, Checkpointed(0.3, use_reentrant), options=options)


def test_a_checkpoint_around_a_compiled_model() -> None:
    """Its hooks count what a call saves, not what capture and tracing do, and end the second
    forward by an exception.
    """

    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        around: Any = partial(checkpoint, compute, use_reentrant=False)
        yield from train(model, around)

    check(loop, Predictor(0.3))


def test_less_is_kept_for_a_checkpointed_block() -> None:
    kept = []
    for model in (Predictor(0.3), Checkpointed(0.3, use_reentrant=False)):
        compiled = check(train, model)
        (compilation,) = fusewright.compilations(compiled)
        assert compilation.training is not None
        kept.append(compilation.training.measured_bytes or 0)
    assert kept[1] < 0.7 * kept[0]


def test_hooks_on_parameters() -> None:
    def loop(model: Any, compute: nn.Module) -> Iterator[Any]:
        seen: list[torch.Tensor] = []
        model.inner.weight.register_hook(lambda gradient: gradient * 2)
        model.outer.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        yield from train(model, compute)
        yield seen

    check(loop, Predictor())


def test_forward_hooks_of_modules() -> None:
    def loop(model: Any, compute: nn.Module) -> Iterator[Any]:
        model.inner.register_forward_hook(lambda module, inputs, output: output * 1.5)
        model.norm.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
        yield from train(model, compute)

    check(loop, Predictor())


def test_backward_hooks_of_modules() -> None:
    """They break the graph, and run as in eager."""

    def loop(model: Any, compute: nn.Module) -> Iterator[Any]:
        calls: list[int] = []
        model.outer.register_full_backward_hook(lambda module, of_input, _: (of_input[0] * 2,))
        model.inner.register_full_backward_pre_hook(lambda module, of_output: (of_output[0] * 3,))
        model.norm.register_full_backward_hook(lambda module, *both: calls.append(len(both)))
        yield from train(model, compute)
        yield calls

    check(loop, Predictor(), options=WITH_BREAKS)


def test_a_graph_that_is_kept() -> None:
    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        for batch in batches(2):
            model.zero_grad()
            loss = compute(*batch)
            loss.backward(retain_graph=True)
            yield gradients(model)
            loss.backward()
            yield gradients(model)

    check(loop, Predictor())


def test_a_penalty_on_gradients_is_refused_in_words() -> None:
    model = Predictor()
    (batch,) = batches(1)
    loss = fusewright.compile(model, options=STRICT)(*batch)
    weights = list(model.parameters())
    penalty = sum(
        one.square().sum() for one in torch.autograd.grad(loss, weights, create_graph=True)
    )
    with pytest.raises(FusewrightError, match="does not compile second derivatives"):
        penalty.backward()  # type: ignore[union-attr]


def test_validation_between_steps() -> None:
    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        for _ in range(2):
            yield from train(model, compute.train(), 2)
            compute.eval()
            with torch.no_grad():
                yield [compute(*batch) for batch in batches(2)]

    check(loop, Predictor(0.3))


def test_data_parallel_hooks_fire() -> None:
    """As gradients become ready, a bucket at a time."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)

    def doubled(buckets, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        buckets.append(bucket.buffer().numel())
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer() * 2)
        return future

    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        buckets: list[int] = []
        parallel = nn.parallel.DistributedDataParallel(compute)
        parallel.register_comm_hook(buckets, doubled)
        yield from train(model, parallel, 2)
        yield buckets

    try:
        check(loop, Predictor())
    finally:
        distributed.destroy_process_group()


# -- threads --------------------------------------------------------------------------------------


def test_eight_models_train_in_threads_at_once() -> None:
    models = [Predictor() for _ in range(8)]
    expected = [list(train(model, model, 2)) for model in map(copy.deepcopy, models)]

    def work(number: int) -> Any:
        return list(train(models[number], fusewright.compile(models[number], options=STRICT), 2))

    torch.testing.assert_close(in_threads(work, 8), expected, rtol=1e-4, atol=1e-4)


def test_eight_threads_use_one_compiled_model() -> None:
    """Each first call and first backward may be the one that compiles."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).requires_grad_(False)
    compiled = fusewright.compile(model, options=STRICT)

    def work(compute: nn.Module, number: int) -> Any:
        x = torch.full((3, 8), float(number)).requires_grad_()
        return [torch.autograd.grad(compute(x).cos().sum(), x) for _ in range(5)]

    expected = [work(model, number) for number in range(8)]
    torch.testing.assert_close(in_threads(partial(work, compiled), 8), expected)


# -- a hundred steps ------------------------------------------------------------------------------


class SmallGpt(nn.Module):
    """Two causal transformer layers over single characters."""

    def __init__(self, characters: int, width: int = 32, context: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, width)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.attention = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.inner = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.outer = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.head = nn.Linear(width, characters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.tokens(text[:, :-1]) + self.positions
        for layer in range(2):
            heads = self.attention[layer](self.norms[2 * layer](x)).unflatten(-1, (3, 4, -1))
            query, key, value = heads.transpose(1, 3).unbind(2)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.projections[layer](mixed.transpose(1, 2).flatten(2))
            x = x + self.outer[layer](F.gelu(self.inner[layer](self.norms[2 * layer + 1](x))))
        return F.cross_entropy(self.head(x).flatten(0, 1), text[:, 1:].flatten())


def test_a_hundred_steps_of_a_small_gpt_on_real_text() -> None:
    """The loss curve lies on eager's, and falls."""
    words = (Path(__file__).parents[2] / "LICENSE").read_text()
    characters = sorted(set(words))
    text = torch.tensor([characters.index(one) for one in words])

    def loop(model: nn.Module, compute: nn.Module) -> Iterator[Any]:
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        for _ in range(100):
            starts = torch.randint(0, len(text) - 25, (8,))
            loss = compute(torch.stack([text[start : start + 25] for start in starts]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.detach()

    torch.manual_seed(0)
    model = SmallGpt(len(characters))
    reference = copy.deepcopy(model)
    curves = []
    for module, compute in (
        (reference, reference),
        (model, fusewright.compile(model, options=STRICT)),
    ):
        torch.manual_seed(1)
        curves.append(torch.stack(list(loop(module, compute))))
    expected, found = curves
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert expected[-10:].mean() < expected[:10].mean() - 1


def test_forward_differentiation_runs_as_written() -> None:
    """Before, within and after: a graph would lose the tangents."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sin()

    ours = fusewright.compile(program)
    x, w = torch.ones(3), torch.full((3,), 2.0)
    torch.testing.assert_close(ours(x, w), program(x, w))
    for tracked in (False, True):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.arange(3.0))
            result = ours(dual, w.clone().requires_grad_(tracked))
            wanted = forward_ad.unpack_dual(program(dual, w)).tangent
            torch.testing.assert_close(forward_ad.unpack_dual(result).tangent, wanted)
    torch.testing.assert_close(ours(x, w), program(x, w))
    assert fusewright.compilations(ours)[0].record is not None


def test_a_step_that_runs_backward_breaks_there_alone() -> None:
    """The compiled backward, which runs while code is being captured, is not captured itself."""
    model = Predictor()
    (batch,) = batches(1)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(*batch)
        loss.backward()
        return loss

    found = fusewright.explain(step, options=WITH_BREAKS)()
    assert [one.reason for one in found.breaks] == ["grad-required"]
