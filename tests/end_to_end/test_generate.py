"""`model.generate` with the forward compiled: the same tokens, a bounded number of compilations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fusewright

GREEDY: dict[str, Any] = {"do_sample": False}
SAMPLING: dict[str, Any] = {"do_sample": True, "top_k": 10, "temperature": 0.8}


def decoder() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    tokens = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **tokens)).eval()


@pytest.mark.parametrize("how", [GREEDY, SAMPLING], ids=["greedy", "sampling"])
@pytest.mark.parametrize(("cache", "limit"), [("dynamic", 3), ("static", 2)])
def test_generate(how: dict[str, Any], cache: str, limit: int) -> None:
    """At most three programs: the prompt, the first token after it, and all others; with a cache
    of fixed size two. Further prompts of that length need none, though more tokens are asked for.
    """
    model = decoder()
    compiled = fusewright.compile(model.forward, options={"strict": True})

    def tokens(forward: Any, prompt: torch.Tensor, count: int) -> torch.Tensor:
        model.forward = forward
        torch.manual_seed(3)
        found = model.generate(prompt, max_new_tokens=count, cache_implementation=cache, **how)
        assert isinstance(found, torch.Tensor)
        return found

    eager = model.forward
    for seed, count in ((1, 8), (2, 8), (3, 12)):
        prompt = torch.randint(2, 50, (2, 5), generator=torch.Generator().manual_seed(seed))
        expected = tokens(eager, prompt, count)
        assert torch.equal(tokens(compiled, prompt, count), expected)
        if cache == "dynamic" or count == 8:  # a longer static cache has another size
            assert len(fusewright.compilations(compiled)) <= limit
