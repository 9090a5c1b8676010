"""Programs whose calls are short, so that what surrounds the kernels is most of their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

WIDTH = 64
HEADS = 4
CACHED = 128
"""Tokens that the decoder's cache holds."""


@dataclass(frozen=True, slots=True)
class CallProgram:
    """One row of the table."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


class Kernels(nn.Module):
    """A chain of small kernels: softmax over columns, then over rows, which no fusion joins."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(self.count):
            x = torch.softmax(x, number % 2)
        return x


class KernelsAndProducts(nn.Module):
    """Matrix products by the library, and one small kernel after each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = torch.relu(x @ self.weight)
        return x


class DecoderBlock(nn.Module):
    """GPT-2's block for one token, with the keys and values of the tokens before."""

    def __init__(self, width: int = 4 * WIDTH) -> None:
        super().__init__()
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        heads = self.attention(self.attention_norm(x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        found = functional.scaled_dot_product_attention(query, keys, values)
        x = x + self.projection(found.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.up(self.output_norm(x)), approximate="tanh")
        return x + self.down(hidden), keys, values


def chain(count: int) -> CallProgram:
    return CallProgram(Kernels(count), (torch.randn(8, WIDTH, requires_grad=True),))


def products(count: int) -> CallProgram:
    return CallProgram(KernelsAndProducts(count), (torch.randn(8, WIDTH, requires_grad=True),))


def perceptron(batch: int) -> CallProgram:
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return CallProgram(nn.Sequential(*layers), (torch.randn(batch, WIDTH, requires_grad=True),))


def decoder() -> CallProgram:
    cache = (1, HEADS, CACHED, 4 * WIDTH // HEADS)
    x = torch.randn(1, 1, 4 * WIDTH, requires_grad=True)
    return CallProgram(DecoderBlock(), (x, torch.randn(cache), torch.randn(cache)))


PROGRAMS: dict[str, Callable[[], CallProgram]] = {
    "1 kernel": lambda: chain(1),
    "10 kernels": lambda: chain(10),
    "100 kernels": lambda: chain(100),
    "1 product": lambda: products(1),
    "10 products": lambda: products(10),
    "100 products": lambda: products(100),
    "perceptron of 1": lambda: perceptron(1),
    "perceptron of 8": lambda: perceptron(8),
    "perceptron of 64": lambda: perceptron(64),
    "GPT-2 token": decoder,
}
