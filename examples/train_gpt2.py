"""GPT-2 learns two rows of tokens by heart. Its weights are random: nothing is downloaded.

python -m examples.train_gpt2 [LAYERS]
"""

from __future__ import annotations

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import fusewright


def main(layers: int = 12, steps: int = 6) -> None:
    """Compile the model, and train it with AdamW."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False))
    model.loss_type = "ForCausalLM"  # Else the first call warns, which breaks the graph.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50_000, (2, 64))
    compiled = fusewright.compile(model)
    for step in range(steps):
        loss = compiled(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
