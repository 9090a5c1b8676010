"""What docs/not-supported.md says of each row that it marks as tested."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import FusewrightError, Unsupported

PAGE = Path(__file__).parents[1] / "docs" / "not-supported.md"

Program = Callable[..., Any]


class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return super().__torch_function__(function, types, args, kwargs)


def doubled(x: Any) -> Any:
    return x * 2


BREAKS: dict[str, tuple[Program, Callable[[], Any]]] = {
    "sparse": (
        lambda x: torch.sin(x + 1) if not x.is_sparse else x * 2,
        lambda: torch.eye(3).to_sparse(),
    ),
    "nested": (doubled, lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "quantised": (
        lambda x: x.dequantize() * 2,
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ),
    "subclasses": (doubled, lambda: torch.ones(3).as_subclass(Subclass)),
    "a branch on a tensor's value": (lambda x: x if x.sum() > 0 else -x, lambda: torch.ones(3)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_or_eager_and_the_same_result(name: str) -> None:
    """No graph where there is none to have, and eager's result all the same."""
    program, make = BREAKS[name]
    result = fusewright.compile(program)(make())
    expected = program(make())
    assert type(result) is type(expected)
    if expected.is_sparse:
        result, expected = result.to_dense(), expected.to_dense()
    if expected.is_nested:
        result, expected = torch.cat(result.unbind()), torch.cat(expected.unbind())
    assert torch.equal(torch.Tensor(result), torch.Tensor(expected))
    with pytest.raises(Unsupported):
        fusewright.compile(program, fullgraph=True)(make())


def test_complex_numbers_run_inside_the_graph() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    compiled = fusewright.compile(doubled, fullgraph=True, options={"strict": True})
    assert torch.equal(compiled(x), x * 2)


EAGER = (torch.float8_e4m3fn, torch.uint16, torch.uint32)


@pytest.mark.parametrize("dtype", EAGER, ids=str)
def test_types_that_make_a_graph_eager(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.clone().view(-1)

    x = torch.ones(4, 2).to(dtype)
    with pytest.warns(RuntimeWarning, match="running"):
        result = fusewright.compile(program)(x)
    assert result.dtype == dtype and result.shape == (8,)


def test_gradients_of_gradients_are_an_error_outside_and_work_inside() -> None:
    def cubes(x: torch.Tensor) -> torch.Tensor:
        return (x**3).sum()

    def slope_of_slope(x: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(cubes(x), x, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), x)
        return second

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (slope,) = torch.autograd.grad(fusewright.compile(cubes)(x), x, create_graph=True)
    with pytest.raises(FusewrightError, match="second derivatives"):
        torch.autograd.grad(slope.sum(), x)
    assert torch.equal(fusewright.compile(slope_of_slope)(x), 6 * x.detach())


def test_packages_of_programs_that_compute_gradients_are_refused(tmp_path: Path) -> None:
    """What else is refused: `tests.packages.test_packages`."""
    argument = torch.ones(3, requires_grad=True)
    with pytest.raises(Unsupported, match="gradients"):
        fusewright.aot_compile(lambda x: x.exp(), (argument,), path=tmp_path / "p.fwp")


def test_rows_marked_as_tested_have_a_test() -> None:
    """By a word of each row, and the number of rows. Those of a program's own Triton kernels are in
    `tests.user_kernels.test_breaks`.
    """
    rows = [line for line in PAGE.read_text().splitlines() if line.endswith("| **tested** |")]
    words = (
        "sparse", "subclasses", "complex numbers", "float8", "branch", "gradients",
        "Triton kernels", "packages",
    )  # fmt: skip
    assert len(rows) == len(words)
    for word, row in zip(words, rows, strict=True):
        assert re.search(word, row), row
