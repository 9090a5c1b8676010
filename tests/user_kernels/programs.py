"""Programs that launch Triton kernels of their own, each a function of one tensor of at least 32
numbers. The kernels run on a GPU, or under Triton's interpreter, as Triton is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
import triton
import triton.language as tl

Program = Callable[[torch.Tensor], Any]
PROGRAMS: Final[dict[str, Program]] = {}


def check(compiled: Program, program: Program, sizes: Iterable[int], device: Any = "cpu") -> None:
    """Calls return what the program returns, and leave its argument as the program leaves it."""
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(size, device=device)
            own, eager = x.clone(), x.clone()
            result, expected = compiled(own), program(eager)
            torch.testing.assert_close(result, expected, check_stride=True)
            torch.testing.assert_close(own, eager)


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


# Kernels ------------------------------------------------------------------------------------------


@triton.jit
def add(left, right, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(left + place, inside) + tl.load(right + place, inside), inside)


@triton.jit
def scale(x, count, factor, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(x + place, tl.load(x + place, inside) * factor, inside)


@triton.jit
def store_tripled(x, y, place, inside):
    tl.store(y + place, tl.load(x + place, inside) * 3, inside)


@triton.jit
def triple(x, y, z, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    store_tripled(x, y, place, inside)
    if z is not None:
        store_tripled(x, z, place, inside)


@triton.jit
def total(x, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + place, place < count, 0.0), 0))


@triton.jit
def subtract_maximum(x, out, x0, x1, out0, out1, count, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * x0 + column * x1, column < count, float("-inf"))
    values = values - tl.max(values, 0)
    tl.store(out + row * out0 + column * out1, values, column < count)


@triton.jit
def fill(out, count, value, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, (place * value).to(DTYPE), place < count)


@triton.jit
def add_pair(pair, out, sizes, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < sizes[0]
    tl.store(
        out + place, tl.load(pair[0] + place, inside) + tl.load(pair[1] + place, inside), inside
    )


def _measured(run: Callable[[], Any], quantiles: Any) -> list[float]:
    """As Triton's benchmark, where there may be no GPU: all configurations are as fast."""
    run()
    return [1.0, 1.0, 1.0]


_CONFIGURATIONS = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]
tuned = triton.autotune(configs=_CONFIGURATIONS, key=["count"], do_bench=_measured)(add)
configured = triton.autotune(configs=_CONFIGURATIONS[:1], key=["count"])(add)
by_size = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["count"])})(add)
both = triton.autotune(configs=[triton.Config({}, num_warps=n) for n in (1, 2)], key=["count"],
                       do_bench=_measured)(by_size)  # fmt: skip


def blocks(count: Any) -> tuple[Any]:
    return (triton.cdiv(count, 16),)


# Programs -----------------------------------------------------------------------------------------


@program
def into_new_memory(x: torch.Tensor) -> Any:
    x = x.sin()
    out = torch.empty_like(x)
    add[blocks(x.numel())](x, x, out, x.numel(), BLOCK=16)
    return out * 2


@program
def by_a_function_of_parameters(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)

    def grid(chosen: Any) -> Any:
        return (triton.cdiv(x.numel(), chosen["BLOCK"]),)

    add[grid](x, x, out, x.numel(), BLOCK=16)
    return out * 2


@program
def by_name(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    add[blocks(x.numel())](count=x.numel(), out=out, BLOCK=16, right=x, left=x, num_warps=2)
    return out * 2


@program
def in_place(x: torch.Tensor) -> Any:
    y = x.cos()
    scale[blocks(y.numel())](y, y.numel(), 2.5, BLOCK=16)
    return y + 1


@program
def of_an_input(x: torch.Tensor) -> Any:
    scale[blocks(x.numel())](x, x.numel(), 2.5, 16)
    return x + 1


@program
def of_a_product(x: torch.Tensor) -> Any:
    y = x[:8].reshape(2, 4) @ x[:8].reshape(4, 2)
    scale[(1,)](y, 4, 2.0, BLOCK=16)
    return y


@program
def read_before_and_after(x: torch.Tensor) -> Any:
    y = x.cos()
    before = y * 2
    scale[blocks(y.numel())](y, y.numel(), 2.5, BLOCK=16)
    return before, y * 2, y


@program
def through_a_view(x: torch.Tensor) -> Any:
    y = x.cos()
    part = y[2:7]
    scale[(1,)](part, 5, 2.0, BLOCK=16)
    return y, part + 1


@program
def through_a_view_of_an_input(x: torch.Tensor) -> Any:
    scale[(1,)](x[2:7], 5, 2.0, BLOCK=16)
    return x * 2


@program
def one_tensor_three_times(x: torch.Tensor) -> Any:
    y = x.cos()
    add[blocks(y.numel())](y, y, y, y.numel(), BLOCK=16)
    return y


@program
def autotuned(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    tuned[lambda chosen: (triton.cdiv(x.numel(), chosen["BLOCK"]),)](x, x, out, x.numel())
    return out * 2


@program
def of_one_configuration(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    configured[lambda chosen: (triton.cdiv(x.numel(), chosen["BLOCK"]),)](x, x, out, x.numel())
    return out


@program
def by_heuristics(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    by_size[lambda chosen: (triton.cdiv(chosen["count"], chosen["BLOCK"]),)](x, x, out, x.numel())
    return out


@program
def by_both(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    both[lambda chosen: (triton.cdiv(chosen["count"], chosen["BLOCK"]),)](x, x, out, x.numel())
    return out


@program
def with_helpers_and_none(x: torch.Tensor) -> Any:
    y, z = torch.empty_like(x), torch.ones_like(x)
    triple[blocks(x.numel())](x, y, None, x.numel(), BLOCK=16)
    triple[blocks(x.numel())](y, z, x, x.numel(), BLOCK=16)
    return y, z


@program
def twice_into_one_sum(x: torch.Tensor) -> Any:
    out = x.new_zeros(1)
    total[blocks(x.numel())](x, out, x.numel(), BLOCK=16)
    total[blocks(x.numel())](x, out, x.numel(), BLOCK=16)
    return out


@program
def of_strides(x: torch.Tensor) -> Any:
    matrix = x[:12].reshape(3, 4).t().cos()
    out = torch.empty_like(matrix)
    subtract_maximum[(4,)](matrix, out, *matrix.stride(), *out.stride(), 3, BLOCK=4)
    return out


@program
def between_columns(x: torch.Tensor) -> Any:
    matrix = x[:12].reshape(3, 4).sin()
    left, right = matrix[:, :2], matrix[:, 2:]
    subtract_maximum[(3,)](left, right, *left.stride(), *right.stride(), 2, BLOCK=2)
    return matrix, left


@program
def of_a_transposed_product(x: torch.Tensor) -> Any:
    product = (x[:8].reshape(2, 4) @ x[:8].reshape(4, 2)).t()
    out = x.new_empty(2, 2)
    subtract_maximum[(2,)](product, out, *product.stride(), *out.stride(), 2, BLOCK=2)
    return out


@program
def of_memory_written_to_before(x: torch.Tensor) -> Any:
    """Values that are written into memory which lies otherwise than they do."""
    matrix = x.new_empty(4, 6).t()
    matrix.copy_(x[:24].reshape(6, 4))
    matrix.mul_(2)
    strides = matrix.stride()
    subtract_maximum[(6,)](matrix, matrix, *strides, *strides, 4, BLOCK=4)
    return matrix


@program
def of_no_elements(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    add[(1,)](x, x, out, 0, BLOCK=16)
    return out


@program
def whose_result_nobody_reads(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    add[blocks(x.numel())](x, x, out, x.numel(), BLOCK=16)
    return x + 1


@program
def one_after_another(x: torch.Tensor) -> Any:
    first, second = torch.empty_like(x), torch.empty_like(x)
    add[blocks(x.numel())](x, x, first, x.numel(), BLOCK=16)
    add[blocks(x.numel())](first, x, second, x.numel(), BLOCK=16)
    add[blocks(x.numel())](first, second, first, x.numel(), BLOCK=16)
    return first * second


@program
def of_a_type(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    fill[blocks(x.numel())](out, x.numel(), 2, BLOCK=16, DTYPE=tl.float32)
    return out + x


@program
def of_tuples(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    add_pair[blocks(x.numel())]((x, x.sin()), out, (x.numel(), 3), BLOCK=16)
    return out


@program
def of_a_number_that_varies(x: torch.Tensor) -> Any:
    y = x.clone()
    scale[blocks(y.numel())](y, y.numel(), y.numel() / 2, BLOCK=16)
    return y
