"""Rules of our own for what operators with many forms give: any index, any layout. All operators on
torch's samples: `tests/operators/walk.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.fake_rules import RULES, Geometry
from tests.operators.geometry import geometries, laid_out_anew


def test_indices_decide_on_the_order_of_dimensions() -> None:
    """As many layouts, positions and sizes of indices as chance gives, all as eager has them."""
    choice = random.Random(0)
    for _ in range(500):
        rank = choice.randint(1, 4)
        x = torch.empty([choice.choice((1, 2, 3, 5)) for _ in range(rank)])
        x = laid_out_anew(choice, x)
        common = [choice.choice((1, 2, 4)) for _ in range(choice.randint(0, 2))]
        indices: list[Any] = [None] * rank
        for dim in choice.sample(range(rank), choice.randint(1, rank)):
            size = [1 if choice.random() < 0.3 else extent for extent in common]
            indices[dim] = laid_out_anew(choice, torch.zeros(size, dtype=torch.int64))
        expected = torch.ops.aten.index.Tensor(x, indices)
        geometry = RULES[torch.ops.aten.index.Tensor](x, indices)
        assert isinstance(geometry, Geometry)
        assert (geometry.size, geometry.stride) == (tuple(expected.shape), expected.stride())


def test_softmax_of_rows_that_may_be_masked_whole() -> None:
    choice, operator, told = random.Random(2), torch.ops.aten._safe_softmax.default, 0
    for _ in range(200):
        x = torch.zeros([choice.choice((1, 2, 3)) for _ in range(choice.randint(1, 4))])
        x = laid_out_anew(choice, x) if choice.random() < 0.5 else x
        dim = choice.randrange(-x.dim(), x.dim())
        geometry = RULES[operator](x, dim)
        if geometry is not None:
            assert isinstance(geometry, Geometry)
            assert geometries(geometry.allocate()) == geometries(operator(x, dim))
            told += 1
    assert told > 50
    assert RULES[operator](torch.ones(2, 2), 2) is None  # Eager refuses it.


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_a_loss_of_classes(reduction: int) -> None:
    x, target, operator = torch.ones(3, 4), torch.zeros(3).long(), torch.ops.aten.nll_loss_forward
    parts = RULES[operator.default](x, target, None, reduction, -100)
    assert isinstance(parts, tuple)
    found = [part.allocate() for part in parts if part is not None]
    assert geometries(found) == geometries(operator(x, target, None, reduction, -100))
    for others in ((x, target[:2]), (x[0], target), (x, target.float())):
        assert RULES[operator.default](*others, None, reduction, -100) is None


SCATTERS = {"select_scatter": (1, 0), "slice_scatter": (1, 0, 2), "diagonal_scatter": (0, 0, 1)}


@pytest.mark.parametrize("name", SCATTERS)
def test_a_view_that_is_written_into_a_copy(name: str) -> None:
    choice, told = random.Random(4), 0
    operator = getattr(torch.ops.aten, name)
    operator = getattr(operator, operator.overloads()[0])
    for _ in range(100):
        x = torch.zeros([choice.choice((1, 2, 3)) for _ in range(3)])
        x = laid_out_anew(choice, x) if choice.random() < 0.3 else x
        part = getattr(torch, name.removesuffix("_scatter"), None)
        where = SCATTERS[name]
        part = x[:, 0:2] if part is None else part(x, *where)
        geometry = RULES[operator](x, part, *where)
        if geometry is not None:
            assert isinstance(geometry, Geometry)
            assert geometries(geometry.allocate()) == geometries(operator(x, part, *where))
            told += 1
    assert told > 30
    assert RULES[operator](x, torch.ones(7), *where) is None  # Eager refuses it.


def test_what_is_put_into_a_tensor_lies_as_its_copy_does() -> None:
    choice = random.Random(1)
    operator, told = torch.ops.aten.index_put.default, 0
    for _ in range(200):
        x = torch.zeros([choice.choice((1, 2, 3)) for _ in range(choice.randint(1, 4))])
        x = laid_out_anew(choice, x) if choice.random() < 0.5 else x
        indices: list[Any] = [None] * x.dim()
        for dim in choice.sample(range(x.dim()), choice.randint(1, x.dim())):
            indices[dim] = torch.zeros(choice.choice(((), (2,), (1, 2))), dtype=torch.int64)
        values = torch.ops.aten.index.Tensor(x, indices)
        values = values[..., :1] if choice.random() < 0.2 and values.dim() else values
        geometry = RULES[operator](x, indices, values)
        if geometry is not None:
            assert isinstance(geometry, Geometry)
            assert geometries(geometry.allocate()) == geometries(operator(x, indices, values))
            told += 1
    assert told > 100
    whole, places = torch.ones(3, 2), [torch.tensor([1])]
    for x, values in ((whole, torch.ones(1, 2).double()), (whole[:0], torch.ones(1, 2))):
        assert RULES[operator](x, places, values) is None  # Eager refuses these.


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("dims", [[2], [0, 1], [1, 0], [2, 0, 1]])
def test_fourier_transforms_of_any_layout(order: tuple[int, ...], dims: list[int]) -> None:
    x = torch.randn(4, 5, 6).permute(order)
    half = x + 1j
    calls = [
        (torch.ops.aten._fft_r2c.default, (x, dims, 0, True)),
        (torch.ops.aten._fft_r2c.default, (x, dims, 0, False)),
        (torch.ops.aten._fft_c2c.default, (half, dims, 0, True)),
        (torch.ops.aten._fft_c2r.default, (half, dims, 0, 2 * half.shape[dims[-1]] - 2)),
    ]
    for operator, arguments in calls:
        geometry = RULES[operator](*arguments)
        expected = operator(*arguments)
        assert isinstance(geometry, Geometry)
        assert (geometry.size, geometry.stride, geometry.dtype) == geometries(expected)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("size", [(3, 3), (5, 3), (2, 3, 5), (0, 3), (2, 1, 4)])
@pytest.mark.parametrize("full_matrices", [False, True])
def test_singular_vectors_lie_by_columns(
    dtype: torch.dtype, size: tuple[int, ...], full_matrices: bool
) -> None:
    x = torch.randn(size, dtype=dtype)
    operator = torch.ops.aten._linalg_svd.default
    parts = RULES[operator](x, full_matrices)
    assert isinstance(parts, tuple)
    found = [part.allocate() for part in parts if part is not None]
    assert geometries(found) == geometries(operator(x, full_matrices))


@pytest.mark.parametrize("size", [(2, 3), (4,), (), (0, 2)])
def test_places_of_a_mask_lie_by_rows(size: tuple[int, ...]) -> None:
    mask = torch.ones(size, dtype=torch.bool)
    operator = torch.ops.aten.nonzero_static.default
    for count in (0, 1, 3):
        geometry = RULES[operator](mask, size=count)
        assert isinstance(geometry, Geometry)
        assert geometries(geometry.allocate()) == geometries(operator(mask, size=count))


@pytest.mark.parametrize(
    "x", [torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(1, 3).expand(2, 3)]
)
@pytest.mark.parametrize("size", [(-1,), (3, 2), (2, 3)])
def test_copies_of_views_need_no_layout(x: torch.Tensor, size: tuple[int, ...]) -> None:
    compiled = fusewright.compile(torch.view_copy, options={"strict": True})
    result, expected = compiled(x, size), torch.view_copy(x, size)
    assert torch.equal(result, expected) and result.stride() == expected.stride()


VIEWS_OF_FOUND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "squeeze": lambda x: torch.squeeze_copy(x),
    "squeeze.dim": lambda x: torch.squeeze_copy(x, 0),
    "squeeze.dims": lambda x: torch.squeeze_copy(x, (0, 1)),
    "expand": lambda x: torch.expand_copy(x, (2, *x.shape)),
    "select": lambda x: torch.select_copy(x, 0, 0),
    "slice": lambda x: torch.slice_copy(x, 0, 1, 4),
    "diagonal": lambda x: torch.diagonal_copy(x),
    "unfold": lambda x: torch.unfold_copy(x, 0, 1, 1),
}


@pytest.mark.parametrize("name", VIEWS_OF_FOUND)
def test_copies_of_views_of_as_many_rows_as_data_say(name: str) -> None:
    """Whether a size is 1, or large enough, is asked of the data, as for the view itself."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return VIEWS_OF_FOUND[name](torch.nonzero(x)) + 1

    compiled = fusewright.compile(program)
    for values in ([0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0]):
        x = torch.tensor(values)
        try:
            expected = program(x)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            assert geometries(compiled(x)) == geometries(expected)
