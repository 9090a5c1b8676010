"""The models of the comparison on a GPU: public architectures of the usual sizes, random weights,
no dropout, so that results can be compared. Decoders read one token behind a text that they have
read, whose keys and values lie in a cache of a fixed size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.models import Inputs, Perceptron, tensors_of

IMAGES = 32
TEXTS, LENGTH = 8, 256
PLACES, READ = 1024, 511
"""Tokens that a decoder's cache has room for, and of those that it holds."""

Built = tuple[nn.Module, Inputs]


def _images(key: str) -> Inputs:
    return {key: torch.randn(IMAGES, 3, 224, 224)}


def _tokens(vocabulary: int, *keys: str) -> Inputs:
    return {key: torch.randint(0, vocabulary, (TEXTS, LENGTH)) for key in keys}


def timm_model(name: str) -> Built:
    """A model of timm, by its name there."""
    import timm

    return timm.create_model(name), _images("x")


def bert() -> Built:
    from transformers import BertConfig, BertModel

    configuration = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertModel(configuration, add_pooling_layer=False)
    return model, _tokens(configuration.vocab_size, "input_ids")


def gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    configuration = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(configuration), _tokens(configuration.vocab_size, "input_ids")


def t5() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    configuration = T5Config(dropout_rate=0.0, use_cache=False, decoder_start_token_id=0)
    keys = ("input_ids", "decoder_input_ids")
    return T5ForConditionalGeneration(configuration), _tokens(configuration.vocab_size, *keys)


def llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        num_hidden_layers=12,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        use_cache=False,
    )
    return LlamaForCausalLM(configuration), _tokens(configuration.vocab_size, "input_ids")


def perceptron() -> Built:
    features = torch.randn(TEXTS * LENGTH, 1024)
    return Perceptron(width=1024, hidden=4096, depth=6), {"features": features}


MODELS: dict[str, Callable[[], Built]] = {
    "perceptron": perceptron,
    "resnet50": lambda: timm_model("resnet50"),
    "vit": lambda: timm_model("vit_base_patch16_224"),
    "convnext": lambda: timm_model("convnext_tiny"),
    "bert": bert,
    "gpt2": gpt2,
    "t5": t5,
    "llama": llama,
}


class Cache:
    """Keys and values of the tokens read so far, as models of transformers ask for them; those of
    one more token are written behind them, each time at the same place.
    """

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], place: torch.Tensor
    ) -> None:
        self.keys = keys
        """One tensor a layer: texts, heads, places, elements."""

        self.values = values
        self.place = place

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the token's, and give all of a layer."""
        for cached, new in ((self.keys[layer], keys), (self.values[layer], values)):
            cached.index_copy_(2, self.place, new)
        return self.keys[layer], self.values[layer]


class OneToken(nn.Module):
    """A language model that reads one token of one text; it returns the token's logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        config: Any = model.config
        self.layers: int = config.num_hidden_layers
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = 1, heads, PLACES, config.hidden_size // config.num_attention_heads
        for layer in range(self.layers):
            self.register_buffer(f"keys{layer}", torch.randn(size))
            self.register_buffer(f"values{layer}", torch.randn(size))
        self.register_buffer("place", torch.tensor([READ]))
        self.register_buffer("seen", (torch.arange(PLACES) <= READ).view(1, 1, 1, PLACES))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        cache = Cache(
            [getattr(self, f"keys{layer}") for layer in range(self.layers)],
            [getattr(self, f"values{layer}") for layer in range(self.layers)],
            self.place,
        )
        logits: torch.Tensor = self.model(
            input_ids=input_ids,
            past_key_values=cache,
            attention_mask=self.seen,
            position_ids=self.place[None],
            use_cache=False,
        ).logits
        return logits


def decoder(build_model: Callable[[], Built]) -> Built:
    """A language model that reads one token at a time."""
    module, inputs = build_model()
    return OneToken(module), {"input_ids": inputs["input_ids"][:1, :1]}


DECODERS: dict[str, Callable[[], Built]] = {
    "gpt2-decode": lambda: decoder(gpt2),
    "llama-decode": lambda: decoder(llama),
}
"""Of inference alone."""


def names_for(mode: str) -> list[str]:
    """The models that are measured in a mode, `infer` or `train`."""
    return [*MODELS, *(DECODERS if mode == "infer" else ())]


class WithLoss(nn.Module):
    """A model that returns a number in which each element of its results has a weight of its
    own.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        outputs = [one for one in tensors_of(self.model(**inputs)) if one.is_floating_point()]
        return weighted_mean(outputs[0])


def weighted_mean(output: torch.Tensor) -> torch.Tensor:
    """The mean of elements times cosines of their places along the last dimension."""
    wide = output if output.dtype == torch.float64 else output.float()
    places = torch.arange(output.shape[-1], device=output.device, dtype=wide.dtype)
    return (wide * places.cos()).mean() * 100


def build(name: str, mode: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model and its inputs on the GPU: in bfloat16 for inference, in float32 with its loss for
    training.
    """
    torch.manual_seed(0)
    module, inputs = {**MODELS, **DECODERS}[name]()
    if mode == "train":
        return WithLoss(module).cuda().train(), {k: v.cuda() for k, v in inputs.items()}
    module = module.cuda().to(torch.bfloat16).eval()
    return module, {
        key: value.cuda().to(torch.bfloat16) if value.is_floating_point() else value.cuda()
        for key, value in inputs.items()
    }
