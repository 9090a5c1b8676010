"""What generated Python modules call."""

from __future__ import annotations

import pytest
import torch

from fusewright.runtime.generated import with_layout


def test_the_planned_layout_is_left_alone() -> None:
    x = torch.randn(3, 4).t()
    assert with_layout(x, (4, 3), (1, 4), x.dtype) is x


@pytest.mark.parametrize(("size", "stride"), [((1, 3), (7, 1)), ((0, 3), (9, 9))])
def test_strides_that_place_no_element_do_not_count(
    size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    x = torch.randn(size)
    assert with_layout(x, size, stride, x.dtype) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool])
def test_other_strides_are_copied(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    given = with_layout(x, (3, 4), (1, 3), dtype)
    assert torch.equal(given, x) and given.stride() == (1, 3)


def test_another_size_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"float32 of size \(4, 3\) where .* size \(3, 4\)"):
        with_layout(torch.zeros(4, 3), (3, 4), (1, 3), torch.float32)


def test_another_type_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"returned torch.float16 .* where torch.float32"):
        with_layout(torch.zeros(4).half(), (4,), (1,), torch.float32)
