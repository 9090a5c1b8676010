"""Rows stored into caches of fixed size are stored in the caches' own memory, and what is there is
eager's, whatever raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright

LENGTH = 24

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A program of a query and key, a position, and caches of keys and of values."""


def attention(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys.index_copy_(2, place, row * 2)
    values[:, :, place] = row + 1
    return torch.nn.functional.scaled_dot_product_attention(row, keys, values)


def moving(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The position is an input that is written to."""
    where = torch.arange(1) + place
    place.add_(1)
    keys.index_copy_(2, where, row)
    values.index_copy_(2, where, row - 1)
    return (row @ keys.mT) @ values


def old_rows_count(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What stood at the position is read before; nothing raises behind."""
    old = keys[:, :, place]
    keys.index_copy_(2, place, old + row)
    return row @ keys.mT + values.sum()


def old_rows_count_and_raises(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A second run would read what the first stored."""
    old = keys[:, :, place]
    keys.index_copy_(2, place, old + row)
    return torch.linalg.cholesky(values[0, 0, :4, :4]) + keys.sum()


def raises_behind(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys.index_copy_(2, place, row)
    return torch.linalg.cholesky(values[0, 0, :4, :4]) + keys.sum()


def raises_ahead(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    lower = torch.linalg.cholesky(values[0, 0, :4, :4])
    keys.index_copy_(2, place, row)
    return lower + (row @ keys.mT).sum()


def at_slice(row: Tensor, place: int, keys: Tensor, values: Tensor) -> Tensor:
    keys[:, :, place : place + 1] = row * 2
    values[:, :, place : place + 1] = row + 1
    return torch.nn.functional.scaled_dot_product_attention(row, keys, values, is_causal=False)


def at_number(row: Tensor, place: int, keys: Tensor, values: Tensor) -> Tensor:
    keys[:, :, place] = row[:, :, 0]
    values[..., place, :] = row[..., 0, :] - 1
    return torch.linalg.svdvals(row @ keys[:, :, : place + 1].mT @ values[:, :, : place + 1])


def by_batch(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Each sequence of the batch has a position of its own."""
    batch = torch.arange(2)
    keys[batch, :, place] = row[:, :, 0]
    values[batch, :, place + 0] = row[:, :, 0] - 1
    return torch.nn.functional.scaled_dot_product_attention(row, keys, values)


def keys_twice(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The second position may be out of range where the first is not."""
    keys.index_copy_(2, place, row)
    keys[:, :, place + 1] = row * 2
    values.index_copy_(2, place, row)
    return torch.nn.functional.scaled_dot_product_attention(row, keys, values)


def raises_between(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys.index_copy_(2, place, row)
    lower = torch.linalg.cholesky(values[0, 0, :4, :4])
    keys[:, :, place - 1] = row * 2
    return lower + (row @ keys.mT).sum()


def read_between(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A second run would read what the second write of the first run stored."""
    matrix = values[0, 0, :4, :4].clone()
    keys.index_copy_(2, place, row)
    values.add_(row @ keys.mT @ keys)
    keys[:, :, place - 1] = row * 2
    return torch.linalg.cholesky(matrix) + keys.sum()


def one_cache(row: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Keys and values lie in one tensor."""
    keys[0, :, place] = row[0]
    keys[1, :, place] = row[1] + 1
    return torch.linalg.svdvals(row[0] @ keys[0].mT @ keys[1])


STEPS: list[Step] = [
    attention,
    moving,
    old_rows_count,
    raises_behind,
    raises_ahead,
    keys_twice,
    raises_between,
    read_between,
    one_cache,
]


def arguments(*places: int, rows: int = 1) -> list[Tensor]:
    """A query and key of `rows`, positions, and two caches."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(2, 3, rows, 20, generator=generator)
    caches = [torch.randn(2, 3, LENGTH, 20, generator=generator) for _ in range(2)]
    return [row, torch.tensor(places), *caches]


def outcome(step: Step, given: list[Tensor]) -> tuple[list[Tensor], str]:
    """The result, if there is one, and the arguments behind the call; and what was raised."""
    try:
        return [step(*given), *given], ""
    except (IndexError, RuntimeError) as error:
        return given, type(error).__name__


def arguments_that_work(*places: int, rows: int = 1) -> list[Tensor]:
    row, place, keys, values = arguments(*places, rows=rows)
    values[:, :, :4, :4] = torch.eye(4)
    return [row, place, keys, values]


def assert_as_in_eager(
    step: Step,
    places: tuple[int, ...],
    compiled_at: tuple[int, ...],
    *,
    rows: int = 1,
    **options: Any,
) -> None:
    """Compare a call, which may raise, once another one has compiled the step."""
    compiled = fusewright.compile(step, options=options)
    with torch.no_grad():
        compiled(*arguments_that_work(*compiled_at, rows=rows))
        tensors, raised = outcome(compiled, arguments(*places, rows=rows))
        expected, expected_raised = outcome(step, arguments(*places, rows=rows))
    assert raised == expected_raised
    torch.testing.assert_close(tensors, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place", [0, LENGTH - 1, LENGTH, -1])
@pytest.mark.parametrize("target", ["native", "python"])
@pytest.mark.parametrize("step", STEPS)
def test_as_in_eager(step: Step, target: str, place: int) -> None:
    """Also what is in the caches behind an exception."""
    assert_as_in_eager(step, (place,), (0,), target=target)


CHUNKS = [(0, 1, 2), (7, 5, 6), (4, 4, 4), (22, 23, 24), (24, 22, 23), (3, -1, 4), (3, 9, -25)]
"""Positions of three rows; those of the last four are out of range for one operator or both."""


@pytest.mark.parametrize("places", CHUNKS, ids=str)
@pytest.mark.parametrize("step", [attention, raises_behind, raises_ahead, keys_twice])
def test_chunks_as_in_eager(step: Step, places: tuple[int, ...]) -> None:
    """No row is stored where another one's position is out of range, unless eager stores it."""
    assert_as_in_eager(step, places, (0, 1, 2), rows=3)


@pytest.mark.parametrize("places", [(3, 7), (23, 0), (24, 5), (5, 24), (-1, -25)], ids=str)
def test_positions_by_batch(places: tuple[int, int]) -> None:
    assert_as_in_eager(by_batch, places, (0, 1))


@pytest.mark.parametrize("step", [at_slice, at_number])
def test_positions_that_are_numbers(step: Callable[..., Tensor]) -> None:
    """One compilation for all positions behind the first; no cache is copied."""
    compiled = fusewright.compile(step, options={"strict": True})
    with torch.no_grad():
        for place in (3, 4, 5, 9, 22, 0, 23):
            row, _, *caches = arguments(0)
            expected = [cache.clone() for cache in caches]
            result = compiled(row, place, *caches)
            wanted = step(row, place, *expected)
            torch.testing.assert_close([result, *caches], [wanted, *expected], rtol=1e-4, atol=1e-4)
            if place == 22:  # at the ends, sizes are those of other slices
                assert len(fusewright.compilations(compiled)) == 2
        report: Any = fusewright.explain(step)(row, 3, *caches)
    assert report.graphs[0].peak_bytes < caches[0].nbytes


@pytest.mark.parametrize(
    ("step", "places", "rows", "is_copied"),
    [
        (attention, (3,), 1, False),
        (attention, (3, 9, 4), 3, False),
        (moving, (3,), 1, False),
        (by_batch, (3, 9), 1, False),
        (keys_twice, (3,), 1, False),
        (one_cache, (3,), 1, False),
        (old_rows_count, (3,), 1, False),
        (old_rows_count_and_raises, (3,), 1, True),
        (read_between, (3,), 1, True),
    ],
)
def test_caches_are_not_copied(
    step: Step, places: tuple[int, ...], rows: int, is_copied: bool
) -> None:
    """A call allocates less than one cache where nothing reads the old rows."""
    with torch.no_grad():
        report: Any = fusewright.explain(step)(*arguments_that_work(*places, rows=rows))
    (graph,) = report.graphs
    cache = arguments(3)[2].nbytes
    assert (graph.peak_bytes >= cache) == is_copied
