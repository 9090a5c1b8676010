"""Sizes and integers that vary: how often programs are compiled for them, and that all agree with
eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fusewright
from fusewright.api import compilations
from fusewright.errors import MarkedDimension, Unsupported

WEIGHT = torch.randn(32, 32)
IMAGE_WEIGHT = torch.randn(8, 3, 3, 3)
LENGTHS = (4, 6, 8, 5, 7, 9)


def rows(*lengths: int) -> list[tuple[Tensor]]:
    return [(torch.randn(length, 3),) for length in lengths]


def attention(x: Tensor, weight: Tensor) -> Tensor:
    batch, length, hidden = x.shape
    heads = (x @ weight).view(batch, length, 4, hidden // 4).transpose(1, 2)
    mask = torch.full((length, length), float("-inf")).triu(1)
    scores = torch.softmax(heads @ heads.transpose(-1, -2) / (hidden // 4) ** 0.5 + mask, -1)
    return (scores @ heads).transpose(1, 2).reshape(batch, length, hidden)


def first_rows(x: Tensor, count: int) -> Tensor:
    return x[:count] * count + torch.arange(count).unsqueeze(1)


def branches(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 10 else x - 1


def slices_of_a_slice(x: Tensor) -> tuple[Tensor, ...]:
    shorter = x[1:]
    return shorter[:, :2] + 1, shorter[:], shorter[None, :-1, 1:], torch.cat([x, x])[:, 1]


def rows_left(x: Tensor) -> tuple[Tensor, ...]:
    rest = torch.arange(x.shape[0])[1:]
    return x[rest][:, :2] + 1, x[:, rest - rest], x[rest[:, None], rest]


def halves(x: Tensor) -> Tensor:
    return x.view(2, -1).sum(0) if x.shape[0] % 2 == 0 else x.sum(0)


def interrupted(x: Tensor) -> tuple[Tensor, int]:
    y, length = x * 2, x.shape[0] + 1
    fusewright.graph_break()
    return y + length, length


def numbers(x: Tensor) -> tuple[Any, ...]:
    count = x.shape[0]
    return x / count, x / count**0.5, count / 2, count * 3 - 1, len(x), x.numel(), divmod(count, 3)


def slices(x: Tensor) -> tuple[Tensor, ...]:
    middle = x.shape[0] // 2
    return x[1:], x[:-1], x[-1], x[::2], x[middle:], x.flip(0), torch.cat([x, x[1:]])


def unrolled(x: Tensor, count: int) -> Tensor:
    for step in range(count):
        x = x + step
    return x


def repeated(x: Tensor) -> Tensor:
    return x + torch.tensor([[1.5]] * x.shape[0])


def powers(x: Tensor, number: float) -> Tensor:
    return x * number**2 + 2**number


def image(x: Tensor) -> Tensor:
    y = F.max_pool2d(F.relu(F.conv2d(x, IMAGE_WEIGHT, padding=1)), 2)
    return F.adaptive_avg_pool2d(y, 1).flatten(1)


def containers(x: Tensor) -> dict[str, Any]:
    sizes = [x.shape[0], x.shape[0] * 2]
    return {"sizes": sizes, "most": max(sizes), "sum": sum(sizes), "shape": x.shape}


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], int]] = {
    "attention": (
        attention,
        [(torch.randn(b, s, 32), WEIGHT) for b, s in [(2, 5), (3, 7), (4, 9), (2, 16), (5, 5)]],
        2,
    ),
    "an integer": (first_rows, [(torch.randn(20, 3), count) for count in (5, 6, 7, 8, 11)], 2),
    "a branch on a size": (branches, rows(4, 5, 6, 12, 13, 20, 3), 3),
    "divisibility": (halves, rows(4, 6, 8, 5, 7, 9), 3),
    "numbers": (numbers, rows(*LENGTHS), 2),
    "slices": (slices, rows(*LENGTHS), 2),
    "a loop over a constant": (unrolled, [(x, 3) for (x,) in rows(*LENGTHS)], 2),
    "a list as long as a size": (repeated, rows(4, 6, 8), 3),
    "powers": (powers, [(torch.ones(3), number) for number in (1.5, 2.5, 3.5, -1.2)], 3),
    "images": (image, [(torch.randn(b, 3, 8, 8),) for b in (2, 3, 4, 5)], 2),
    "image sizes": (image, [(torch.randn(2, 3, s, s),) for s in (8, 10, 12, 16)], 2),
    "containers": (containers, rows(*LENGTHS), 2),
    "numbers as large as tensors": (
        lambda x: x + torch.tensor(1.5).expand(x.shape) + x.nbytes,
        rows(*LENGTHS),
        2,
    ),
    "covariances": (
        lambda x: (torch.cov(x.T), x.T.corrcoef(), x[:, 0].cov(correction=2)),
        rows(*LENGTHS),
        2,
    ),
    "two inputs": (add, [(torch.randn(n, 3), torch.randn(n, 3)) for n in (4, 5, 6, 12)], 2),
    "a batch of one too": (numbers, rows(4, 6, 1, 9, 1, 12), 3),
    "a batch of one first": (slices, rows(2, 6, 9, 12), 2),
    "broadcasting": (
        add,
        [
            (torch.randn(a, 3), torch.randn(b, 3))
            for a, b in [(4, 4), (5, 5), (1, 6), (6, 1), (9, 9)]
        ],
        4,
    ),
    "a strided input": (add, [(torch.randn(3, n).t(), torch.randn(n, 3)) for n in (4, 6, 8)], 2),
    "slices of a slice": (slices_of_a_slice, [(torch.randn(n, 3),) for n in (5, 7, 8, 9)], 2),
    "rows, of which none are left": (
        rows_left,
        [(torch.randn(n, 9),) for n in (5, 7, 8, 2, 1)],
        4,
    ),
    "a varying stride": (
        slices,
        [(torch.randn(n, k)[:, :3],) for n, k in [(4, 5), (6, 7), (8, 9), (5, 11)]],
        2,
    ),
}


def run(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], **options: Any) -> int:
    """How often a program is compiled for these calls, which must agree with eager."""
    compiled = fusewright.compile(function, backend="eager", fullgraph=True, **options)
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    return len(compilations(compiled))


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_vary_compile_once_more(name: str) -> None:
    function, calls, most = PROGRAMS[name]
    assert run(function, calls) <= most


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_for_sizes_that_vary(name: str) -> None:
    function, calls, most = PROGRAMS[name]
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    for arguments in calls:
        found, expected = compiled(*arguments), function(*arguments)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) <= most


@pytest.mark.parametrize("name", ["attention", "numbers", "slices", "containers", "two inputs"])
def test_dynamic_from_the_start(name: str) -> None:
    function, calls, _ = PROGRAMS[name]
    assert run(function, calls, dynamic=True) == 1


def test_never_dynamic() -> None:
    assert run(slices, rows(4, 6, 8, 4, 6), dynamic=False) == 3


def test_loops_over_a_size_are_compiled_for_each() -> None:
    assert run(unrolled, [(torch.ones(2), count) for count in (3, 4, 5, 6)]) == 4


def test_a_graph_break_hands_sizes_on() -> None:
    compiled = fusewright.compile(interrupted, backend="eager")
    for (x,) in rows(*LENGTHS):
        torch.testing.assert_close(compiled(x), interrupted(x))
    assert len(compilations(compiled)) <= 4  # each part for one length, then for all


def test_parameters_keep_their_sizes() -> None:
    layer = nn.Linear(4, 4)
    compiled = fusewright.compile(layer, backend="eager", dynamic=True, fullgraph=True)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), layer(x))
    table = compilations(compiled)[0].guards.table()
    assert "weight.size" not in table and "args[0].size(0) >= 2" in table


def test_integers_of_objects_vary_too() -> None:
    class Counter:
        count = 0

    counter = Counter()

    def step(x: Tensor) -> Tensor:
        counter.count += 1
        return x * counter.count

    compiled = fusewright.compile(step, backend="eager", fullgraph=True)
    x = torch.ones(3)
    for expected in range(1, 12):
        assert compiled(x)[0] == expected == counter.count
    assert len(compilations(compiled)) <= 4  # for 0, 1, 2 and any


def test_a_place_that_holds_numbers_and_tensors_by_turns() -> None:
    """What varies is known of numbers, and of tensors of each rank, apart."""

    def program(x: Tensor, t: Any) -> Tensor:
        return x * t.sum() if isinstance(t, Tensor) else x * t

    compiled = fusewright.compile(program, backend="eager", fullgraph=True)
    for n in (4, 5, 6, 9):
        for t in (n, torch.randn(n), torch.randn(n, n), n + 7, torch.randn(n + 3)):
            x = torch.randn(n)
            torch.testing.assert_close(compiled(x, t), program(x, t))
    assert len(compilations(compiled)) <= 8


def test_a_growing_cache_is_compiled_a_bounded_number_of_times() -> None:
    """Once without a cache, once for its first length, once where lengths are 1, once for any."""

    class Cache:
        keys: Tensor | None = None

        def update(self, keys: Tensor) -> Tensor:
            self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 1)
            return self.keys

    def decode(cache: Cache, x: Tensor) -> Tensor:
        keys = cache.update(x @ WEIGHT)
        return torch.softmax(x @ keys.transpose(1, 2), -1) @ keys

    compiled = fusewright.compile(decode, backend="eager", fullgraph=True)
    cache, expected = Cache(), Cache()
    for _ in range(20):
        x = torch.randn(2, 1, 32)
        torch.testing.assert_close(compiled(cache, x), decode(expected, x))
    assert len(compilations(compiled)) <= 4


def test_marked_dimensions() -> None:
    compiled = fusewright.compile(slices, backend="eager", fullgraph=True)
    for length in (4, 7, 30):
        x = torch.randn(length, 3)
        fusewright.mark_dynamic(x, 0, min=2, max=64)
        torch.testing.assert_close(compiled(x), slices(x))
    assert len(compilations(compiled)) == 1
    assert "64 >= x.size(0)" in compilations(compiled)[0].guards.table()
    with pytest.raises(ValueError, match="dimension 0 has size 3, which is not at least 4"):
        fusewright.mark_dynamic(torch.randn(3), 0, min=4)
    with pytest.raises(ValueError, match="size 3, which is not between 0 and 2"):
        fusewright.mark_dynamic(torch.randn(3), 0, max=2)
    with pytest.raises(ValueError, match="no size is between min=9 and max=4"):
        fusewright.mark_dynamic(torch.randn(3), 0, min=9, max=4)
    with pytest.raises(TypeError, match="of a tensor, not of 3"):
        fusewright.mark_dynamic(3, 0)


def test_a_marked_dimension_that_must_be_constant_is_an_error() -> None:
    def program(x: Tensor) -> Tensor:
        return x.view(4, 3) if x.shape[0] == 4 else x

    x = torch.randn(4, 3)
    fusewright.mark_dynamic(x, 0)
    with pytest.raises(MarkedDimension, match=r"x\.size\(0\).*has to be 4.*test_dynamic_shapes"):
        fusewright.compile(program, backend="eager", fullgraph=True)(x)


def test_a_failing_relation_is_told_in_words() -> None:
    compiled = fusewright.compile(branches, backend="eager", fullgraph=True)
    for (x,) in rows(4, 5, 12):
        compiled(x)
    text = str(fusewright.explain(compiled).history)
    assert "x.size(0)" in text and "12" in text


def last_position(x: Tensor) -> Tensor:
    return x * torch.arange(x.shape[0]).max().item()


def test_values_that_depend_on_sizes_stay_in_graphs_that_must_be_whole() -> None:
    assert run(last_position, rows(4, 6, 9, 4), dynamic=True) == 1
    x = torch.randn(4, 3)
    fusewright.mark_dynamic(x, 0)
    assert run(last_position, [(x,), *rows(6, 9)]) == 1


def test_values_that_depend_on_sizes_are_known_where_none_may_stay() -> None:
    options = {"capture_scalar_outputs": False}
    assert run(last_position, rows(4, 6, 9, 4), dynamic=True, options=options) == 3
    x = torch.randn(4, 3)
    fusewright.mark_dynamic(x, 0)
    with pytest.raises(Unsupported, match="item"):
        run(last_position, [(x,)], options=options)


def test_values_that_depend_on_sizes_break_graphs_that_may_break() -> None:
    compiled = fusewright.compile(last_position, backend="eager", dynamic=True)
    for (x,) in rows(4, 6, 9):
        torch.testing.assert_close(compiled(x), last_position(x))
    assert len(compilations(compiled)) == 2


def test_values_that_depend_on_sizes_which_turned_out_to_be_constant() -> None:
    """As decoders ask whether a mask is the causal one of their length."""

    def program(x: Tensor) -> Tensor:
        mask, causal = torch.ones(4, 4).triu(1), torch.ones(x.shape[0], x.shape[0]).triu(1)
        return x + 1 if mask.shape == causal.shape and bool((mask == causal).all()) else x - 1

    compiled = fusewright.compile(program, backend="eager", dynamic=True)
    for (x,) in rows(4, 6, 9):
        torch.testing.assert_close(compiled(x), program(x))
    assert len(compilations(compiled)) == 2 and not fusewright.explain(compiled).history.breaks


@pytest.mark.dynamic(None)
def test_sizes_of_two_tensors_compared_as_tuples() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if x.size() != (y.shape[0], 3) or [*x.shape] == [*y.shape]:
            return x + 1
        return x.sum() + y

    cases = [(torch.randn(n, 3), torch.randn(n, 4)) for n in (4, 5, 6, 9)]
    assert run(program, cases) == 2
    other = [(torch.randn(n, 3), torch.randn(n + 1, 4)) for n in (4, 5, 6, 9)]
    assert run(program, cases + other) == 3


PARTS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...], int]] = {
    "two chunks": (lambda x: [part * 2 for part in x.chunk(2)], (12, 9, 10, 11, 6, 7, 23), 2),
    "three chunks": (lambda x: [part * 2 for part in x.chunk(3)], (12, 9, 10, 11, 15, 17, 23), 2),
    "a chunk of one row": (lambda x: x.chunk(3)[-1] * 2, (12, 9, 7, 10), 3),
    "parts of four rows": (lambda x: [part + 1 for part in x.split(4)], (12, 10, 11, 15, 14), 3),
    "two halves": (
        lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2])[1] + 1,
        (12, 9, 10, 7),
        2,
    ),
    "at a place": (lambda x: [y + 1 for y in x.tensor_split((2, 5))], (12, 9, 10, 7), 2),
    "as many as columns": (lambda x: [y + 1 for y in x.unbind(1)], (12, 9, 10, 7), 2),
    "by remainder": (lambda x: [y + 1 for y in x.tensor_split(3)], (12, 9, 15, 10, 11, 13, 17), 4),
}


@pytest.mark.dynamic(None)
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_are_guarded_as_weakly_as_their_number_allows(name: str, backend: str) -> None:
    function, lengths, most = PARTS[name]
    compiled = fusewright.compile(
        function, backend=backend, fullgraph=True, options={"strict": True}
    )
    for length in lengths:
        x = torch.randn(length, 4)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(compilations(compiled)) == most


WINDOWS: dict[str, Callable[[Tensor], Any]] = {
    "pooling in one dimension": nn.MaxPool1d(3, 2, padding=1),
    "and the places": lambda x: F.max_pool1d(x, 2, return_indices=True),
    "a half more": lambda x: F.interpolate(x, scale_factor=1.5, mode="linear"),
    "a quarter": lambda x: F.interpolate(x, scale_factor=0.25),
    "twice a size": lambda x: F.interpolate(x, size=x.shape[-1] * 2),
    "rounded sizes": lambda x: x[..., : int(x.shape[-1] * 0.75)] + math.ceil(x.shape[0] * 1.25),
}


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_what_varies(name: str, backend: str) -> None:
    compiled = fusewright.compile(
        WINDOWS[name], backend=backend, dynamic=True, fullgraph=True, options={"strict": True}
    )
    for rows, columns in ((3, 8), (4, 13), (9, 21), (5, 10)):
        x = torch.randn(rows, 4, columns)
        found, expected = compiled(x), WINDOWS[name](x)
        # Eager's own places between elements are float32: 9e-6 from those of float64.
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert len(compilations(compiled)) == 1


MISFITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a slice": lambda x, y: x.slice_scatter(y, 0, 1),
    "a row": lambda x, y: x.select_scatter(y[:, 0], 1, 0),
    "a diagonal": lambda x, y: torch.ones(20, x.shape[0]).diagonal_scatter(y[:, 0]),
    "sums of rows": lambda x, y: x.index_add(0, torch.arange(x.shape[0]), y),
    "rows": lambda x, y: x.clone().index_put_((torch.arange(x.shape[0]),), y),
    "columns": lambda x, y: x.index_copy(1, torch.arange(3), y),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MISFITS)
def test_sizes_that_do_not_fit_raise_as_in_eager(name: str, dynamic: bool) -> None:
    function, less = MISFITS[name], 1 if name == "a slice" else 0
    compiled = fusewright.compile(function, dynamic=dynamic)
    for rows in (5, 7):
        x, y = torch.randn(rows, 3), torch.randn(rows - less, 3)
        torch.testing.assert_close(compiled(x, y), function(x, y))
    x, y = torch.randn(9, 3), torch.randn(6, 3)
    with pytest.raises((RuntimeError, IndexError)):
        function(x, y)
    with pytest.raises((RuntimeError, IndexError)):
        compiled(x, y)


def test_the_order_of_products_guards_no_size() -> None:
    """Where opt_einsum is installed torch asks it for the order, by the sizes."""

    class Installed:
        @staticmethod
        def contract_path(equation: str, *operands: Any, **options: Any) -> Any:
            shapes = [getattr(operand, "shape", operand) for operand in operands]
            assert all(type(size) is int for shape in shapes for size in shape)
            return [(1, 2), (0, 1)], "described"

    def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bld,de,bme->blm", x, w, x)

    compiled = fusewright.compile(products, dynamic=True, options={"strict": True}, fullgraph=True)
    weight = torch.randn(4, 4)
    module = torch.backends.opt_einsum.get_opt_einsum.__globals__
    as_installed = {"get_opt_einsum": lambda: Installed, "is_available": lambda: True}
    with mock.patch.dict(module, as_installed | {"enabled": True, "strategy": "auto"}):
        for count, length in ((2, 3), (5, 7), (9, 4)):
            x = torch.randn(count, length, 4)
            torch.testing.assert_close(compiled(x, weight), products(x, weight))
    assert len(compilations(compiled)) == 1


@pytest.mark.timeout(60)
def test_a_break_with_a_stride_of_a_marked_size_is_told() -> None:
    """Capture began again for ever, to give up a stride that follows from what is marked."""

    def program(x: Tensor) -> Tensor:
        print(x + 1)
        return x

    x = torch.randn(4, 5)
    fusewright.mark_dynamic(x, 1)
    with pytest.raises(Unsupported, match="print"):
        fusewright.compile(program, backend="eager", fullgraph=True)(x)
