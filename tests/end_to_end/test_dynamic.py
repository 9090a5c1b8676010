"""Code compiled once, run for sizes that it was not compiled for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fusewright

STRICT = {"strict": True, "verify": True}


def attention(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = (x @ weight).view(batch, length, 4, width // 4).transpose(1, 2)
    mask = torch.full((length, length), float("-inf")).triu(1)
    scores = heads @ heads.transpose(-1, -2) / (width // 4) ** 0.5 + mask
    return (scores.softmax(-1) @ heads).transpose(1, 2).reshape(batch, length, width)


def slices(x: torch.Tensor, weight: torch.Tensor) -> Any:
    rows = x.flatten(0, 1)
    return rows[1:] * rows[:-1], rows[-1], rows[::2].sum(0), x.mT, torch.cat([rows, rows[1:]])


def positions(x: torch.Tensor, weight: torch.Tensor) -> Any:
    batch, length, width = x.shape
    angles = torch.arange(length)[:, None] / torch.arange(1, width + 1)
    angles = angles + torch.full((length,), 3)[:, None].float()
    return x * angles.cos() + x.flip(1) * angles.sin(), x.mean(1) / length**0.5, x.numel() - batch


def normalised(x: torch.Tensor, weight: torch.Tensor) -> Any:
    scaled = (x - x.mean((0, 1))) / x.std((0, 1), correction=0)
    return F.layer_norm(scaled, (x.shape[-1],)), F.gelu(scaled @ weight).amax(1), scaled.cumsum(1)


def padded(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return F.pad(x, (0, 0, 1, x.shape[0])), x.repeat(2, 1, 1), F.interpolate(x.mT, scale_factor=2)


def convolved(x: torch.Tensor, weight: torch.Tensor) -> Any:
    x = torch.cat([x, x], 1)  # a length of 2 would become 1, which is compiled for itself
    kernel = torch.stack([weight, weight.mT, -weight], -1)
    row = F.relu(F.conv1d(x.mT, kernel, padding=1, stride=2))
    image = F.conv2d(x.unsqueeze(1), weight[None, None, :3, :3], padding=1)
    return F.max_pool1d(row, 2, padding=1), F.avg_pool2d(image, 2), F.conv_transpose1d(row, kernel)


def looked_up(x: torch.Tensor, weight: torch.Tensor) -> Any:
    rows = x.flatten(0, 1)
    count = rows.shape[0]
    places = (torch.arange(count) * 3).flip(0) % count
    picked = rows[places] + F.embedding(places % 16, weight)
    gathered = rows.gather(0, places[:, None].expand(-1, 16))
    return picked, torch.where(gathered > 0, gathered, rows), rows.index_add(0, places, picked)


def products(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return torch.einsum("bld,de,bme->blm", x, weight, x), x.mT @ x, torch.tensordot(x, weight, 1)


FUNCTIONS = (attention, slices, positions, normalised, padded, convolved, looked_up, products)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_compiled_function_runs_for_many_sizes(function: Callable[..., Any]) -> None:
    random.seed(0)
    torch.manual_seed(0)
    weight = torch.randn(16, 16)
    compiled = fusewright.compile(function, dynamic=True, fullgraph=True, options=STRICT)
    for _ in range(60):
        x = torch.randn(random.randint(2, 20), random.randint(2, 40), 16)
        torch.testing.assert_close(compiled(x, weight), function(x, weight), rtol=1e-4, atol=1e-5)
    assert len(fusewright.api.compilations(compiled)) == 1


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_for_many_sizes(function: Callable[..., Any]) -> None:
    random.seed(1)
    torch.manual_seed(1)
    weight = torch.randn(16, 16, requires_grad=True)
    compiled = fusewright.compile(function, dynamic=True, fullgraph=True, options=STRICT)

    def gradients(call: Callable[..., Any], x: torch.Tensor) -> Any:
        results = call(x, weight)
        tensors = results if isinstance(results, tuple) else (results,)
        loss = sum(one.square().sum() for one in tensors if isinstance(one, torch.Tensor))
        return torch.autograd.grad(loss, (x, weight), allow_unused=True)

    for _ in range(8):
        x = torch.randn(random.randint(2, 9), random.randint(2, 20), 16, requires_grad=True)
        for found, wanted in zip(gradients(compiled, x), gradients(function, x), strict=True):
            if wanted is not None:
                torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
            assert (found is None) == (wanted is None)
    assert len(fusewright.api.compilations(compiled)) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n, m: (x.select_scatter(x[0] + 1, 0, abs(n - m)), x[abs(n - m)] * 2),
        lambda x, n, m: x.__setitem__(abs(n - m), 3.0) or x + 1,
        lambda x, n, m: x[abs(n - m)].mul_(3) + 1,
        lambda x, n, m: x[n - m : n + m].add_(1).sum() + x[m - n].mul_(2) + x[n - m :],
    ],
)
def test_places_whose_sign_only_guards_tell(program: Callable[..., Any]) -> None:
    compiled = fusewright.compile(program, dynamic=True, options=STRICT)
    for n, m in ((3, 5), (4, 4), (5, 3), (4, 3), (3, 4), (5, 2)):
        x = torch.randn(7, 3)
        other = x.clone()
        torch.testing.assert_close(compiled(x, n, m), program(other, n, m))
        torch.testing.assert_close(x, other)


def test_a_step_of_training_for_many_sizes() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    compiled = fusewright.compile(model, dynamic=True, options=STRICT)
    for batch, length in ((2, 5), (3, 9), (8, 2), (13, 21)):
        x, target = torch.randn(batch, length, 8), torch.randint(0, 4, (batch * length,))
        losses = []
        for call in (compiled, model):
            model.zero_grad()
            loss = F.cross_entropy(call(x).flatten(0, 1), target)
            loss.backward()
            losses.append((loss, [parameter.grad.clone() for parameter in model.parameters()]))
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
    assert len(fusewright.api.compilations(compiled)) == 1


@pytest.mark.parametrize("target", ["native", "python", "fx"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: (x[n:] * torch.ones(1, 3), x + 1, n * 2),
        lambda x, n: (x * 2, n, x.shape[0]) if x.shape[0] == n + 1 else x,
        lambda x, n: (x * 2, n, x.shape[0]) if 2 * x.shape[0] == n + 5 else x,
    ],
)
def test_sizes_that_a_number_is_seen_to_tell(program: Callable[..., Any], target: str) -> None:
    """The graph takes the number, and has no symbol for it: it is one more than a size, say."""
    compiled = fusewright.compile(program, dynamic=True, options={**STRICT, "target": target})
    for rows, number in ((4, 3), (9, 8), (5, 5), (9, 13), (8, 4)):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, number), program(x, number))


def test_layouts_other_than_rows_first() -> None:
    compiled = fusewright.compile(
        lambda x: (x * 2, x.sum(-1), F.relu(x).flatten(1)), dynamic=True, options=STRICT
    )
    for n, size in ((2, 4), (3, 6), (5, 9)):
        x = torch.randn(n, 3, size, size).to(memory_format=torch.channels_last)
        found, wanted = compiled(x), (x * 2, x.sum(-1), F.relu(x).flatten(1))
        torch.testing.assert_close(found, wanted)
        assert [one.stride() for one in found] == [one.stride() for one in wanted]
    assert len(fusewright.api.compilations(compiled)) == 1


def test_writes_through_views_of_symbolic_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(2)
        x[:, -1] = x.shape[0]
        x.view(-1)[::2].neg_()
        x.flatten(0)[: x.shape[1]].unsqueeze(0).add_(1)
        x[1:].copy_(x[0])
        return x.t().clone().fill_diagonal_(0)

    compiled = fusewright.compile(program, dynamic=True, options=STRICT)
    for rows, columns in ((3, 5), (6, 4), (9, 9), (2, 7)):
        x = torch.randn(rows, columns)
        other = x.clone()
        torch.testing.assert_close(compiled(x), program(other))
        torch.testing.assert_close(x, other)


def test_computed_sizes_that_are_known_to_be_one_broadcast() -> None:
    """By what was assumed of them, and by the bounds of what they are computed from."""

    def assumed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        half = x[: x.shape[0] // 2]
        return half.t() @ y[:1] * half.sum() if half.shape[0] == 1 else half

    def bounded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2] * y if x.shape[0] < 4 else y

    for program in (assumed, bounded):
        compiled = fusewright.compile(program, dynamic=True, options=STRICT)
        for rows, columns in ((2, 6), (3, 4), (2, 9)):
            x, y = torch.randn(rows, columns), torch.randn(5, columns)
            torch.testing.assert_close(compiled(x, y), program(x, y))


@pytest.mark.parametrize("rows", [3, 2**16 + 1])
def test_offsets_beyond_32_bits_are_computed_in_64(rows: int) -> None:
    compiled = fusewright.compile(
        lambda x: x[:, -1].float() + x[-1].sum(), dynamic=True, options=STRICT
    )
    small = torch.zeros(2, 5, dtype=torch.int8)
    compiled(small)
    row = torch.arange(2**15 + 2, dtype=torch.int32).to(torch.int8)
    x = row.expand(rows, -1)  # more elements than 2**31, in little memory
    torch.testing.assert_close(compiled(x), x[:, -1].float() + x[-1].sum())


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: F.embedding(places, x) * 2,
        lambda x, places: x.index_select(0, places) * 2,
        lambda x, places: x.gather(0, places[:, None].expand(-1, 7)) * 2,
        lambda x, places: x[places] * 2,
        lambda x, places: x[x[:, 0] > 1][places],
    ],
)
def test_nothing_is_picked_from_nothing(program: Callable[..., Any]) -> None:
    options = {**STRICT, "capture_data_dependent_sizes": True}
    for rows in (0, 3):
        compiled = fusewright.compile(program, fullgraph=True, dynamic=True, options=options)
        x, places = torch.zeros(rows, 7), torch.full((5,), 4)
        with pytest.raises((IndexError, RuntimeError)) as expected:
            program(x, places)
        with pytest.raises(expected.type):
            compiled(x, places)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("program", "shapes", "wrong"),
    [
        (lambda x: F.pad(x, (-4, 5)) * 2, [(3, 6)], [(3, 3)]),
        (lambda x: F.pad(x, (2, -5)) * 2, [(3, 6)], [(3, 4)]),
        (F.conv2d, [(2, 3, 5, 5), (4, 3, 3, 3)], [(2, 3, 5, 5), (0, 3, 3, 3)]),
        (lambda x, w: F.group_norm(x, 2, w), [(2, 4, 3), (4,)], [(2, 4, 3), (5,)]),
        (lambda x, w: x.as_strided((4, 3), (4, 1), 1) * w, [(5, 4), (3,)], [(3, 4), (3,)]),
    ],
)
def test_sizes_that_do_not_fit_are_refused_as_in_eager(
    program: Callable[..., Any], shapes: Any, wrong: Any, dynamic: bool
) -> None:
    compiled = fusewright.compile(program, dynamic=dynamic, fullgraph=True, options=STRICT)
    given = [torch.randn(*shape) for shape in shapes]
    torch.testing.assert_close(compiled(*given), program(*given), rtol=1e-4, atol=1e-5)
    given = [torch.randn(*shape) for shape in wrong]
    with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
        program(*given)
    with pytest.raises(expected.type) as found:
        compiled(*given)
    assert str(found.value).split("\n")[0] == str(expected.value).split("\n")[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_index_to_fill_that_is_out_of_bounds(dynamic: bool) -> None:
    compiled = fusewright.compile(
        lambda x, places: x.index_fill(0, places, 1.5) * 2, dynamic=dynamic, options=STRICT
    )
    x = torch.randn(4, 3)
    for places in (torch.tensor([0, -1]), torch.tensor([2, 2, 3])):
        torch.testing.assert_close(compiled(x, places), x.index_fill(0, places, 1.5) * 2)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        compiled(x, torch.tensor([0, 7]))


# Sizes and numbers that depend on data ------------------------------------------------------------

OF_DATA = {**STRICT, "capture_data_dependent_sizes": True}


def first_rows(x: torch.Tensor, count: torch.Tensor) -> Any:
    number = count.item()
    torch._check(number >= 0)
    torch._check(number <= x.shape[0])
    return x[:number] * number, torch.zeros(number + 1, 2) + 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.nonzero().float() + 1).sum(0),
        lambda x: x[x > 0] * 2,
        lambda x: (x[x > 0].shape[0] + 1, torch.arange(x[x > 0].shape[0]).sum()),
        lambda x: torch.masked_select(x, x > 0).sum() + x.sum(),
        lambda x: (x[x > 0][:, None] + x[x > 0][None]).flatten() * 2,
        lambda x: torch.zeros(x.argmax().item() + 2) + x.mean(),
        lambda x: x[x[:, 0] > 0] @ x.t(),
        lambda x: torch.unique((x * 2).round()) + 1,
        lambda x: [one + 1 for one in torch.where(x > 0)],
        lambda x: (places := (x > 0).nonzero(), places[1:].mul_(2))[0],
        lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, 0).cos(),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_depend_on_data(program: Callable[..., Any], dynamic: bool) -> None:
    torch.manual_seed(0)
    compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=OF_DATA)
    for x in (torch.randn(5, 3), torch.randn(5, 3), -torch.ones(5, 3), torch.ones(5, 3)):
        torch.testing.assert_close(compiled(x), program(x))
    assert len(fusewright.api.compilations(compiled)) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_promises_about_such_numbers_are_used_and_checked(dynamic: bool) -> None:
    compiled = fusewright.compile(first_rows, fullgraph=True, dynamic=dynamic, options=OF_DATA)
    x = torch.randn(6, 3)
    for number in (2, 0, 6, 1):
        count = torch.tensor(number)
        torch.testing.assert_close(compiled(x, count), first_rows(x, count))
    assert len(fusewright.api.compilations(compiled)) == 1
    for number in (-1, 7):
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(x, torch.tensor(number))


def test_gradients_through_sizes_that_depend_on_data() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x[x[:, 0] > 0] @ weight).square().sum()

    torch.manual_seed(0)
    compiled = fusewright.compile(program, fullgraph=True, dynamic=True, options=OF_DATA)
    weight = torch.randn(4, 3, requires_grad=True)
    for rows in (5, 9, 3):
        x = torch.randn(rows, 4, requires_grad=True)
        found = torch.autograd.grad(compiled(x, weight), (x, weight))
        torch.testing.assert_close(found, torch.autograd.grad(program(x, weight), (x, weight)))
    assert len(fusewright.api.compilations(compiled)) == 1
