"""Small models of the transformers library, each with the arguments of a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
