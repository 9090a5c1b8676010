"""Attention by kernels: against double precision, in all forms that it is called in."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import fusewright
from benchmarks.peaks import peak_bytes
from fusewright.kernels.llvm import chains
from tests.relative_error import relative_error

HALF_TYPES = (torch.bfloat16, torch.float16)
NAME = "_scaled_dot_product_flash_attention_for_cpu"


def heads(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """[batch, heads, length, width], as layers of attention have it: heads inside of positions."""
    batch, count, length, width = size
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(batch, length, count, width, generator=generator)
    return tensor.to(dtype).transpose(1, 2)


def inputs(
    rows: int, positions: int, *, key_heads: int = 4, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        heads(2, 4, rows, 16, dtype=dtype),
        heads(2, key_heads, positions, 16, dtype=dtype, seed=1),
        heads(2, key_heads, positions, 16, dtype=dtype, seed=2),
    )


def library_calls(function: Any, *arguments: Any) -> list[str]:
    """The library calls of attention in compiled code."""
    compiled = fusewright.compile(function, options={"strict": True})
    compiled(*arguments)
    record = fusewright.compilations(compiled)[-1].record
    assert record is not None
    return [call for call in record.extern_calls if NAME in call]


MASKS = {
    "none": None,
    "of positions": (2, 1, 1, 13),
    "of rows": (5, 1),
    "of all": (2, 4, 5, 13),
    "of one batch": (1, 1, 5, 13),
}


@pytest.mark.parametrize("mask_name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF_TYPES])
def test_masks(mask_name: str, dtype: torch.dtype) -> None:
    size = MASKS[mask_name]
    mask = None if size is None else torch.randn(size).to(dtype)
    tensors = inputs(5, 13, dtype=dtype)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return scaled_dot_product_attention(query, key, value, mask, scale=0.3)

    result = fusewright.compile(attend)(*tensors, mask)
    eager = attend(*tensors, mask)
    exact = attend(*(x.double() for x in tensors), None if mask is None else mask.double())
    assert result.stride() == eager.stride() and result.dtype is dtype
    assert relative_error(result, exact) <= 1.2 * relative_error(eager, exact) + 1e-7
    assert not library_calls(attend, *tensors, mask)


@pytest.mark.parametrize("rows,positions", [(1, 1), (1, 70), (5, 13), (13, 5), (130, 129)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_sizes(rows: int, positions: int, is_causal: bool, key_heads: int) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, enable_gqa=key_heads != 4
        )

    tensors = inputs(rows, positions, key_heads=key_heads)
    result = fusewright.compile(attend, dynamic=False)(*tensors)
    exact = attend(*(x.double() for x in tensors))
    assert relative_error(result, exact) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["plain", "causal", "mask"])
@pytest.mark.parametrize("needed", [(0, 1, 2), (0,), (2,), (0, 1)])
def test_gradients(form: str, dtype: torch.dtype, needed: tuple[int, ...]) -> None:
    mask = torch.randn(2, 1, 1, 33).to(dtype) if form == "mask" else None

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        is_causal = form == "causal"
        return scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal)

    def gradients(function: Any, dtype: torch.dtype) -> tuple[Tensor, ...]:
        tensors = [x.to(dtype).detach() for x in inputs(17, 33)]
        for position in needed:
            tensors[position].requires_grad_()
        output = function(*tensors, None if mask is None else mask.to(dtype))
        weights = heads(2, 4, 17, 16, seed=3).to(dtype)
        return torch.autograd.grad(output, [tensors[position] for position in needed], weights)

    results = gradients(fusewright.compile(attend), dtype)
    eager = gradients(attend, dtype)
    exact = gradients(attend, torch.float64)
    for result, other, reference in zip(results, eager, exact, strict=True):
        assert result.stride() == other.stride()
        assert relative_error(result, reference) <= 1.2 * relative_error(other, reference) + 1e-7


@pytest.mark.parametrize("requires_gradients", [False, True])
def test_rows_of_which_all_is_masked(requires_gradients: bool) -> None:
    """They give zeros, and so do their gradients, as in eager."""
    mask = torch.zeros(5, 13)
    mask[1], mask[3, :12] = -math.inf, -math.inf

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, mask)

    tensors = [x.requires_grad_(requires_gradients) for x in inputs(5, 13)]
    result, eager = fusewright.compile(attend)(*tensors), attend(*tensors)
    torch.testing.assert_close(result, eager)
    assert not result[:, :, 1].any()
    if requires_gradients:
        expected = torch.autograd.grad(eager.sum(), tensors)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), tensors), expected)


def test_nan_stays_in_its_row() -> None:
    """Eager's vectors give zeros for a row with a NaN among its scores."""
    query, key, value = inputs(5, 13)
    query[0, 1, 2, 3] = math.nan
    result = fusewright.compile(scaled_dot_product_attention)(query, key, value)
    is_nan = result.isnan().all(-1)
    assert is_nan.sum() == 1 and is_nan[0, 1, 2]
    key[1, 2, 7, 0] = math.nan
    result = fusewright.compile(scaled_dot_product_attention)(query, key, value)
    assert result[1, 2].isnan().all() and result.isnan().any(-1).sum() == 6


def test_one_row_of_varying_positions() -> None:
    """A step of decoding: one compilation for caches of all lengths."""
    step = fusewright.compile(scaled_dot_product_attention, dynamic=True)
    for positions in range(2, 40, 3):
        query, key, value = inputs(1, positions)
        exact = scaled_dot_product_attention(query.double(), key.double(), value.double())
        assert relative_error(step(query, key, value), exact) <= 1e-6


def test_what_stays_with_the_library() -> None:
    """Double precision, and scores that would take more memory than is known or good: of one head,
    whose rows are not cut, and of a gradient.
    """

    def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        return scaled_dot_product_attention(query, key, value, dropout_p=dropout)

    assert not library_calls(attend, *inputs(5, 13))
    assert library_calls(attend, *(x.double() for x in inputs(5, 13)))
    assert library_calls(attend, *(heads(1, 1, 3000, 8) for _ in range(3)))
    assert not library_calls(attend, *(heads(1, 32, 600, 8) for _ in range(3)))
    tensors = [heads(1, 32, 600, 8).requires_grad_() for _ in range(3)]
    compiled = fusewright.compile(attend, options={"strict": True})
    compiled(*tensors).sum().backward()
    training = fusewright.compilations(compiled)[-1].training
    assert training is not None and training.backward is not None
    assert any(NAME in call for call in training.backward.record.extern_calls)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 40, 16), (1, 3, 5, 8), (2, 4, 131, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_of_a_block_at_a_time(
    monkeypatch: pytest.MonkeyPatch, size: Any, dtype: torch.dtype, is_causal: bool
) -> None:
    """One kernel a direction, which holds the scores of some rows of a head, or of one head; the
    last block of a head is shorter.
    """
    monkeypatch.setattr(chains, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(chains, "LEAST_ROWS", 12)
    monkeypatch.setattr(chains, "FEW_PIECES", 0)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=is_causal)

    def run(function: Any, dtype: torch.dtype) -> list[Tensor]:
        tensors = [heads(*size, seed=seed).to(dtype).requires_grad_() for seed in range(3)]
        output = function(*tensors)
        weights = heads(*size, seed=3).to(dtype)
        return [output, *torch.autograd.grad(output, tensors, weights)]

    compiled = fusewright.compile(attend, options={"strict": True}, dynamic=False)
    results, eager, exact = run(compiled, dtype), run(attend, dtype), run(attend, torch.float64)
    for result, other, reference in zip(results, eager, exact, strict=True):
        assert result.stride() == other.stride()
        assert relative_error(result, reference) <= 1.2 * relative_error(other, reference) + 1e-7
    (compilation,) = fusewright.compilations(compiled)
    assert [len(half.record.kernels) for half in compilation.halves] == [1, 1]


def test_long_scores_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no kernel holds them by blocks after all, the library is called."""
    tensors = [heads(1, 32, 600, 8, seed=seed) for seed in range(3)]
    exact = scaled_dot_product_attention(*(x.double() for x in tensors))
    peaks = []
    for most in (chains.MOST_SCRATCH, 0):
        monkeypatch.setattr(chains, "MOST_SCRATCH", most)
        compiled = fusewright.compile(scaled_dot_product_attention, options={"strict": True})
        assert relative_error(compiled(*tensors), exact) <= 1e-6
        peaks.append(peak_bytes(lambda compiled=compiled: compiled(*tensors)))
        record = fusewright.compilations(compiled)[-1].record
        assert record is not None and bool(record.extern_calls) is (most == 0)
    assert all(peak < 4 << 20 for peak in peaks)  # The scores are 46 MB.


@pytest.mark.parametrize("seed", range(8))
def test_layouts(seed: int) -> None:
    """Any strides: expanded, turned, and with gaps."""
    generator = torch.Generator().manual_seed(seed)
    forms = [
        lambda x: x,
        lambda x: x[:, :1].expand_as(x),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: torch.cat([x, x], -1)[..., ::2],
    ]
    choices = torch.randint(len(forms), (3,), generator=generator).tolist()
    tensors = [forms[choice](x) for choice, x in zip(choices, inputs(9, 9), strict=True)]
    exact = scaled_dot_product_attention(*(x.double() for x in tensors))
    result = fusewright.compile(scaled_dot_product_attention)(*tensors)
    assert relative_error(result, exact) <= 1e-6


def test_attention_that_nothing_reads() -> None:
    def unread(x: Tensor) -> Tensor:
        scaled_dot_product_attention(x, x, x)
        return x * 2

    x = heads(2, 4, 9, 16)
    assert fusewright.compile(unread, options={"strict": True})(x).equal(x * 2)
