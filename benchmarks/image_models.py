"""One model of each module of timm: the architectures of images that `benchmarks.architectures
--timm` measures.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.models import Inputs

PREFIX = "timm/"
"""What the names of these models begin with in tables."""

SMALL = ("test_", "atto", "femto", "pico", "nano", "xxs", "xs", "tiny", "_t", "mini", "small", "18")
"""Parts of names of small models, the smallest first."""


def names() -> list[str]:
    """A small model of each module of the timm that is installed, by the words in its name."""
    import timm

    modules = sorted(timm.list_modules())
    models = [timm.list_models(module=module) for module in modules]
    return [f"{PREFIX}{min(found, key=_size)}" for found in models if found]


def _size(name: str) -> tuple[int, int]:
    place = next((place for place, part in enumerate(SMALL) if part in name), len(SMALL))
    return place, len(name)


def build(name: str) -> tuple[nn.Module, Inputs]:
    """The model in eval mode with random weights, and two images of the size that it was made for;
    the same in every process.
    """
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name.removeprefix(PREFIX)).eval()
    return module, {"x": torch.randn(2, *module.default_cfg["input_size"])}
