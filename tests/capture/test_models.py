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

transformers = pytest.importorskip(
    "transformers", reason="the transformers library is not installed"
)

IDS = torch.randint(5, 100, (2, 12))
IMAGES = torch.randn(2, 3, 32, 32)
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 128,
}


def bert() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)), {"input_ids": IDS}


def bert_with_mask() -> Any:
    mask = torch.ones_like(IDS)
    mask[1, 8:] = 0
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)), {
        "input_ids": IDS,
        "attention_mask": mask,
    }


def bert_with_outputs() -> Any:
    model = transformers.BertModel(
        transformers.BertConfig(**SMALL, attn_implementation="eager")
    ).eval()
    model(IDS, output_attentions=True)  # the first such call registers hooks, under a lock
    return model, {"input_ids": IDS, "output_hidden_states": True, "output_attentions": True}


def gpt2() -> Any:
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=128)
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS}


def resnet() -> Any:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2])
    return transformers.ResNetModel(config), {"pixel_values": IMAGES}


def llama() -> Any:
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def t5() -> Any:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=128
    )
    return transformers.T5ForConditionalGeneration(config), {
        "input_ids": IDS,
        "decoder_input_ids": IDS,
    }


def vit() -> Any:
    sizes = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    return transformers.ViTModel(config), {"pixel_values": IMAGES}


def convnext() -> Any:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    return transformers.ConvNextModel(config), {"pixel_values": IMAGES}


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
