"""BERT-base answers a batch of two sentences. Its weights are random: nothing is downloaded.

python -m examples.bert [LAYERS]
"""

from __future__ import annotations

import sys

import torch
from transformers import BertConfig, BertForMaskedLM

import fusewright


def main(layers: int = 12) -> None:
    """Compile the model, and call it some times."""
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(num_hidden_layers=layers)).eval()
    tokens = torch.randint(0, 30_000, (2, 128))
    compiled = fusewright.compile(model)
    with torch.no_grad():
        for _ in range(5):
            logits = compiled(input_ids=tokens).logits
    print(f"logits: {tuple(logits.shape)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
