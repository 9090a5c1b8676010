"""Trains a small convolution net on the CPU and on `ember`, and shows that losses agree.

python -m examples.external_backend.train
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fusewright
from examples.external_backend.build import load


def train(
    device: str, steps: int, wrap: Callable[[nn.Module], Any] = lambda model: model
) -> list[float]:
    """The losses of a few steps of stochastic gradient descent with momentum."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 5 * 5, 10),
    )
    images, labels = torch.randn(16, 1, 12, 12), torch.randint(10, (16,))
    model.to(device)
    images, labels = images.to(device), labels.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    forward = wrap(model)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(steps: int = 8) -> None:
    """Print the losses side by side, and what fell back."""
    load()
    columns: Sequence[tuple[str, list[float]]] = [
        ("cpu", train("cpu", steps)),
        ("ember", train("ember", steps)),
        ("ember, compiled", train("ember", steps, fusewright.compile)),
    ]
    print("".join(f"{name:>18}" for name, _ in columns))
    for row in zip(*(losses for _, losses in columns), strict=True):
        print("".join(f"{loss:18.6f}" for loss in row))
    for (_, expected), (name, losses) in zip([columns[0]] * 2, columns[1:], strict=True):
        torch.testing.assert_close(losses, expected, msg=lambda text, name=name: f"{name}: {text}")
    print("memory at most:", torch.ops.ember.max_memory_allocated(), "bytes")
    print("computed on the CPU:")
    for name, count in sorted(torch.ops.ember.fallback_counts().items()):
        print(f"  {count:5} × {name}")


if __name__ == "__main__":
    main()
