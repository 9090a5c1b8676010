"""Images and volumes whose channels are last stay so where eager leaves them so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright

IMAGES = torch.randn(2, 9, 5, 6).to(memory_format=torch.channels_last)
VOLUMES = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)

CALLS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
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
@pytest.mark.parametrize("name", CALLS)
def test_the_layout_is_that_of_eager(name: str, dynamic: bool) -> None:
    call, x = CALLS[name]
    result = fusewright.compile(call, dynamic=dynamic, fullgraph=True)(x)
    expected = call(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert result.stride() == expected.stride()
