"""Allocation of CPU tensors past torch's Python functions: geometry, dtypes, modes, errors."""

from __future__ import annotations

import sys

import pytest
import torch

from fusewright.native import dtype_number, empty_strided_cpu, read_tensor

DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    tensor = empty_strided_cpu((2, 3), (3, 1), dtype_number(dtype))
    assert read_tensor(tensor) == read_tensor(torch.empty(2, 3, dtype=dtype))
    assert type(tensor) is torch.Tensor


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((), ()),
        ((0, 3), (3, 1)),
        ((2, 3), (1, 2)),
        ((4,), (0,)),
        ((2, 1, 3), (9, 7, 2)),
        ((1,) * 30, (1,) * 30),
    ],
)
def test_geometry(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    tensor = empty_strided_cpu(sizes, strides, dtype_number(torch.float32))
    expected = torch.empty_strided(sizes, strides)
    assert tensor.shape == expected.shape and tensor.stride() == expected.stride()
    assert tensor.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    tensor.fill_(2.0)
    assert (tensor == 2.0).all() and tensor.data_ptr() % 64 == 0


def test_modes_are_passed_over_and_inference_mode_kept() -> None:
    number = dtype_number(torch.float32)
    with torch.device("meta"):
        assert empty_strided_cpu((2,), (1,), number).device == torch.device("cpu")
    with torch.inference_mode():
        assert empty_strided_cpu((2,), (1,), number).is_inference()
    tensor = empty_strided_cpu((2,), (1,), number)
    assert not tensor.is_inference() and not tensor.requires_grad
    tensor.requires_grad_().sum().backward()
    assert tensor.grad is not None


def test_memory_is_given_back() -> None:
    number = dtype_number(torch.float32)
    tensor = empty_strided_cpu((1 << 20,), (1,), number)
    assert sys.getrefcount(tensor) == 2
    for _ in range(5000):  # 20 GiB, were they kept
        empty_strided_cpu((1 << 20,), (1,), number)


def test_errors() -> None:
    for arguments, error in (
        (((2,), (1, 1), 6), ValueError),
        (((-1,), (1,), 6), ValueError),
        (((1,) * 65, (1,) * 65, 6), ValueError),
        ((("a",), (1,), 6), TypeError),
        (([2], [1], 6), TypeError),
        (((2,), (1,)), TypeError),
        (((2**40, 2**40), (2**40, 1), 6), RuntimeError),
    ):
        with pytest.raises(error):
            empty_strided_cpu(*arguments)  # type: ignore[arg-type]
