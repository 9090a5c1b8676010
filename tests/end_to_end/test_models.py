"""Whole models compiled to machine code through both front ends, strictly, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

import fusewright
from benchmarks.measure import relative_error
from benchmarks.models import tensors_of
from tests.capture import transformers_models as models

LIMIT = 1e-5
"""Norm of the difference over the norm of eager's result, float32."""


def perceptron() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    layers = (nn.Linear(36, 72), nn.GELU(), nn.Linear(72, 36), nn.LayerNorm(36))
    return nn.Sequential(*layers), {"input": torch.randn(12, 36)}


MAKERS = [
    perceptron,
    models.bert,
    models.gpt2,
    models.resnet,
    models.llama,
    models.t5,
    models.vit,
    models.convnext,
]


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(compiled: Any, model: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """A first and a second call agree with eager."""
    with torch.no_grad():
        wanted = tensors_of(model(**inputs))
        for _ in range(2):
            assert relative_error(tensors_of(compiled(**inputs)), wanted) <= LIMIT


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_own_front_end(make: Any) -> None:
    model, inputs = make()
    model.eval()
    compiled = fusewright.compile(model, fullgraph=True, options={"verify": True})
    check(compiled, model, inputs)
    (compilation,) = fusewright.compilations(compiled)
    assert compilation.compiled.record.launches


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_behind_torch_compile(make: Any) -> None:
    model, inputs = make()
    model.eval()
    check(torch.compile(model, backend="fusewright", fullgraph=True), model, inputs)


def test_equal_layers_share_their_kernels() -> None:
    """BERT has the same kernels with 3 and with 12 layers."""
    kernels = []
    for layers in (3, 12):
        config = transformers.BertConfig(**{**models.SMALL, "num_hidden_layers": layers})
        compiled = fusewright.compile(transformers.BertForMaskedLM(config).eval(), fullgraph=True)
        with torch.no_grad():
            compiled(input_ids=models.IDS)
        (compilation,) = fusewright.compilations(compiled)
        kernels.append([kernel.key for kernel in compilation.compiled.record.kernels])
    assert kernels[0] == kernels[1]
