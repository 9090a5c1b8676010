"""Half types are rounded once a kernel, but not where a formula jumps: what compares, cuts off or
counts sees the numbers that eager has in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.ir.reference import evaluate
from tests.lower.support import program_on_gpu

HALF = (torch.float16, torch.bfloat16)

JUMPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "equal": lambda x, y: x * y == (x * y).clone(),
    "compared with eager's product": lambda x, y: (x * y >= y, x * y < x),
    "rounded": lambda x, y: (torch.floor(x * y), torch.ceil(x * y), torch.round(x * y)),
    "whole part": lambda x, y: ((x * y).to(torch.int32), torch.trunc(x * y), torch.frac(x * y)),
    "first of equals": lambda x, y: ((x * y).argmax(), (x * y).argmin(), (x * y).max(0).indices),
    "sign": lambda x, y: ((x * 1e-7).sign(), (x * 1e-7).bool(), x * 1e-7 != 0),
    "infinite": lambda x, y: (torch.isinf(x * 6e4), torch.isposinf(x * 6e4)),
    "limits": lambda x, y: (
        torch.nn.functional.hardshrink(x * y, 1.0),
        torch.nn.functional.threshold(x * y, 2.0, 0.0),
    ),
    "truth": lambda x, y: ((x * 3e-9).any(1), (x * 1e-7).all(1)),
    "remainder": lambda x, y: (torch.remainder(x * y, 1.0), torch.fmod(x * y, 0.5)),
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", JUMPS)
def test_jumps_are_where_eager_has_them(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(64, 33).to(dtype) for _ in range(2))
    program = JUMPS[name]
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(compiled(x, y), program(x, y), rtol=0, atol=0, equal_nan=True)


NUMBERS: dict[str, Callable[[Tensor, float], Any]] = {
    "equal": lambda x, c: (x == c, x != c),
    "below": lambda x, c: (x < c, x <= c),
    "above": lambda x, c: (x > c, x >= c),
    "a number that comes first": lambda x, c: torch.ge(torch.tensor(c), x),
    "a tensor of a number": lambda x, c: (x == torch.tensor(c), x.lt(torch.full((3,), c)[1])),
    "an integer": lambda x, c: (
        x * 0 + 256 == 257,
        x * 0 + 2048 == torch.arange(2048, 2051).to(x.device),
    ),
    "shrunk": lambda x, c: torch.nn.functional.hardshrink(x, c),
    "shrunk softly": lambda x, c: torch.nn.functional.softshrink(x, c) == 0,
    "limited": lambda x, c: torch.nn.functional.threshold(x, c, 5.0),
    "gradient of shrunk": lambda x, c: torch.ops.aten.hardshrink_backward(x, x, c),
    "gradient of shrunk softly": lambda x, c: torch.ops.aten.softshrink_backward(x, x, c),
    "gradient of limited": lambda x, c: torch.ops.aten.threshold_backward(x, x, c),
    "gradient of cut off": lambda x, c: torch.ops.aten.hardtanh_backward(x, x, -c, c),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_compared_as_eager_rounds_them(
    name: str, dtype: torch.dtype, dynamic: bool
) -> None:
    """`x == 0.1` holds where `x` is the number of a half type next to 0.1."""
    program = NUMBERS[name]
    compiled = fusewright.compile(program, dynamic=dynamic, options={"strict": True})
    for number in (0.1, 0.3, 0.7, 1.1):
        near = torch.tensor([number, -number], dtype=dtype)
        x = torch.cat([near, near.nextafter(2 * near), near.nextafter(0 * near)]).repeat(11)
        x = x[:, None].expand(-1, 3)
        torch.testing.assert_close(compiled(x, number), program(x, number), rtol=0, atol=0)


EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "amin": lambda x: (x.cos() * x).amin(),
    "amin of one": lambda x: torch.xlogy(x, x)[:, :1].amin(-1),
    "amax of rows": lambda x: (x.sin() * x).amax(1),
    "max": lambda x: (x.exp() * x).max(),
    "min of columns": lambda x: (x.exp() * x).min(0).values,
    "maximum": lambda x: torch.maximum(x.sin() * x, x.cos() * x),
    "infinity norm": lambda x: torch.linalg.vector_norm(x.sin() * x, torch.inf),
}


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize("name", EXTREMES)
def test_gradients_of_extremes_find_them_again(name: str, dtype: torch.dtype) -> None:
    """Backward looks for the elements that equal the result."""
    torch.manual_seed(0)
    compiled = fusewright.compile(EXTREMES[name], fullgraph=True, options={"strict": True})
    for rows, columns in ((1, 1), (8, 5), (33, 17)):
        x = torch.rand(rows, columns).to(dtype).requires_grad_()
        gradients = []
        for program in (EXTREMES[name], compiled):
            (gradient,) = torch.autograd.grad(program(x).sum(), x)
            gradients.append(gradient)
        expected, found = gradients
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


LIMITS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "limited": NUMBERS["limited"],
    "shrunk softly": torch.nn.functional.softshrink,
    "gradient of limited": NUMBERS["gradient of limited"],
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", LIMITS)
def test_kernels_for_gpus_round_limits(name: str, dtype: torch.dtype) -> None:
    """There, eager's kernels take a limit in the type of the elements."""
    for number in (0.1, 0.3, 0.7, 1.1):
        near = torch.tensor([number, -number], dtype=dtype)
        x = torch.cat([near, near.nextafter(2 * near), near.nextafter(0 * near)])
        program = program_on_gpu(lambda x, c=number: LIMITS[name](x, c), x)
        (found,) = evaluate(program, [x])
        rounded = torch.tensor(number, dtype=dtype).item()
        torch.testing.assert_close(found, LIMITS[name](x, rounded), rtol=0, atol=0)
