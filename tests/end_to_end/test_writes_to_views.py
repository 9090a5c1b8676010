"""Writes to views of views of an input are eager's, and are stored into the input itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright

Write = Callable[[Tensor, Tensor, Tensor], Tensor | None]
"""A program of a cache (2 layers, keys and values, 3 heads, 8 places, 5 numbers), of rows for one
place of each head, and of a place."""


def layer(cache: Tensor, row: Tensor, place: Tensor) -> Tensor:
    cache[1, 0][:, place] = row * 2
    return row @ cache[1, 0].mT


def copied_rows(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[0][1].index_copy_(1, place, row + 1)


def at_number(cache: Tensor, row: Tensor, place: Tensor) -> Tensor:
    cache[1][0][:, 3] = row[:, 0] - 1
    return cache.sum()


def from_the_end(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[-1, -2, :, -3:-2] = row


def every_second_head(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[:, 1, ::2][1:, :, place + 1] = row[:2]


def scattered(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[0, 0].scatter_(1, place.expand(3, 1, 5), row)
    cache[1, 0].scatter_(1, place.expand(3, 1, 5), 7.0)


def a_row_of_another_layer(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[1, 0][:, place] = cache[0, 0][:, place] + row


def rows_change_places(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[0, 1, :, :4].copy_(cache[0, 1, :, 1:5])


def old_rows(cache: Tensor, row: Tensor, place: Tensor) -> Tensor:
    old = cache[0, 0] * 2
    cache[0][0][:, place] = row
    return old + cache[0, 0]


def each_layer(cache: Tensor, row: Tensor, place: Tensor) -> Tensor:
    for keys, values in cache:
        keys.index_copy_(1, place, row * 2)
        values.index_copy_(1, place, row + 1)
        row = torch.nn.functional.scaled_dot_product_attention(row[None], keys[None], values[None])[
            0
        ]
    return row


def over_what_was_written(cache: Tensor, row: Tensor, place: Tensor) -> Tensor:
    cache[0][0][:, place] = row
    between = cache[0].sum()
    cache[0][:, 1:][0, :, place] = row[1:] * 3
    return between + cache[0, 0].sum()


def sums(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[1, 1].index_add_(1, place, row)
    cache[1, 0].index_put_((torch.tensor([0, 2]), place), row[:2, 0], accumulate=True)


def nothing(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[0][0, :, 4:4] = row[:, :0]


def turned(cache: Tensor, row: Tensor, place: Tensor) -> None:
    cache[0].transpose(1, 2)[0][place] = row.transpose(0, 1)


WRITES: list[Write] = [
    layer, copied_rows, at_number, from_the_end, every_second_head, scattered,
    a_row_of_another_layer, rows_change_places, old_rows, each_layer, over_what_was_written, sums,
    nothing, turned,
]  # fmt: skip


def arguments(place: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, 2, 3, 8, 5, generator=generator)
    return [cache, torch.randn(3, 1, 5, generator=generator), torch.tensor([place])]


def outcome(run: Write, place: int, dtype: torch.dtype) -> tuple[object, Tensor]:
    """The result, or the type of what is raised; and the cache behind the call."""
    cache, row, position = arguments(place)
    cache, row = cache.to(dtype), row.to(dtype)
    try:
        return run(cache, row, position), cache
    except (IndexError, RuntimeError) as error:
        return type(error), cache


CASES = [*((write, torch.float32) for write in WRITES), (sums, torch.bfloat16)]


@pytest.mark.parametrize(("write", "dtype"), CASES)
def test_as_in_eager(write: Write, dtype: torch.dtype) -> None:
    """The last place is out of range."""
    compiled = fusewright.compile(write)
    for place in (3, 0, 6, 8):
        (result, cache), (expected, expected_cache) = [
            outcome(run, place, dtype) for run in (compiled, write)
        ]
        torch.testing.assert_close(cache, expected_cache)
        if isinstance(expected, Tensor):
            torch.testing.assert_close(result, expected)
        else:
            assert result == expected


@pytest.mark.parametrize("write", [layer, copied_rows, at_number, from_the_end, every_second_head])
def test_the_whole_is_not_copied(write: Write) -> None:
    report: Any = fusewright.explain(write)(*arguments())
    (graph,) = report.graphs
    assert graph.peak_bytes < arguments()[0].nbytes / 4


def test_a_cache_with_gaps_in_its_memory() -> None:
    caches = [torch.zeros(2, 2, 3, 8, 7)[..., :5] for _ in range(2)]
    _, row, place = arguments()
    for run, cache in zip((fusewright.compile(layer), layer), caches, strict=True):
        run(cache, row, place)
    torch.testing.assert_close(*caches)


def test_channels_last_caches() -> None:
    """Places in memory are those of the cache's strides."""
    caches = [torch.zeros(2, 5, 3, 8, 2).transpose(1, 4) for _ in range(2)]
    _, row, place = arguments()
    for run, cache in zip((fusewright.compile(layer), layer), caches, strict=True):
        run(cache, row, place)
    torch.testing.assert_close(*caches)
