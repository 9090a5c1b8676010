"""Unmodified models, of the transformers library and small ones: one graph each, the results of
eager, weights swapped freely.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.compiled import compiler_of
from tests.capture import small_models
from tests.capture.agreement import assert_same
from tests.capture.transformers_models import (
    IDS,
    bert,
    bert_with_mask,
    bert_with_outputs,
    convnext,
    gpt2,
    llama,
    resnet,
    t5,
    vit,
)

transformers = pytest.importorskip(
    "transformers", reason="the transformers library is not installed"
)


def same_output(found: Any, expected: Any) -> None:
    """Model outputs, caches inside them included."""
    if isinstance(expected, transformers.Cache):
        assert type(found) is type(expected)
        parts = [name for name in vars(expected) if name.endswith("_cache")]
        for name in parts:
            same_output(getattr(found, name), getattr(expected, name))
        for one, other in zip(found.layers, expected.layers, strict=True) if not parts else ():
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert type(found) is type(expected) and list(found) == list(expected)
        for key in expected:
            same_output(found[key], expected[key])
            assert type(found) is dict or found[key] is getattr(found, key)
    else:
        assert_same(found, expected)


@pytest.mark.parametrize(
    "make",
    [bert, bert_with_mask, bert_with_outputs, gpt2, resnet, llama, t5, vit, convnext],
    ids=lambda make: make.__name__,
)
def test_model_is_one_graph(make: Any) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    compiled = api.compile(model, backend="eager", fullgraph=True)
    compiler = compiler_of(compiled)
    with torch.no_grad():
        same_output(compiled(**inputs), model(**inputs))
        for parameter in model.parameters():
            parameter.mul_(0.5)
        same_output(compiled(**inputs), model(**inputs))
    assert compiler.capture_count == 1


def test_generation_step_with_a_cache() -> None:
    """A cache returned by one call is the argument of the next, which changes it."""
    model, inputs = gpt2()
    model.eval()
    compiled = api.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        mine, theirs = compiled(**inputs), model(**inputs)
        for _ in range(2):
            token = IDS[:, :1]
            mine = compiled(input_ids=token, past_key_values=mine.past_key_values)
            theirs = model(input_ids=token, past_key_values=theirs.past_key_values)
            same_output(mine, theirs)


WORDS = torch.tensor([[3, 7, 1, 0], [5, 2, 9, 4]])

SMALL_MODELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "perceptron": (small_models.Perceptron, (torch.randn(3, 8),)),
    "tagger": (small_models.Tagger, (WORDS,)),
    "translator": (small_models.Translator, (WORDS, WORDS[:, :3])),
    "detector": (small_models.Detector, ([torch.randn(3, 16, 16), torch.randn(3, 16, 16)],)),
    "denoiser": (small_models.Denoiser, (torch.randn(2, 3, 8, 8), torch.tensor([3, 40]))),
    "denoiser_at_one_step": (small_models.Denoiser, (torch.randn(2, 3, 8, 8), 7)),
    "soft_experts": (small_models.SoftExperts, (torch.randn(6, 8),)),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_small_model_is_one_graph(name: str, training: bool) -> None:
    """Results, gradients and buffers, twice."""
    make, inputs = SMALL_MODELS[name]
    torch.manual_seed(0)
    mine = make().train(training)
    theirs = copy.deepcopy(mine)
    compiled = api.compile(mine, backend="eager", fullgraph=True)
    for _ in range(2):
        outputs = []
        for model in (compiled, theirs):
            torch.manual_seed(1)
            outputs.append(model(*inputs))
        same_output(*outputs)
        for output in outputs:
            sum(t.nan_to_num(neginf=0).sum() for t in tensors_of(output)).backward()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_same(one.grad, other.grad)
    for one, other in zip(mine.buffers(), theirs.buffers(), strict=True):
        assert_same(one, other)
    assert compiler_of(compiled).capture_count == 1


def tensors_of(output: Any) -> list[torch.Tensor]:
    """The tensors of a small model's output."""
    if isinstance(output, torch.Tensor):
        return [output]
    return list(output.values() if isinstance(output, dict) else output)


def test_routed_experts_break_at_their_branches() -> None:
    torch.manual_seed(0)
    model = small_models.RoutedExperts()
    compiled = api.compile(model, backend="eager")
    for seed in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        assert_same(compiled(x), model(x))
