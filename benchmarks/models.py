"""The models of the comparison: public architectures, random weights, fixed inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LAYERS = 3
BATCH = 2
LENGTH = 128
IMAGE = 224
"""Pixels on each side of an image."""

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class BenchmarkModel:
    """One row of the comparison."""

    build: Callable[[], tuple[nn.Module, Inputs]]
    """Makes the module, float32 and in eval mode, and the keyword arguments that it is called
    with."""

    own_front_end: bool
    """Whether fusewright's own capture takes this model; if not, it is captured by
    torch.compile."""


class Perceptron(nn.Module):
    """Blocks of linear, GELU, linear and layer norm with a residual connection."""

    def __init__(self, width: int = 256, hidden: int = 1024, depth: int = LAYERS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.LayerNorm(width)
            )
            for _ in range(depth)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            features = features + block(features)
        return features


def token_ids(vocabulary_size: int) -> torch.Tensor:
    """A batch of random tokens."""
    return torch.randint(0, vocabulary_size, (BATCH, LENGTH))


def images() -> Inputs:
    """A batch of random images."""
    return {"pixel_values": torch.randn(BATCH, 3, IMAGE, IMAGE)}


def perceptron() -> tuple[nn.Module, Inputs]:
    return Perceptron(), {"features": torch.randn(BATCH * LENGTH, 256)}


def bert() -> tuple[nn.Module, Inputs]:
    from transformers import BertConfig, BertForMaskedLM

    configuration = BertConfig(num_hidden_layers=LAYERS)
    return BertForMaskedLM(configuration), {"input_ids": token_ids(configuration.vocab_size)}


def gpt2() -> tuple[nn.Module, Inputs]:
    from transformers import GPT2Config, GPT2LMHeadModel

    configuration = GPT2Config(n_layer=LAYERS, use_cache=False)
    return GPT2LMHeadModel(configuration), {"input_ids": token_ids(configuration.vocab_size)}


def llama() -> tuple[nn.Module, Inputs]:
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        num_hidden_layers=LAYERS,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        use_cache=False,
    )
    return LlamaForCausalLM(configuration), {"input_ids": token_ids(configuration.vocab_size)}


def t5() -> tuple[nn.Module, Inputs]:
    from transformers import T5Config, T5ForConditionalGeneration

    configuration = T5Config(num_layers=LAYERS, use_cache=False)
    inputs = {
        "input_ids": token_ids(configuration.vocab_size),
        "decoder_input_ids": token_ids(configuration.vocab_size),
    }
    return T5ForConditionalGeneration(configuration), inputs


def vit() -> tuple[nn.Module, Inputs]:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(num_hidden_layers=LAYERS, image_size=IMAGE)), images()


def resnet() -> tuple[nn.Module, Inputs]:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()), images()


def convnext() -> tuple[nn.Module, Inputs]:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(image_size=IMAGE)), images()


MODELS: dict[str, BenchmarkModel] = {
    "perceptron": BenchmarkModel(perceptron, own_front_end=True),
    "BertForMaskedLM": BenchmarkModel(bert, own_front_end=True),
    "GPT2LMHeadModel": BenchmarkModel(gpt2, own_front_end=True),
    "ResNetModel": BenchmarkModel(resnet, own_front_end=True),
    "LlamaForCausalLM": BenchmarkModel(llama, own_front_end=True),
    "T5ForConditionalGeneration": BenchmarkModel(t5, own_front_end=True),
    "ViTModel": BenchmarkModel(vit, own_front_end=True),
    "ConvNextModel": BenchmarkModel(convnext, own_front_end=True),
}


def build(name: str) -> tuple[nn.Module, Inputs]:
    """The model `name` and its inputs, the same in every process."""
    torch.manual_seed(0)
    module, inputs = MODELS[name].build()
    return module.eval(), inputs


def tensors_of(output: Any) -> list[torch.Tensor]:
    """The tensors of a model's output, in order, out of whatever holds them."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        return [tensor for value in output.values() for tensor in tensors_of(value)]
    if isinstance(output, list | tuple):
        return [tensor for value in output for tensor in tensors_of(value)]
    return []
