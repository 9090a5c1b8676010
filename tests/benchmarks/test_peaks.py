"""Compiled models hold no more memory at any time than eager ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from benchmarks.models import Inputs, Perceptron
from benchmarks.peaks import MODES, peak_bytes, peaks


def test_what_is_counted() -> None:
    """A tensor of 1 MiB, then two at once, then what is left of them."""

    def run() -> torch.Tensor:
        first = torch.zeros(1 << 18)
        return first + 1

    assert peak_bytes(run) == pytest.approx(2 << 20, rel=1e-3)
    assert peak_bytes(lambda: torch.zeros(1 << 18).add_(1)) == pytest.approx(1 << 20, rel=1e-3)


def perceptron() -> tuple[nn.Module, Inputs]:
    return Perceptron(width=64, hidden=256, depth=2), {"features": torch.randn(128, 64)}


def ids(*names: str, most: int = 8000) -> Inputs:
    return {name: torch.randint(0, most, (2, 64)) for name in names}


def images(size: int) -> Inputs:
    return {"pixel_values": torch.randn(2, 3, size, size)}


WIDE: dict[str, Any] = {"hidden_size": 192, "num_attention_heads": 3, "num_hidden_layers": 2}


def bert() -> tuple[nn.Module, Inputs]:
    config = transformers.BertConfig(**WIDE, intermediate_size=768, vocab_size=8000)
    return transformers.BertForMaskedLM(config), ids("input_ids")


def narrow_bert() -> tuple[nn.Module, Inputs]:
    """Heads of 4 features, whose scores are sixteen times as large as what they are made of."""
    config = transformers.BertConfig(
        hidden_size=32,
        num_attention_heads=8,
        num_hidden_layers=2,
        intermediate_size=64,
        vocab_size=100,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertModel(config), ids("input_ids", most=100)


def gpt2() -> tuple[nn.Module, Inputs]:
    config = transformers.GPT2Config(
        n_embd=192, n_head=3, n_layer=2, vocab_size=12000, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config), ids("input_ids")


def resnet() -> tuple[nn.Module, Inputs]:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[64, 128, 256, 512], depths=[1, 2, 1, 1]
    )
    return transformers.ResNetModel(config), images(96)


def llama() -> tuple[nn.Module, Inputs]:
    config = transformers.LlamaConfig(
        **WIDE, intermediate_size=528, vocab_size=8000, use_cache=False
    )
    return transformers.LlamaForCausalLM(config), ids("input_ids")


def t5() -> tuple[nn.Module, Inputs]:
    config = transformers.T5Config(
        d_model=128, d_ff=512, num_heads=2, num_layers=2, vocab_size=8000, use_cache=False
    )
    return transformers.T5ForConditionalGeneration(config), ids("input_ids", "decoder_input_ids")


def vit() -> tuple[nn.Module, Inputs]:
    return transformers.ViTModel(transformers.ViTConfig(**WIDE, intermediate_size=768)), images(224)


def convnext() -> tuple[nn.Module, Inputs]:
    config = transformers.ConvNextConfig(hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 2, 1])
    return transformers.ConvNextModel(config), images(128)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "build", [perceptron, bert, narrow_bert, gpt2, resnet, llama, t5, vit, convnext]
)
def test_a_model(build: Callable[[], tuple[nn.Module, Inputs]], mode: str) -> None:
    """A quarter as wide as the benchmark's, and of fewer layers; those are
    `python -m benchmarks.peaks`.
    """
    torch.manual_seed(0)
    model, inputs = build()
    eager, compiled = peaks(model.eval(), inputs, mode)
    assert compiled <= eager * 1.002  # what lies around buffers to align them
