"""Sizes and integers that depend on the values of tensors, kept in the graph under an option."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.api import compilations
from fusewright.errors import Unsupported

OPTIONS = {"capture_data_dependent_sizes": True}


def first_rows(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
    number = count.item()
    torch._check(number >= 2)
    torch._check(number <= x.shape[0])
    return x[:number] * number, number + 1


def with_new_sizes(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.new_ones(y.shape, dtype=torch.float32) * y.numel()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero, used": lambda x: (x.nonzero().float() + 1).sum(0),
    "mask": lambda x: x[x > 0] * 2,
    "size of a mask": lambda x: x[x > 0].shape[0] + 1,
    "rows": lambda x: x[x[:, 0] > 0] @ x.t(),
    "masked_select": lambda x: torch.masked_select(x, x > 0).sum(),
    "item": lambda x: torch.zeros(x.argmax().item() + 2),
    "number": lambda x: {"most": x.argmax().item() * 2},
    "unique": lambda x: torch.unique(x.round()),
    "unique rows": lambda x: torch.unique(x.sign(), dim=0, return_counts=True),
    "unique columns": lambda x: torch.unique(x.sign().view(2, 2, 3), dim=-1),
    "runs": lambda x: torch.unique_consecutive(x.sign(), return_inverse=True),
    "runs of rows": lambda x: torch.unique_consecutive(x.sign(), return_counts=True, dim=0),
    "where": lambda x: torch.where(x > 0),
    "transposed in place": lambda x: with_new_sizes(x.nonzero().t_()),
    "unsqueezed in place": lambda x: with_new_sizes(torch.unique(x).unsqueeze_(0)),
    "squeezed in place": lambda x: with_new_sizes(x[x > 0][None].squeeze_(0)),
    "into new memory": lambda x: torch.cat([x[x > 0]] * 2, out=torch.empty(0)) + 1,
    "repeat": lambda x: torch.repeat_interleave(x, (x[:, 0] > 0) + 1, 0),
}


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_is_one_graph_for_all_data(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    options = OPTIONS | ({"strict": True} if backend == "fusewright" else {})
    compiled = fusewright.compile(program, backend=backend, fullgraph=True, options=options)
    for seed in range(4):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x), program(x))
    x = torch.full((4, 3), -1.0)  # of which nothing is chosen
    torch.testing.assert_close(compiled(x), program(x))
    assert len(compilations(compiled)) == 1


def test_a_size_that_varies_is_required_of_what_is_found() -> None:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].reshape(-1, 2) + x

    compiled = fusewright.compile(
        program, fullgraph=True, dynamic=True, options=OPTIONS | {"strict": True}
    )
    for rows in (4, 7):
        x = torch.rand(rows, 2) + 0.1
        torch.testing.assert_close(compiled(x), program(x))
    assert len(compilations(compiled)) == 1


def first_of_found(x: Tensor) -> Tensor:
    x.nonzero()[0].add_(1)
    return x + 1


def row_of_found(x: Tensor) -> Tensor:
    x[x > 0].view(3)
    return x + 1


def number_that_is_promised(x: Tensor) -> Tensor:
    number = (x > 0).sum()
    count = number.item()
    number.add_(1)
    torch._check(count == 3)
    return torch.zeros(count) + x[:1]


@pytest.mark.parametrize("program", [first_of_found, row_of_found, number_that_is_promised])
@pytest.mark.parametrize("length", [1, 3])
def test_what_is_required_of_data_is_checked_though_nobody_reads_it(
    program: Callable[[Tensor], Tensor], length: int
) -> None:
    compiled = fusewright.compile(program, options=OPTIONS)
    for x in (torch.ones(length), torch.zeros(length)):
        try:
            expected = program(x)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)


def test_integers_and_sizes_are_options_of_their_own() -> None:
    x = torch.randn(4, 3)
    wanted = {"capture_scalar_outputs": "item", "capture_dynamic_output_shape_ops": "mask"}
    for option, name in wanted.items():
        for each in wanted.values():
            options = {other: other == option for other in wanted}
            compiled = fusewright.compile(
                PROGRAMS[each], backend="eager", fullgraph=True, options=options
            )
            if each == name:
                torch.testing.assert_close(compiled(x), PROGRAMS[each](x))
            else:
                with pytest.raises(Unsupported, match=r"data|value"):
                    compiled(x)


def test_facts_that_the_program_promises() -> None:
    compiled = fusewright.compile(first_rows, backend="eager", fullgraph=True, options=OPTIONS)
    x = torch.randn(6, 3)
    for number in (2, 4, 6, 3):
        count = torch.tensor(number)
        torch.testing.assert_close(compiled(x, count), first_rows(x, count))
    assert len(compilations(compiled)) == 1


def by_group(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    """A product with a matrix for each group of rows."""
    sizes = torch.nn.functional.one_hot(groups, 3).sum(0).tolist()
    parts = x.split(sizes)
    products = [part @ weight[group] for group, part in enumerate(parts)]
    return torch.cat(products) + x


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_parts_of_sizes_that_depend_on_data(backend: str) -> None:
    options = OPTIONS | ({"strict": True} if backend == "fusewright" else {})
    compiled = fusewright.compile(by_group, backend=backend, fullgraph=True, options=options)
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(3, 4, 4, requires_grad=True)
    for groups in ([0, 1, 2, 2, 0, 0], [1] * 6, [0, 2, 2, 2, 0, 0]):
        inputs = x, weight, torch.tensor(groups)
        expected, found = by_group(*inputs), compiled(*inputs)
        torch.testing.assert_close(found, expected)
        of_eager = torch.autograd.grad(expected.square().sum(), (x, weight))
        of_compiled = torch.autograd.grad(found.square().sum(), (x, weight))
        torch.testing.assert_close(of_compiled, of_eager)
    assert len(compilations(compiled)) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_that_are_not_all_raise_as_in_eager(dynamic: bool) -> None:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        first, second = x.split(sizes.tolist())
        return first.sum() - second.sum()

    compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=OPTIONS)
    x = torch.randn(5, 2)
    for sizes in ([2, 3], [5, 0], [0, 5]):
        torch.testing.assert_close(
            compiled(x, torch.tensor(sizes)), program(x, torch.tensor(sizes))
        )
    for wrong in ([2, 2], [3, 3], [-1, 6]):
        with pytest.raises(RuntimeError, match="split_with_sizes"):
            program(x, torch.tensor(wrong))
        with pytest.raises(RuntimeError, match="split_with_sizes"):
            compiled(x, torch.tensor(wrong))
    assert len(compilations(compiled)) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_list_of_lists_of_numbers(dynamic: bool) -> None:
    def program(x: Tensor) -> Any:
        (a, b), (c, _) = x.tolist()
        return x * a + c, [a + b, c]

    compiled = fusewright.compile(
        program, backend="eager", dynamic=dynamic, fullgraph=True, options=OPTIONS
    )
    for numbers in ([[1, 2], [3, 4]], [[-5, 0], [1, 1]]):
        x = torch.tensor(numbers)
        found, expected = compiled(x), program(x)
        torch.testing.assert_close(found, expected)
    assert len(compilations(compiled)) == 1


def test_a_branch_on_such_a_number_breaks_the_graph() -> None:
    def program(x: Tensor) -> Tensor:
        return x + 1 if x.nonzero().shape[0] > 3 else x - 1

    with pytest.raises(Unsupported, match="decides what runs next"):
        fusewright.compile(program, backend="eager", fullgraph=True, options=OPTIONS)(torch.eye(3))
    compiled = fusewright.compile(program, backend="eager", options=OPTIONS)
    for x in (torch.eye(3), torch.eye(5)):
        torch.testing.assert_close(compiled(x), program(x))


def test_sizes_of_data_are_in_the_graph_where_that_is_not_turned_off() -> None:
    x = torch.eye(3)
    found = fusewright.compile(PROGRAMS["nonzero"], backend="eager", fullgraph=True)(x)
    assert torch.equal(found, x.nonzero())
    off = {"capture_dynamic_output_shape_ops": False}
    with pytest.raises(Unsupported, match="without its data"):
        fusewright.compile(PROGRAMS["nonzero"], backend="eager", fullgraph=True, options=off)(x)


def test_integers_are_in_a_graph_that_may_not_break_where_that_is_not_turned_off() -> None:
    x, program = torch.eye(3), PROGRAMS["number"]
    found = fusewright.compile(program, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, program(x))
    torch.testing.assert_close(fusewright.export(program)(x)(x), program(x))
    off = {"capture_scalar_outputs": False}
    with pytest.raises(Unsupported, match="capture_scalar_outputs"):
        fusewright.compile(program, backend="eager", fullgraph=True, options=off)(x)
    compiled = fusewright.compile(program, backend="eager")
    torch.testing.assert_close(compiled(x), program(x))
    assert len(compilations(compiled)) > 1


SPLITS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a tensor": torch.tensor_split,
    "numbers": lambda x, places: x.tensor_split(tuple(places.tolist())),
    "the last dimension": lambda x, places: torch.tensor_split(x.T, places, dim=-1),
    "sums": lambda x, places: [part.sum(0) for part in x.tensor_split(places, 0)],
}


@pytest.mark.parametrize("name", SPLITS)
def test_parts_between_places_of_a_tensor(name: str) -> None:
    """Places that do not go up, or count from the end, are for eager."""
    program = SPLITS[name]
    compiled = fusewright.compile(program, fullgraph=True)
    x = torch.randn(10, 3)
    for places in ([2, 5], [0, 0], [4, 10], [5, 2], [-3, 8], [4, 40]):
        inputs = x, torch.tensor(places)
        torch.testing.assert_close(compiled(*inputs), program(*inputs))
    assert len(compilations(compiled)) == 1


def test_a_number_that_a_call_reads_on_its_way_is_refused_by_name() -> None:
    """No node of the graph tells it: where the part begins is an offset in memory."""

    def program(x: Tensor, start: Tensor) -> Tensor:
        return torch.narrow(x, 0, start, 3) * 2

    inputs = torch.randn(10, 3), torch.tensor(4)
    with pytest.raises(Unsupported, match="narrow` cannot be run without its data: it reads a num"):
        fusewright.compile(program, fullgraph=True)(*inputs)
    compiled = fusewright.compile(program, options=OPTIONS)
    for start in (4, 0, -3):
        inputs = torch.randn(10, 3), torch.tensor(start)
        torch.testing.assert_close(compiled(*inputs), program(*inputs))


def test_parts_of_sizes_in_a_tensor() -> None:
    def program(x: Tensor, sizes: Tensor) -> Any:
        return [part * 2 for part in x.split(sizes.tolist())]

    compiled = fusewright.compile(program, fullgraph=True)
    for sizes in ([2, 5, 3], [0, 10, 0]):
        inputs = torch.randn(10, 3), torch.tensor(sizes)
        torch.testing.assert_close(compiled(*inputs), program(*inputs))
    assert len(compilations(compiled)) == 1


def within_groups(x: Tensor, counts: Tensor) -> Tensor:
    rows = x.repeat_interleave(counts, 0)
    return torch.arange(rows.shape[0]) - torch.arange(x.shape[0]).repeat_interleave(counts)


@pytest.mark.timeout(60)
def test_two_such_sizes_in_one_broadcast() -> None:
    compiled = fusewright.compile(within_groups, fullgraph=True, options=OPTIONS)
    for counts in ([1, 2, 3], [2, 2, 2], [0, 0, 0]):
        inputs = torch.randn(3, 3), torch.tensor(counts)
        torch.testing.assert_close(compiled(*inputs), within_groups(*inputs))
    assert len(compilations(compiled)) == 1


def positive(x: Tensor) -> Tensor:
    return x[x[:, 0] > 0]


REQUIRING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "broadcast": lambda x, y: positive(x) + positive(y),
    "broadcast with a known size": lambda x, y: positive(x) * y,
    "next to each other": lambda x, y: torch.cat([positive(x), positive(y)], 1),
    "product": lambda x, y: positive(x).t() @ positive(y),
}

SIGNS = [[1, 1, -1], [-1, 2, 2], [1, 2, 3], [-1, 4, -1], [-1, -1, -1]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", REQUIRING)
def test_what_an_operator_requires_is_checked_when_the_graph_runs(name: str, backend: str) -> None:
    program = REQUIRING[name]
    compiled = fusewright.compile(program, backend=backend, fullgraph=True, options=OPTIONS)
    for signs, others in itertools.product(SIGNS, SIGNS):
        x, y = (torch.tensor(each)[:, None] * torch.ones(2) for each in (signs, others))
        try:
            expected = program(x, y)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                compiled(x, y)
            assert str(raised.value) == str(error)
        else:  # also where one of two sizes is 1, which the graph takes for a mistake
            torch.testing.assert_close(compiled(x, y), expected)
    assert len(compilations(compiled)) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_a_graph_that_writes_to_its_inputs_checks_nothing_that_eager_may_not_need(
    backend: str,
) -> None:
    def program(x: Tensor, y: Tensor, count: Tensor) -> Tensor:
        count.add_(1)
        return positive(x) + positive(y)

    compiled = fusewright.compile(program, backend=backend, options=OPTIONS)
    x, y = torch.ones(3, 2), torch.tensor([[1.0, 1], [-1, -1], [-1, -1]])
    counts = torch.zeros(2)
    torch.testing.assert_close(compiled(x, x.clone(), counts[0]), x + x)
    torch.testing.assert_close(compiled(x, y, counts[1]), x + 1)
    assert counts.tolist() == [1, 1]


@pytest.mark.timeout(60)
def test_a_call_that_raises_for_other_reasons_breaks_the_graph() -> None:
    def program(x: Tensor) -> Tensor:
        try:
            return positive(x).view(7, -1, -1)
        except RuntimeError:
            return x + 1

    x = torch.ones(3, 2)
    compiled = fusewright.compile(program, backend="eager", options=OPTIONS)
    torch.testing.assert_close(compiled(x), program(x))
    with pytest.raises(Unsupported, match="sizes that depend on data"):
        fusewright.compile(program, backend="eager", fullgraph=True, options=OPTIONS)(x)


def columns_put(z: Tensor, columns: Tensor) -> Tensor:
    y = z.t().clone()
    y[:, z[:, 0] > 0] = columns
    return y


PUTTING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda z, rows: z.index_put((z[:, 0] > 0,), rows),
    "columns": lambda z, rows: columns_put(z, rows.t()),
    "one for all rows": lambda z, rows: columns_put(z, rows[:, 0]),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PUTTING)
def test_gradients_of_as_many_values_as_a_mask_holds_places_or_of_one(name: str) -> None:
    def program(z: Tensor, x: Tensor) -> Tensor:
        return PUTTING[name](z, positive(x) * 2).square()

    options = OPTIONS | {"strict": True}
    compiled = fusewright.compile(program, fullgraph=True, options=options)
    one, two, none = ([-1, 4, -1], [1, 1, -1], [-1, -1, -1])
    for places, chosen in ((two, [-1, 2, 2]), (one, one), (two, one), (none, one), (none, none)):
        z = torch.tensor(places)[:, None] * torch.ones(3)
        x = (torch.tensor(chosen)[:, None] * torch.rand(3)).requires_grad_()
        found, expected = compiled(z, x), program(z, x)
        torch.testing.assert_close(found, expected)
        weights = torch.rand(3, 3)
        (of_compiled,) = torch.autograd.grad(found, x, weights)
        (of_eager,) = torch.autograd.grad(expected, x, weights)
        torch.testing.assert_close(of_compiled, of_eager)
    assert len(compilations(compiled)) == 1


def chosen(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    return x[(*[slice(None)] * dim, mask)]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_mask_stands_at_any_place(dim: int, rank: int, order: tuple[int, ...]) -> None:
    if dim + rank > 3:
        return
    options = OPTIONS | {"strict": True}
    compiled = fusewright.compile(chosen, fullgraph=True, options=options)
    plus_one = fusewright.compile(
        lambda *arguments: chosen(*arguments) + 1, fullgraph=True, options=options
    )
    x = torch.randn(4, 3, 2).permute(order)
    for threshold in (-9.0, 0.0, 0.5, 9.0):
        mask = torch.randn(x.shape[dim : dim + rank]) > threshold
        expected = chosen(x, mask, dim)
        lies_so = min(expected.shape) > 1  # else strides say nothing
        torch.testing.assert_close(compiled(x, mask, dim), expected, check_stride=lies_so)
        torch.testing.assert_close(plus_one(x, mask, dim), expected + 1, check_stride=lies_so)
    assert len(compilations(compiled)) == 1


def drop_one_by_one(x: Tensor) -> tuple[Tensor, list[bool]]:
    """A loop that a size of data ends."""
    seen, total = [x.nonzero().shape[0] == 5], x.sum()
    x = x[x > 0]
    while x.numel() > 0:
        total = total + x.max()
        x = x[x < x.max()]
        seen.append(x.shape[0] != 1)
    return total, seen


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_a_loop_that_such_a_size_ends(backend: str) -> None:
    options = {"capture_dynamic_output_shape_ops": True, "strict": False}
    compiled = fusewright.compile(drop_one_by_one, backend=backend, options=options)
    for seed in range(3):
        x = torch.randn(6, generator=torch.Generator().manual_seed(seed))
        found, expected = compiled(x), drop_one_by_one(x)
        torch.testing.assert_close(found, expected)
        assert [type(each) for each in found[1]] == [bool] * len(found[1])
    assert not fusewright.explain(compiled)(x).fallbacks


CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "more": lambda count: count > 2,
    "no more": lambda count: count <= 2,
    "equal": lambda count: count == 2,
    "other": lambda count: count != 2,
    "in an object": lambda count: {"few": [count < 3]},
}


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_an_answer_about_such_a_size_is_returned(name: str, backend: str) -> None:
    def program(x: Tensor) -> Any:
        return x * 2, CONDITIONS[name](x.nonzero().shape[0])

    compiled = fusewright.compile(
        program, backend=backend, fullgraph=True, options=OPTIONS | {"strict": True}
    )
    for x in torch.ones(4, 4).tril(-1):
        found, expected = compiled(x)[1], program(x)[1]
        assert found == expected and type(found) is type(expected)
    assert len(compilations(compiled)) == 1


WITHOUT: dict[str, Callable[[Tensor], Any]] = {
    "covariance": lambda x: (torch.cov(x.T), x.T.corrcoef()),
    "known tensors": lambda x: x + 1 if torch.equal(torch.arange(3), torch.arange(3)) else x,
}


@pytest.mark.parametrize("name", WITHOUT)
def test_known_tensors_are_known_beside_such_sizes(name: str) -> None:
    x = torch.randn(4, 3)
    programs = (
        WITHOUT[name],
        lambda x: (WITHOUT[name](x), x[x > 0] * 2),
        lambda x: (x[x > 0] * 2, WITHOUT[name](x)),
    )
    for program in programs:
        compiled = fusewright.compile(program, fullgraph=True, options=OPTIONS)
        torch.testing.assert_close(compiled(x), program(x))


def test_a_call_that_gives_the_first_such_size_inside() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.sin)(torch.unique_consecutive(x[x > 0]).unique())

    options = {"capture_dynamic_output_shape_ops": True, "strict": False}
    compiled = fusewright.compile(program, backend="eager", options=options)
    for x in (torch.randn(4, 3), torch.ones(4, 3)):
        torch.testing.assert_close(compiled(x), program(x))


def some(x: Tensor, seen: list[int]) -> Tensor:
    seen.append(1)
    found = x[x > 0]
    if found.shape[0] == 0:
        raise ValueError("nothing is positive")
    seen.append(2)
    return found.mean() * 2


def few(x: Tensor, seen: list[int]) -> Tensor:
    rows = x.nonzero()
    assert len(rows) > 1, "too few"
    seen.append(rows.shape[1])
    return rows.float().std()


def not_one(x: Tensor, seen: list[int]) -> Tensor:
    """A check inside of a region that catches what it raises."""
    found = x[x > 1]
    try:
        if not found.numel():
            raise KeyError(len(seen))
    except KeyError:
        seen.append(3)
        return x * 2
    return found + 1


def writes_too(x: Tensor, seen: list[int]) -> Tensor:
    """A graph that cannot run twice makes no such check."""
    x.add_(1)
    if x.nonzero().shape[0] == 0:
        raise ValueError("nothing is there")
    return x * 2


CHECKS = [some, few, not_one, writes_too]


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("program", CHECKS, ids=lambda each: each.__name__)
def test_checks_of_such_a_size_are_in_the_graph(program: Any, backend: str) -> None:
    compiled = fusewright.compile(program, backend=backend)
    for numbers in ([1, 2, 3], [-1, 0, 2], [0, 0, 0], [-1, -1, -1], [4, 0, 0]):
        found = []
        for function in (compiled, program):
            x, seen = torch.tensor(numbers, dtype=torch.float32), [0]
            try:
                result: Any = function(x, seen)
            except (ValueError, AssertionError) as error:
                result = str(error)
            found.append((result, x, seen))
        (mine, *others), (expected, *rest) = found
        if isinstance(expected, str):
            assert mine == expected
        else:
            torch.testing.assert_close(mine, expected)
        torch.testing.assert_close(others, rest)
    if program in (some, few):
        assert len(compilations(compiled)) == 1


def test_checks_of_sizes_in_the_midst_of_a_call_break_the_graph() -> None:
    """torch.combinations stacks what it selects by masks: a check of those sizes, which nothing of
    the graph holds, asked for another check each time, without end.
    """

    def pairs(x: Tensor) -> Tensor:
        return torch.combinations(x - x.mean())

    compiled = fusewright.compile(pairs, dynamic=True)
    for length in (4, 7):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), pairs(x))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_size_that_is_one_where_there_is_data_is_none_where_there_is_not(count: int) -> None:
    """The diagonal of a column: as if it were 1, a kernel read an element of no memory."""

    def entropies(mask: Tensor) -> Tensor:
        corner = torch.diag(torch.nonzero(mask)).float()
        return torch.where(corner > 0, corner.log(), 0.5) + 1

    compiled = fusewright.compile(entropies, dynamic=True)
    mask = torch.arange(5) < count
    torch.testing.assert_close(compiled(mask), entropies(mask))
