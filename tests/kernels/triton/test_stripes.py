"""Normalisations' backward in one kernel a stripe of rows: the columns are added up beside the
rows, in every configuration.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.triton.interpreted import NAME  # isort: skip - it has to come before triton

import fusewright
from fusewright.ir.group import Gather
from fusewright.kernels.triton import tiling
from fusewright.kernels.triton.emit import KernelWriter
from tests.kernels.normalizations import (
    calls_of,
    check_gradients,
    inputs_of,
    layer_norm,
    layer_norm_at_places,
    layer_norm_gelu,
    rms_norm,
)


def rms_norm_rotary(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A row's place among those of a head decides what its halves are multiplied by."""
    length, width = x.shape[-2:]
    places = torch.linspace(0, 3, length * width // 2).view(length, -1)
    first, second = rms_norm(x, weight).chunk(2, -1)
    cosine, sine = places.cos(), places.sin()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def layer_norm_behind_bias(
    x: torch.Tensor, bias: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    """The gradient of the first vector adds up what is made of rows that are gathered along."""
    return layer_norm(torch.nn.functional.silu(x + bias), weight, shift)


def embedded(
    x: torch.Tensor, places: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return layer_norm(x + places, weight, bias)


def rms_norm_learned_rotary(
    x: torch.Tensor, places: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    first, second = rms_norm(x, weight).chunk(2, -1)
    cosine, sine = places.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


@pytest.mark.parametrize(
    ("function", "vectors", "gathers"),
    [(embedded, 2, 3), (rms_norm_learned_rotary, 1, 6)],
)
def test_places_are_gathered_beside_rows(
    function: Any, vectors: int, gathers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripes are of rows of one place each, in two parts, so that the columns of each place are
    added up there, too; sums of half a row as well.
    """
    written = calls_of(monkeypatch, KernelWriter, "stripe")
    x, *others = inputs_of((16, 128, 32), vectors)
    inputs = (x, torch.linspace(-1, 1, 128 * 32).view(128, 32), *others)
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(function, backend=NAME, options=options, fullgraph=True)
    check_gradients(function, compiled, inputs, share=4)
    (own,) = written
    assert sum(isinstance(a, Gather) for stage in own.stages for a in stage.actions) == gathers
    assert own.tiling.batch.extent == 256


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (layer_norm, (2, 512, 72)),
        (layer_norm_at_places, (128, 8, 72)),
        (layer_norm_gelu, (2, 512, 72)),
        (rms_norm, (1024, 264)),
        (layer_norm, (1024, 2056)),
        (rms_norm_rotary, (8, 128, 64)),
        (layer_norm_behind_bias, (2, 512, 72)),
    ],
)
def test_gradients_are_as_near_to_exact_ones_as_eagers(
    function: Any, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = calls_of(monkeypatch, KernelWriter, "stripe")
    vectors = {rms_norm: 1, rms_norm_rotary: 1, layer_norm_behind_bias: 3}.get(function, 2)
    gathers = 2 if function is rms_norm_rotary else vectors  # Halves of one vector.
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(function, backend=NAME, options=options, fullgraph=True)
    check_gradients(function, compiled, inputs_of(shape, vectors), share=4)
    (own,) = written
    assert sum(isinstance(a, Gather) for stage in own.stages for a in stage.actions) == gathers


def layer_norm_of_channels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return layer_norm(x.movedim(1, -1), weight, bias).movedim(-1, 1)


@pytest.mark.parametrize(
    ("dtype", "count"), [(torch.bfloat16, 2), (torch.float16, 2), (torch.float32, 0)]
)
def test_the_next_block_is_loaded_before_this_one_is_worked_on(
    dtype: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that lie across memory, as far as threads have registers for it; two blocks here."""
    monkeypatch.setattr(tiling, "ACROSS_TILE", 512)
    monkeypatch.setattr(tiling, "NARROWEST_ACROSS", 4)
    written = calls_of(monkeypatch, KernelWriter, "stripe")
    options = {"strict": True, "verify": True}
    function = layer_norm_of_channels
    compiled = fusewright.compile(function, backend=NAME, options=options, fullgraph=True)
    x, _, _ = inputs_of((2, 96, 512), 2, dtype)
    _, weight, bias = inputs_of((1, 96), 2, dtype)
    check_gradients(function, compiled, (x, weight, bias), share=4)
    (own,) = written
    (axis,) = own.tiling.outer
    assert (int(axis.extent), axis.block, len(own.next_loads)) == (8, 4, count)
