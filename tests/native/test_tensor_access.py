"""Sizes and strides of tensors, as compiled code reads them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.native import size_of, stride_of


class Wide(torch.Tensor):
    """A tensor that says another size."""

    def size(self, dim: int | None = None) -> Any:
        return 7


TENSORS = {
    "plain": torch.empty(3, 4).t(),
    "of no elements": torch.empty(2, 0, 3),
    "parameter": torch.nn.Parameter(torch.empty(2, 5)),
    "subclass": torch.empty(2, 3).as_subclass(Wide),
    "meta": torch.empty(2, 3, device="meta"),
    "sparse": torch.eye(3).to_sparse(),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_extents_are_those_of_the_methods(kind: str) -> None:
    tensor = TENSORS[kind]
    for dim in range(tensor.dim()):
        assert size_of(tensor, dim) == tensor.size(dim)
        if kind != "sparse":
            assert stride_of(tensor, dim) == tensor.stride(dim)


@pytest.mark.parametrize("dim", [-1, 2, 1 << 40])
def test_dimensions_that_are_not_there_are_refused_as_by_the_methods(dim: int) -> None:
    tensor = torch.empty(3, 4)
    if dim == -1:
        assert size_of(tensor, dim) == 4
        return
    with pytest.raises(IndexError) as refusal:
        tensor.size(dim)
    with pytest.raises(IndexError) as own:
        size_of(tensor, dim)
    assert str(own.value) == str(refusal.value)


def test_inside_a_transform() -> None:
    """A batched tensor has no batch dimension."""
    sizes = []

    def program(x: torch.Tensor) -> torch.Tensor:
        sizes.append((size_of(x, 0), stride_of(x, 0), x.size(0), x.stride(0)))
        return x

    torch.func.vmap(program)(torch.empty(2, 3, 4))
    torch.func.vmap(program, in_dims=1)(torch.empty(2, 3, 4))
    assert all(found[:2] == found[2:] for found in sizes)


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(AttributeError):
        size_of([1], 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        size_of(torch.empty(3), "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a dimension"):
        size_of(torch.empty(3))  # type: ignore[call-arg]
