"""Memory and identity in training are as in eager: inputs that share memory and are written to,
writes through views, results that alias inputs and each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from tests.aot.beside_eager import Program, check, compiled, leaf


def captured(program: Program) -> Program:
    return fusewright.compile(program, fullgraph=True, options={"strict": True, "verify": True})  # type: ignore[no-any-return]


WAYS = pytest.mark.parametrize("compile", [compiled, captured], ids=["aot_function", "compile"])


def plain(*size: int, seed: int = 3) -> torch.Tensor:
    return leaf(*size, seed=seed).detach()


def inside(*size: int, seed: int = 3) -> torch.Tensor:
    """A tensor with a history, which may be written to."""
    return leaf(*size, seed=seed) * 2


def scale_untracked(x: torch.Tensor) -> None:
    with torch.no_grad():
        x.mul_(3)


def overlapping(base: torch.Tensor) -> list[torch.Tensor]:
    return [base[1:], base[:-1], leaf(3)]


def set_item(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    x[key] = value
    return x


Case = tuple[Program, Callable[[], list[Any]]]

SHARED: dict[str, Case] = {
    "memory without history, written": (
        lambda x, y, w: (x.add_(1), y * w),
        lambda: overlapping(plain(4)),
    ),
    "a write that brings a history": (
        lambda x, y, w: (x.mul_(w), y * w),
        lambda: overlapping(plain(4)),
    ),
    "views of a tensor with a history": (
        lambda x, y, w: (x.mul_(w).sin(), y * w),
        lambda: overlapping(inside(4)),
    ),
    "both are written to": (
        lambda x, y, w: (x.mul_(w), y.add_(w), x * 2),
        lambda: overlapping(inside(4)),
    ),
    "read before and after the write": (
        lambda x, y, w: (y * 2 + w, x.mul_(w), y.sin()),
        lambda: overlapping(inside(4)),
    ),
    "written with and without gradients": (
        lambda x, y, w: (x.mul_(w), scale_untracked(y), y.sin()),
        lambda: overlapping(inside(4)),
    ),
    "the whole and a part, which is written": (
        lambda x, part, w: (part.mul_(w), x * 2),
        lambda: [(x := inside(4)), x[1:], leaf(3)],
    ),
    "the whole, which is written, and a part": (
        lambda x, part, w: (x.mul_(w[0]), part * 2),
        lambda: [(x := inside(4)), x[1:], leaf(3)],
    ),
    "results are views of them": (
        lambda x, part, w: (x.mul_(w[0]), part.view(-1), x[1:], part),
        lambda: [(x := inside(4)), x[1:], leaf(3)],
    ),
    "a part of a parameter, written without gradients": (
        lambda x, part, w: (scale_untracked(part), x * w),
        lambda: [(x := leaf(3)), x[1:], leaf(3)],
    ),
    "detached memory of a parameter": (
        lambda x, part, w: (scale_untracked(part), x * w),
        lambda: [(x := leaf(3)), x.detach()[1:], leaf(3)],
    ),
    "detached memory of a tensor with a history": (
        lambda x, y, w: (y.add_(1), x * w),
        lambda: [(x := inside(3)), x.detach(), leaf(3)],
    ),
    "detached memory that takes a history": (
        lambda x, y, w: (y.mul_(w), x * w, y * x),
        lambda: [(x := inside(3)), x.detach(), leaf(3)],
    ),
    "parameters in one storage": (
        lambda x, y, w: (scale_untracked(x), x * w + y),
        lambda: [
            (flat := plain(6))[:3].requires_grad_(),
            flat[2:5].detach().requires_grad_(),
            leaf(3),
        ],
    ),
    "two histories in one storage": (
        lambda x, y, z, w: (x.mul_(w), z.add_(1), y * z),
        lambda: [(base := inside(4))[1:], base[:-1], base.detach()[1:], leaf(3)],
    ),
    "other strides": (
        lambda x, y, w: (x.copy_(w), y.sum() * w),
        lambda: [(base := plain(3, 4)).t(), base[0], leaf(4, 3)],
    ),
    "in the middle of a storage": (
        lambda x, y, w: (x.mul_(w), y * 2),
        lambda: overlapping((inside(9) + 0)[3:7]),
    ),
    "complex, conjugated": (
        lambda x, y, w: (x.mul_(w), (y * w).abs())[1],
        lambda: [(base := torch.view_as_complex(plain(4, 2)))[1:].conj(), base[:-1], leaf(3)],
    ),
    "one tensor given twice": (
        lambda x, y, w: (x.mul_(w), y * w),
        lambda: [(x := inside(3)), x, leaf(3)],
    ),
}


@WAYS
@pytest.mark.parametrize("name", SHARED)
def test_inputs_that_share_memory_and_are_written_to(name: str, compile: Any) -> None:
    check(*SHARED[name], compile)


@WAYS
def test_how_histories_are_shared_may_change_from_call_to_call(compile: Any) -> None:
    """The memory is the same each time; what a write does to the gradients is not."""

    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
        x.mul_(w)
        return x.sin() + y * w

    def views() -> list[torch.Tensor]:
        return overlapping(inside(4))

    def apart() -> list[torch.Tensor]:
        x, y, w = views()
        return [x, y.detach(), w]

    ours = compile(program)
    for make in (views, apart, views):
        check(program, make, lambda _: ours)


WRITES: dict[str, Case] = {
    "a view of an input": (lambda y, w: (y[0].mul_(w), y.sin()), lambda: [inside(2, 3), leaf(3)]),
    "an input that is a view": (lambda y, w: y.mul_(w), lambda: [inside(2, 3)[0], leaf(3)]),
    "a view of a view": (
        lambda y, w: (y.t()[1:].select(0, 0).mul_(w[:2]), y[:, 0].add_(1)),
        lambda: [inside(2, 3), leaf(3)],
    ),
    "an input, of which views are returned": (
        lambda y, w: (y.mul_(w), y[0], y.t()),
        lambda: [inside(2, 3), leaf(3)],
    ),
    "a view without gradients": (
        lambda y, w: (scale_untracked(y[0]), y * w),
        lambda: [inside(2, 3), leaf(3)],
    ),
    "a detached input": (lambda y, w: (y.detach().mul_(2), y * w), lambda: [inside(3), leaf(3)]),
    "a buffer, tracked and untracked": (
        lambda y, w: (y.mul_(w), y.add_(1), scale_untracked(y), y * w),
        lambda: [plain(3), leaf(3)],
    ),
    "a copy": (lambda y, w: (y.copy_(w), w * 2), lambda: [plain(3), leaf(3)]),
    "another type": (lambda y, w: (y.add_(w), w * 2), lambda: [plain(3).float(), leaf(3)]),
    "zeros": (lambda y, w: (y.zero_(), y + w), lambda: [inside(3), leaf(3)]),
    "items": (
        lambda y, w: set_item(y, (slice(None), 1), w[:2]) * 2,
        lambda: [inside(2, 3), leaf(3)],
    ),
    "items under a mask": (
        lambda y, w: set_item(y, y > 0, 0.0) * w,
        lambda: [inside(2, 3), leaf(3)],
    ),
    "rows by number": (
        lambda y, w: (y.index_put_((torch.tensor([1, 1]),), w, accumulate=True), y * 2),
        lambda: [inside(2, 3), leaf(3)],
    ),
    "nothing is returned": (lambda y, w: (y.mul_(w), None)[1], lambda: [inside(3), leaf(3)]),
    "an input without elements": (lambda y, w: (y.mul_(2), w * 2), lambda: [inside(0, 3), leaf(3)]),
}


@WAYS
@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, compile: Any) -> None:
    check(*WRITES[name], compile)


def doubled(results: Callable[[torch.Tensor], Any]) -> Program:
    return lambda x: results(x * 2)


RESULTS: dict[str, Program] = {
    "views of an input": lambda x: (x[0], x.t(), x.detach()[1], x.view(6), x.expand(2, 2, 3)),
    "an input, whole, as another tensor": lambda x: (x.view(2, 3), x, x.detach(), x.contiguous()),
    "a view of an input, twice": lambda x: (x[0], x[0], (part := x[1]), part, x),
    "all rows of an input": lambda x: x.unbind(0),
    "views of a value": doubled(lambda y: (y[0], y[1], y.t(), y.detach())),
    "parts of a value that is not returned": doubled(lambda y: (y[0], y[1])),
    "one part of a value": doubled(lambda y: (y[1], y.sum())),
    "a value, twice": doubled(lambda y: (y, y)),
    "a value and the whole of it": doubled(lambda y: (y.view(2, 3), y, y.view(2, 3))),
    "a value and it, detached": doubled(lambda y: (y, (same := y.detach()), same, y.detach())),
    "chunks": doubled(lambda y: y.chunk(3, -1)),
    "pieces": doubled(lambda y: list(y.split(2, -1))),
    "memory read otherwise": lambda x: x.as_strided((2, 2), (1, 1)),
    "reshaped": lambda x: (x.reshape(6), x.t().reshape(6), (x * 2).reshape(6)),
    "integers and truth values": lambda x: (x.argsort(), x.topk(2), x > 0, x.long()),
    "no gradient at all": lambda x: (torch.zeros(3), x.argmax(), x * 2),
}


@WAYS
@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, compile: Any) -> None:
    check(RESULTS[name], lambda: [leaf(2, 3)], compile)


@WAYS
@pytest.mark.parametrize("program", [RESULTS["views of a value"], RESULTS["one part of a value"]])
def test_results_may_be_written_to(program: Program, compile: Any) -> None:
    def use(compute: Program) -> list[Any]:
        x = leaf(2, 3)
        results = compute(x)
        results[0].mul_(3)
        sum(one.sum() for one in results if one.requires_grad).backward()
        return [*results, x.grad]

    torch.testing.assert_close(use(compile(program)), use(program))


def test_symbolic_sizes_become_constants_where_memory_is_shared() -> None:
    program = SHARED["views of a tensor with a history"][0]
    ours = fusewright.compile(program, dynamic=True, options={"strict": True, "verify": True})
    for size in (4, 7, 4):

        def make(size: int = size) -> list[torch.Tensor]:
            base = inside(size + 1)
            return [base[1:], base[:-1], leaf(size)]

        check(program, make, lambda _: ours)
    assert len(fusewright.compilations(ours)) == 2


def test_writing_to_a_view_of_a_parameter_is_refused_as_in_eager() -> None:
    parameter = leaf(4)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        compiled(lambda x, w: x.mul_(w))(parameter[1:], leaf(3))


@WAYS
@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (lambda x, y: x.view(6) + y, [(2, 3), (6,)]),
        (lambda x, y: (x.view(6) + y) * 2, [(2, 3), (6,)]),
        (lambda x, y: (x + y) * 2, [(2, 3), (2, 3)]),
        (lambda x, y: (x.expand(2, 3) + y).exp(), [(1, 3), (2, 3)]),
        (lambda x, y: torch.cat([x, y]) * 2, [(2, 3), (1, 3)]),
    ],
)
def test_gradients_have_no_element_in_common(program: Program, sizes: Any, compile: Any) -> None:
    """Scaling one, as clipping does, must not scale another."""
    x, y = (leaf(*size) for size in sizes)
    compile(program)(x, y).sum().backward()
    before = y.grad.clone()  # type: ignore[union-attr]
    x.grad.mul_(2)  # type: ignore[union-attr]
    assert torch.equal(y.grad, before)  # type: ignore[arg-type]


def test_histories_and_sizes_may_change_at_once() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, rows: torch.Tensor) -> Any:
        return x.mul_(w), y * w, rows.sin() * rows.shape[0]

    ours = captured(program)
    for size in (4, 7, 5):
        for is_view in (True, False):

            def make(size: int = size, is_view: bool = is_view) -> list[torch.Tensor]:
                x, y, w = overlapping(inside(4))
                return [x, y if is_view else y.detach(), w, leaf(size, 3)]

            check(program, make, lambda _: ours)


@WAYS
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("make", [leaf, inside])
def test_views_made_without_gradients(compile: Any, make: Any, enabled: bool) -> None:
    """Eager's require grad, as what they show does, and are leaves all the same."""

    def program(x: torch.Tensor) -> Any:
        with torch.no_grad():
            whole, (first, second) = x.view(-1), x.chunk(2, -1)
        return whole, first, second + 1, x * 2

    x = make(2, 4)
    with torch.set_grad_enabled(enabled):
        expected, found = program(x), compile(program)(x)
    for one, like in zip(found, expected, strict=True):
        torch.testing.assert_close(one, like)
        assert (one.requires_grad, one.is_leaf) == (like.requires_grad, like.is_leaf)
        shares = one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert shares == (like.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())


@WAYS
@pytest.mark.parametrize("make", [leaf, inside])
def test_views_made_where_the_program_turned_gradients_on(compile: Any, make: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.enable_grad():
            whole = x.view(-1)
        return whole, x.t()

    x = make(2, 4)
    with torch.no_grad():
        expected, found = program(x), compile(program)(x)
    for one, like in zip(found, expected, strict=True):
        assert (one.requires_grad, one.is_leaf) == (like.requires_grad, like.is_leaf)
    (of_eager,) = torch.autograd.grad(expected[0].sum(), [x])
    (of_compiled,) = torch.autograd.grad(found[0].sum(), [x])
    torch.testing.assert_close(of_compiled, of_eager)


EXPANDED: dict[str, Program] = {
    "itself, as a view": lambda x: x.expand(x.shape[0], 4),
    "rows": lambda x: x[1:],
    "more dimensions": lambda x: x.expand(2, *x.shape)[:, 1],
    "several": lambda x: (x[1:3, ::2], x.t(), x * 2),
    "detached": lambda x: (x[1:].detach(), x.t()),
    "in the program": lambda x: (lambda y: (y, y[1:], y.sum(0)))((x[:, :1] * 2).expand(6, 3)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("name", EXPANDED)
def test_a_view_of_an_expanded_tensor(name: str, inner: bool, dynamic: bool) -> None:
    """Each element has a gradient of its own, though it is in memory once for several."""

    def make() -> list[torch.Tensor]:
        if inner:
            return [inside(6, 1).expand(6, 4)]
        return [plain(1, 4).expand(6, 4).requires_grad_()]

    def compile(program: Program) -> Program:
        return fusewright.compile(  # type: ignore[no-any-return]
            program, fullgraph=True, dynamic=dynamic, options={"strict": True, "verify": True}
        )

    check(EXPANDED[name], make, compile)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_moves_its_statistics_unnoticed(dtype: torch.dtype) -> None:
    """A discriminator sees two batches before one backward: what batch norm writes to its running
    statistics does not count as a write, as in eager.
    """
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).to(dtype)
    eager = copy.deepcopy(module)
    compiled = fusewright.compile(module, fullgraph=True, options={"strict": True})
    batches = [torch.randn(6, 4, dtype=dtype) for _ in range(3)]
    for program in (compiled, eager):
        sum(program(batch).square().sum() for batch in batches).backward()
    for one, other in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    norm, its = module[1], eager[1]
    torch.testing.assert_close(norm.running_mean, its.running_mean)
    torch.testing.assert_close(norm.running_var, its.running_var)
    before = norm.running_mean._version
    scaled = norm.running_mean * torch.ones(4, dtype=dtype, requires_grad=True)
    compiled(batches[0])
    scaled.sum().backward()  # for which the running mean is saved
    assert norm.running_mean._version == before
    norm.running_mean.zero_()
    assert norm.running_mean._version == before + 1
