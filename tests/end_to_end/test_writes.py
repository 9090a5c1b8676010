"""Writes to inputs and to results reach all that share their memory, whatever shows it: compiled,
and as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fusewright

Program = Callable[..., Any]


def grid() -> list[torch.Tensor]:
    return [torch.arange(1.0, 13.0).view(3, 4)]


def gaps() -> list[torch.Tensor]:
    return [torch.arange(24.0).view(3, 8)[:, ::2]]


def repeated() -> list[torch.Tensor]:
    return [torch.arange(5.0)[:, None].expand(5, 8)]


def without_elements() -> list[torch.Tensor]:
    base = torch.zeros(2, 0, dtype=torch.int64)
    return [base[1:-1, ..., ::2], base[::2], torch.ones(0, 0)]


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """All that the storage of a tensor holds."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.detach().as_strided((count,), (1,), 0).clone()


def flat(value: Any) -> list[Any]:
    items = value if isinstance(value, list | tuple) else [value]
    return [one for item in items for one in (flat(item) if isinstance(item, list) else [item])]


def outcome(function: Program, make: Callable[[], list[torch.Tensor]]) -> tuple[Any, ...]:
    """Results, and which share memory; what is in that of the arguments; or what is raised."""
    arguments = make()
    torch.manual_seed(3)
    try:
        results = flat(function(*arguments))
    except RuntimeError as error:
        return [str(error)], ()
    tensors = [one for one in (*results, *arguments) if isinstance(one, torch.Tensor)]
    identity = [next(n for n, one in enumerate(tensors) if one is each) for each in tensors]
    pointers = [one.untyped_storage().data_ptr() or id(one) for one in tensors]
    geometry = [(one.shape, one.stride(), one.storage_offset()) for one in tensors]
    shared = [pointers.index(one) for one in pointers]
    return results, [memory(one) for one in arguments], identity, shared, geometry


def check(function: Program, make: Callable[[], list[torch.Tensor]], **options: Any) -> None:
    expected = outcome(function, make)
    strict = {"strict": True} if expected[1:] != ((),) else {}
    ours = fusewright.compile(function, options=strict, **options)
    for _ in range(2):
        found = outcome(ours, make)
        assert found[2:] == expected[2:]
        if strict:
            torch.testing.assert_close(found[:2], expected[:2], rtol=0, atol=0)
        else:
            assert found == expected


def windows(x: torch.Tensor, length: int, step: int) -> Any:
    view = x.unfold(1, length, step)
    view[..., 0] = 2
    return x, view


def tensor_like(x: torch.Tensor) -> Any:
    y = x.new_tensor([1, 2, 3])
    y.fill_(1)
    return x, y


def expanded_part(x: torch.Tensor) -> Any:
    view = x.sum(1, keepdim=True).expand(1, 3, 1)
    view[1:].add_(1)
    return x, view


def column_of_expanded(x: torch.Tensor) -> Any:
    y = x.sum(1, keepdim=True)
    view = y.expand(3, 4)
    view[:, 0].add_(1)
    return x, view, y


def filled_expanded(x: torch.Tensor) -> Any:
    y = x.sum(1, keepdim=True)
    view = y.expand(3, 4)
    view.fill_(1)
    return x, view * 2, y


def swapped_columns(x: torch.Tensor) -> Any:
    view = x[:, 2:1]
    view[-1], view[0] = view[0].clone(), view[-1].clone()
    return x


def conjugates(x: torch.Tensor) -> Any:
    y = torch.complex(x, x + 1)
    view = y.conj().unfold(1, 2, 1)
    view[..., 0].mul_(1 + 2j)
    return y, view


VIEWS: dict[str, tuple[Program, Callable[[], list[torch.Tensor]]]] = {
    "windows apart, of an input": (lambda x: windows(x, 1, 2), grid),
    "windows apart": (lambda x: windows(x * 1, 1, 2), grid),
    "windows apart, of an input with gaps": (lambda x: windows(x, 1, 2), gaps),
    "windows that overlap": (lambda x: windows(x * 1, 2, 1), grid),
    "windows that overlap, of an input": (lambda x: windows(x, 2, 1), grid),
    "windows of a transposed tensor": (lambda x: windows(x.t() * 1, 2, 2), grid),
    "windows of conjugates": (conjugates, grid),
    "windows of another type": (
        lambda x: (x.view(torch.int32).unfold(1, 2, 2).fill_(1), x + 1),
        grid,
    ),
    "nothing of an index": (lambda x: x[:0].index_fill_(1, torch.tensor([9]), 0.0), grid),
    "windows of a number": (lambda x: (x.unfold(0, 1, 3).neg_(), x), lambda: [torch.tensor(2.0)]),
    "a tensor of numbers": (tensor_like, grid),
    "a part of an expanded tensor": (expanded_part, grid),
    "a column of an expanded tensor": (column_of_expanded, grid),
    "an expanded tensor, filled": (filled_expanded, grid),
    "a column of an expanded input": (lambda x: (x[:, 0].mul_(2), x + 1), repeated),
    "an expanded input, filled": (lambda x: (x.fill_(2), x + 1), repeated),
    "an expanded input, added to": (lambda x: x.add_(1), repeated),
    "no columns of an expanded input": (swapped_columns, repeated),
    "rows of a grid": (
        lambda x: [one.fill_(3) for one in torch.meshgrid(x[0], x[1], indexing="ij")],
        grid,
    ),
    "no elements": (lambda x, y, z: (y.sub_(torch.tensor(3)), x ^ x, z), without_elements),
}

INFERENCE = pytest.mark.parametrize("inference", [False, True], ids=["plain", "inference"])


@INFERENCE
@pytest.mark.parametrize("case", VIEWS)
def test_through_views(case: str, inference: bool) -> None:
    with torch.inference_mode() if inference else nullcontext():
        check(*VIEWS[case])


@pytest.mark.parametrize("case", VIEWS)
def test_through_views_of_any_size(case: str) -> None:
    check(*VIEWS[case], dynamic=True)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Fresh memory, whose rows are columns."""
    return x.t() * 1


def summed_and_shown(x: torch.Tensor) -> Any:
    y = turned(x)
    y.cumsum_(0)
    return y.broadcast_to((2, -1, -1))


def summed_and_split(x: torch.Tensor) -> Any:
    y = turned(x)
    y.cumsum_(0)
    y.unsqueeze(0)[0, 1].mul_(3)
    return list(y.unfold(0, 2, 1).unbind()), y.t().view(-1)


def shown_before_and_after(x: torch.Tensor) -> Any:
    y = turned(x)
    rows = y.t()
    y.cumsum_(1)
    flat = rows.view(-1)
    flat.add_(1)
    return flat, y


def halves_and_bits(x: torch.Tensor) -> Any:
    y, z = turned(x), turned(x).to(torch.complex64)
    y.cumsum_(0)
    z.cumsum_(1)
    return y.view(torch.int32), y.diagonal(), torch.view_as_real(z), z.imag.expand(3, -1, -1)


def multiplied_in_place(x: torch.Tensor) -> Any:
    y = turned(x[:, :3])
    y.addmm_(turned(x[:, :3]), turned(x[:, :3]))
    return y.expand(2, -1, -1), y.as_strided((2, 2), (1, 3))


def indexed_in_place(x: torch.Tensor) -> Any:
    y = turned(x)
    y.index_add_(0, torch.tensor([0]), y[:1] * 2)
    return y.expand(2, -1, -1), y * 2


LAID_OUT = [
    summed_and_shown,
    summed_and_split,
    shown_before_and_after,
    halves_and_bits,
    multiplied_in_place,
    indexed_in_place,
]
"""Programs that show memory after a write whose functional form lays its result out otherwise."""


@pytest.mark.parametrize("with_gradient", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", LAID_OUT)
def test_views_of_what_a_write_lays_out_otherwise(
    program: Program, dynamic: bool, with_gradient: bool
) -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).requires_grad_(with_gradient)
    ours = fusewright.compile(program, dynamic=dynamic, options={"strict": True})
    expected, found = flat(program(x)), flat(ours(x))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert [one.stride() for one in found] == [one.stride() for one in expected]
    pointers = [[one.untyped_storage().data_ptr() for one in side] for side in (found, expected)]
    shared = [[side.index(one) for one in side] for side in pointers]
    assert shared[0] == shared[1]
    if with_gradient:
        sums = [
            sum(one.sum().abs() for one in side if one.requires_grad) for side in (found, expected)
        ]
        gradients = [torch.autograd.grad(one, x)[0] for one in sums]
        torch.testing.assert_close(*gradients)


def scattered(x: torch.Tensor) -> Any:
    y = torch.cat([x, x], out=torch.empty(0))
    return y.scatter_add(0, torch.arange(y.numel()).reshape(y.shape) % y.shape[0], y), y


def resized(x: torch.Tensor) -> Any:
    out = torch.empty(0)
    result = torch.add(x, 1, out=out)
    out.mul_(2)
    return result, out, result is out, out.shape


def both_resized(x: torch.Tensor) -> Any:
    out = torch.empty(0), torch.empty(0, dtype=torch.long)
    return torch.max(x, 1, out=out)[0], *out


def resized_twice(x: torch.Tensor) -> Any:
    out = torch.empty(0)
    torch.matmul(x, x.t(), out=out)
    torch.add(out, 1, out=out)
    return out.view(-1)


OUT: dict[str, Program] = {
    "then read": scattered,
    "then written": resized,
    "two": both_resized,
    "then used again": resized_twice,
    "of another type": lambda x: torch.mul(x, 2, out=torch.empty(0, dtype=torch.float64)) + 1,
    "of no elements in two dimensions": lambda x: torch.add(x, 1, out=torch.empty(5, 0)),
    "of a reduction": lambda x: torch.sum(x, 0, out=x.new_empty(0)).add_(1),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", OUT)
def test_out_arguments_that_are_resized(case: str, dynamic: bool) -> None:
    check(OUT[case], grid, dynamic=dynamic)


IN_PLACE: dict[str, tuple[Program, tuple[int, ...]]] = {
    "diagonal": (lambda x: (x.fill_diagonal_(7), x + 1), (3, 4)),
    "long diagonal": (lambda x: x.fill_diagonal_(7), (7, 2)),
    "long diagonal, wrapped": (lambda x: x.fill_diagonal_(7, wrap=True), (7, 2)),
    "diagonal of a cube": (lambda x: x.fill_diagonal_(7), (3, 3, 3)),
    "diagonal of a result": (lambda x: (x * 2).fill_diagonal_(7), (4, 3)),
    "diagonal of nothing": (lambda x: x.fill_diagonal_(7), (0, 1)),
    "dropout": (lambda x: (F.dropout(x, 0.4, inplace=True), x.max()), (3, 4)),
    "dropout of nothing": (lambda x: (F.dropout(x, 0.0, inplace=True), x.max()), (3, 4)),
    "dropout of all": (lambda x: (F.dropout(x, 1.0, inplace=True), x.max()), (3, 4)),
    "dropout, evaluating": (lambda x: F.dropout(x, 0.4, False, inplace=True), (3, 4)),
    "alpha dropout": (lambda x: F.alpha_dropout(x, 0.4, True, inplace=True), (3, 4)),
    "dropout of channels": (lambda x: F.dropout2d(x, 0.4, inplace=True), (2, 3, 2, 2)),
}


@INFERENCE
@pytest.mark.parametrize("case", IN_PLACE)
def test_in_place(case: str, inference: bool) -> None:
    program, sizes = IN_PLACE[case]
    with torch.inference_mode() if inference else nullcontext():
        check(program, lambda: [torch.ones(sizes)])


def both_ways(x: torch.Tensor) -> Any:
    x.t_()
    y = x + 1
    return y, x.shape, x.t_().sum(0), x


def written_and_turned(x: torch.Tensor) -> Any:
    x.transpose_(0, -1).mul_(2)
    return x, x + 1


def parts_around(x: torch.Tensor) -> Any:
    before = x[1:]
    x.add_(1).t_()
    return before, x[1:], x


TURNED: dict[str, Program] = {
    "t_": lambda x: (x.t_(), x)[1],
    "t_ twice": both_ways,
    "transpose_, then written": written_and_turned,
    "unsqueeze_": lambda x: (x.unsqueeze_(0), x[0] * 2, x),
    "unsqueeze_ and squeeze_": lambda x: (x.unsqueeze_(1), x.squeeze_(), x + 1),
    "swapaxes_": lambda x: (x.swapaxes_(0, 1).sum(0), x),
    "parts before and after": parts_around,
    "a view of it": lambda x: (x.view_as(x).t_(), x + 1, x),
    "detached": lambda x: (x.detach().t_(), x + 1, x),
}


@INFERENCE
@pytest.mark.parametrize("case", TURNED)
def test_inputs_that_get_other_sizes(case: str, inference: bool) -> None:
    with torch.inference_mode() if inference else nullcontext():
        check(TURNED[case], grid)


CHANGED: dict[str, Program] = {
    "t_": lambda x: (x.t_(), x * 2)[1],
    "unsqueeze_": lambda x: (x.unsqueeze_(0), x * 2)[1],
    "as_strided_": lambda x: (x.as_strided_((2, 2), (1, 1)), x * 2)[1],
    "detach_": lambda x: (x.detach_(), x * 2)[1],
}


@pytest.mark.parametrize("of_view", [False, True])
@pytest.mark.parametrize("case", CHANGED)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_an_input_with_a_history_is_changed(case: str, of_view: bool) -> None:
    def run(function: Program) -> Any:
        leaf = torch.ones(3, 4, requires_grad=True)
        x = leaf * 1
        x = x[1:] if of_view else x
        try:
            result = function(x)
        except RuntimeError as error:
            return str(error)
        if result.requires_grad:
            result.sum().backward()
        return result.detach(), x.detach(), x.requires_grad, leaf.grad

    assert str(run(fusewright.compile(CHANGED[case]))) == str(run(CHANGED[case]))


def test_an_input_that_gets_other_sizes_is_kept_for_backward() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x.t_()
        return (x.t() * weight).sum(0)

    def run(function: Program) -> Any:
        (x,), weight = grid(), torch.ones(4, requires_grad=True)
        function(x, weight).sum().backward()
        return x, weight.grad

    ours = fusewright.compile(program, options={"strict": True})
    torch.testing.assert_close(run(ours), run(program), rtol=0, atol=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_write_behind_a_break_inside_of_a_grad_mode_has_its_history(mode: Any) -> None:
    """The graph behind the break begins in the mode, and turns gradients on itself."""

    def program(x: torch.Tensor) -> torch.Tensor:
        with mode():
            fusewright.graph_break()
            y = x * 3
        x.add_(x * 2)
        x[0] += y[0]
        return x

    for outer in (torch.enable_grad, torch.no_grad):
        found = []
        for function in (program, fusewright.compile(program)):
            leaf = torch.ones(2, 3, requires_grad=True)
            x = leaf * 1
            with outer():
                result = function(x)
            gradient = torch.autograd.grad(x.sum() + result.sum(), leaf)[0]
            found.append((x.tolist(), gradient.tolist(), result.grad_fn is None))
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("statistics", [None, torch.float32])
def test_statistics_that_a_library_call_returns_have_the_type_of_the_given_ones(
    dtype: torch.dtype, statistics: torch.dtype | None
) -> None:
    """torch's meta kernel says otherwise: kernels read float32 where half as many bytes lay."""

    def update(x: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weight, bias, mean, variance = (one.clone() for one in given)
        call = torch.ops.aten._batch_norm_with_update
        results = call(x, weight, bias, mean, variance, 0.1, 1e-5)
        return *(one * 2 for one in results), mean, variance

    x, *given = torch.randn(3, 5, 4, dtype=dtype), *(torch.rand(5) for _ in range(4))
    given = [one.to(statistics or dtype) for one in given]
    compiled = fusewright.compile(update, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(compiled(x, *given), update(x, *given))


def added_to_two(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> Any:
    """As for clusters: the same places in both, which are checked once."""
    old = x.sum()
    x.index_add_(0, index, source)
    source.index_add_(0, index % 3, source * 2)
    return old, x + 1


def added_twice(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> Any:
    x.index_add_(0, index, source)
    x.view(-1).scatter_add_(0, index, source[:, 0])
    return x


def added_before_a_library_call(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> Any:
    x.index_put_((index,), source, accumulate=True)
    return torch.linalg.cholesky(torch.eye(2) * (1 + index.sum()))


SUMS: dict[str, Callable[..., Any]] = {
    "two": added_to_two,
    "twice": added_twice,
    "before a library call": added_before_a_library_call,
    "a part": lambda x, index, source: x[4:, 1].index_add_(0, index, source[:, 1]),
    "not all": lambda x, index, source: x.view(-1)[3:].scatter_add_(0, index, source[:, 1]),
    "its own": lambda x, index, source: x.index_add_(0, index, x[:5] * 2),
    "largest": lambda x, index, source: x.scatter_reduce_(
        0, index[:, None].expand(5, 3), source, "amax"
    ),
}


@pytest.mark.parametrize("case", SUMS)
def test_sums_in_the_memory_of_inputs(case: str) -> None:
    """With an index out of range, inputs are left as eager leaves them: nothing is added twice."""
    index = torch.tensor([3, 3, 0, 40, 3])
    arguments = torch.randint(-5, 5, (128, 3)).float(), index, torch.randint(-5, 5, (5, 3)).float()
    ours = fusewright.compile(SUMS[case])
    for index[3] in (40, 4000, 41):
        expected, found = ([one.clone() for one in arguments] for _ in range(2))
        seen = []
        for function, given in ((SUMS[case], expected), (ours, found)):
            try:
                seen.append(flat(list(function(*given))))
            except (RuntimeError, IndexError) as error:
                seen.append([type(error), str(error)])
        assert (index[3] > 1000) == isinstance(seen[0][0], type)
        assert str(seen[1]) == str(seen[0])
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
