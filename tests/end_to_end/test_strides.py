"""Results of compiled functions have the strides of eager's, whatever the layouts of the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import fusewright
from fusewright.errors import Unsupported

CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "rows_by_index": (
        lambda x: x[None, torch.arange(x.shape[0])],
        lambda: (torch.randn(2, 17).t(),),
    ),
    "rows_of_one_by_index": (
        lambda x: x.permute(1, 2, 0)[None, torch.tensor([0, 0, 5, 0, 2]) % 1],
        lambda: (torch.randn(64, 1, 1),),
    ),
    "expanded_copy_of_input": (
        lambda x: torch.empty_like(x).copy_(x).expand(2, *x.shape),
        lambda: (torch.randn(35)[3:].view(8, 4),),
    ),
    "expanded_constant": (
        lambda x: x.new_tensor([1, 2, 3]).expand(2, 3),
        lambda: (torch.randn(3),),
    ),
    "meshgrid_of_constants": (
        lambda x: torch.meshgrid(x.new_tensor([1, 2]), x.new_tensor([3, 4]), indexing="xy"),
        lambda: (torch.randn(3),),
    ),
    "diagonal_of_one_element": (
        lambda x: (x * x).diagonal(0, 2),
        lambda: (torch.randn(1, 2, 1, 2),),
    ),
    "rows_by_nearest": (
        torch.inference_mode()(lambda x: F.interpolate(x.unsqueeze(-1), scale_factor=1)),
        lambda: (torch.randn(2, 2).t(),),
    ),
    "volumes_of_one_row": (
        lambda x: F.interpolate(x, scale_factor=2),
        lambda: (torch.randn(4).as_strided((1, 2, 1, 1, 2), (4, 1, 4, 4, 2)),),
    ),
    "normalised_groups_of_volumes": (
        lambda x: torch.group_norm(x, 2),
        # A group of two that are near each other is all rounding: eager's is off by 1e-3 for some.
        lambda: (torch.arange(4.0).square().as_strided((1, 2, 1, 1, 2), (4, 1, 4, 4, 2)),),
    ),
    "operand_of_another_type": (
        torch.copysign,
        lambda: (torch.randn(7, 1).expand(7, 16), torch.randn(16, 7, dtype=torch.float64).t()),
    ),
    "reversed_subtraction": (
        torch.rsub,
        lambda: (torch.randn(17, 17), torch.randn(17, 17).t()),
    ),
    "log_sigmoid": (F.logsigmoid, lambda: (torch.randn(7, 6).t(),)),
    "cross_entropy_of_bits": (
        lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
        lambda: (torch.rand(7, 6), torch.rand(6, 7).t()),
    ),
    "power_of_number": (lambda x: 2**x, lambda: (torch.randn(3, 17).t(),)),
    "power_of_whole_number": (lambda x: 2**x, lambda: (torch.arange(6).view(2, 3).t(),)),
    "membership": (
        lambda x: torch.isin(x, x),
        lambda: (torch.arange(24).view(2, 3, 4).permute(2, 0, 1),),
    ),
    "one_hot": (
        lambda x: F.one_hot(x % 5, 5),
        lambda: (torch.arange(24).view(2, 3, 4).permute(2, 0, 1),),
    ),
    "rrelu": (
        lambda x: F.rrelu(x, training=False),
        lambda: (torch.randn(5, 7).t(),),
    ),
    "resampled_rows": (
        lambda x: F.interpolate(x, size=3, mode="nearest-exact"),
        lambda: (torch.randn(3, 2, 9).transpose(0, 2),),
    ),
    "largest_in_windows": (
        lambda x: F.max_pool1d(x, 2),
        lambda: (torch.randn(5, 8, 2).transpose(1, 2),),
    ),
    "masked_fill": (
        lambda x: x.masked_fill(x > 0, 1),
        lambda: (torch.randn(7, 6).t(),),
    ),
    "windows_of_an_image": (
        lambda x: F.unfold(x, (1, 2)),
        lambda: (torch.randn(1, 2, 2),),
    ),
    "windows_of_images": (
        lambda x: F.unfold(x, (1, 2), padding=(1, 0), stride=(2, 1)),
        lambda: (torch.randn(5, 1, 3, 2),),
    ),
    "windows_of_images_by_channels": (
        lambda x: F.unfold(x, 2, dilation=2),
        lambda: (torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last),),
    ),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_strides_of_results(name: str, dynamic: bool) -> None:
    function, make = CASES[name]
    inputs = make()
    compiled = fusewright.compile(function, dynamic=dynamic, options={"strict": True})
    expected, found = function(*inputs), compiled(*inputs)
    pairs = (
        zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    )
    for wanted, result in pairs:
        assert result.stride() == wanted.stride()
        torch.testing.assert_close(result, wanted)


def test_new_dimensions_of_one_element_of_any_size() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(1, keepdim=True).expand(1, 3, 1) * 1, x.exp().expand(1, *x.shape)

    compiled = fusewright.compile(program, dynamic=True, options={"strict": True})
    x = torch.randn(3, 4)
    assert [one.stride() for one in compiled(x)] == [one.stride() for one in program(x)]


IMAGES = torch.randn(2, 9, 5, 6).to(memory_format=torch.channels_last)
VOLUMES = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)

CHANNELS_LAST: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 3), IMAGES),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x[..., :4, :4], 2), IMAGES),
    "reflected": (lambda x: F.pad(x, (1, 2, 3, 0), "reflect"), IMAGES),
    "replicated": (lambda x: F.pad(x, (1, 9, 3, 0), "replicate"), IMAGES),
    "cut and replicated": (lambda x: F.pad(x, (-1, 1, 1, -1), "replicate"), IMAGES),
    "reflected volumes": (lambda x: F.pad(x, (1,) * 6, "reflect"), VOLUMES),
    "replicated volumes": (lambda x: F.pad(x, (-1, 2) * 3, "replicate"), VOLUMES),
    "circular": (lambda x: F.pad(x, (1, 2, 1, 1), "circular"), IMAGES),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_stay_last(name: str, dynamic: bool) -> None:
    call, x = CHANNELS_LAST[name]
    result = fusewright.compile(call, dynamic=dynamic, fullgraph=True)(x)
    expected = call(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert result.stride() == expected.stride()


def test_a_factory_of_elements_that_are_one_in_memory_breaks_the_graph() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, torch.empty_strided((5, 5), (0, 1))

    compiled = fusewright.compile(program)
    assert [result.stride() for result in compiled(IMAGES)] == [IMAGES.stride(), (0, 1)]
    with pytest.raises(Unsupported, match="one in memory"):
        fusewright.compile(program, fullgraph=True)(IMAGES)
