"""The values of fakes that no input decides: computed when asked for, from the graph."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.aot.tracer import Recorder
from fusewright.errors import DataDependent
from fusewright.fake import FakeMode, FakeTensor, known_value
from fusewright.fake import known_values as module

aten = torch.ops.aten


@contextmanager
def recording(*tensors: torch.Tensor) -> Iterator[list[FakeTensor]]:
    """Context in which operators are recorded in a graph, with inputs like `tensors`."""
    mode = FakeMode()
    recorder = Recorder(mode, {})
    fakes = [mode.fake(tensor) for tensor in tensors]
    for number, fake in enumerate(fakes):
        node = recorder.graph.placeholder(f"x{number}")
        node.meta["val"] = fake
        recorder.bind(fake, node)
    with torch.no_grad(), recorder:
        yield fakes


def test_what_is_computed_of_filled_tensors_is_known() -> None:
    with recording(torch.randn(3, 4)) as (x,):
        assert torch.ones(2, 3).sum().item() == 6
        assert bool((x.new_zeros(()) <= 0).all())
        assert torch.scalar_tensor(3).sub_(1).item() == 2
        assert x[torch.arange(3) > 0].shape == (2, 4)
        assert x.masked_select(torch.tril(torch.ones(4, 4))[:3] == 1).shape == (6,)
        assert (torch.tensor(2.0) * 3 + 1).item() == 7.0
        assert torch.tensor(2.0).to(torch.float64).item() == 2.0
        assert torch.tensor([0, 3, 0]).nonzero().tolist() == [[1]]
        assert torch.arange(6).view(2, 3).max(1)[1].tolist() == [2, 2]
        with pytest.raises(DataDependent):
            x[x > 0]
        with pytest.raises(DataDependent):
            torch.rand(2).sum().item()
        with pytest.raises(DataDependent):
            torch.empty(2).sum().item()


def test_nothing_is_computed_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = module._run
    monkeypatch.setattr(module, "_run", lambda *args: runs.append(len(args[0])) or run(*args))
    with recording(torch.randn(3)) as (x,):
        total = (torch.arange(3) * 2).sum()
        y = x + total
        assert not runs
        assert known_value(y) is None and not runs
        assert total.item() == 6 and len(runs) == 1


def test_large_tensors_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ELEMENTS", 8)
    with recording():
        assert torch.ones(2, 4).sum().item() == 8
        with pytest.raises(DataDependent):
            torch.ones(3, 3).sum().item()


def test_long_computations_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPERATORS", 20)
    with recording():
        total = torch.zeros(())
        for _ in range(19):
            total = total + 1
        assert total.item() == 19
        with pytest.raises(DataDependent):
            (total + 1).item()


def test_values_written_to_are_followed_until_an_input_is_written() -> None:
    with recording(torch.randn(3)) as (x,):
        known = torch.tensor([1.0, 2.0, 3.0])
        copied, row = known.clone(), known[:2]
        row.add_(1)
        assert known.tolist() == [2.0, 3.0, 3.0] and copied.tolist() == [1.0, 2.0, 3.0]
        x.add_(known)
        assert known.tolist() == [2.0, 3.0, 3.0]
        row.add_(x[:2])
        with pytest.raises(DataDependent):
            known.tolist()


def test_values_are_on_the_cpu_and_results_where_their_arguments_are() -> None:
    """A mask that is known picks from a tensor of a GPU what is known of that."""
    with recording():
        x = aten.full.default([3], 2, device="cuda:0")
        picked = aten.index.Tensor(x, [aten.gt.Tensor(x, x)])
        assert (picked.device, tuple(picked.shape)) == (x.device, (0,))
        for tensor in (x, picked):
            value = known_value(tensor)
            assert value is not None and value.device.type == "cpu"


# -- against eager --------------------------------------------------------------------------------

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "count up": lambda x, y: x.cumsum(0),
    "view": lambda x, y: x[1:3],
    "reversed": lambda x, y: x.flip(0),
    "expanded": lambda x, y: y[:1].expand(4),
    "written": lambda x, y: x.add_(1),
    "written by another": lambda x, y: x[:2].mul_(y[:2]),
    "item set": lambda x, y: x[1:].__setitem__(0, y[0]),
    "copied": lambda x, y: y.clone(),
    "stacked": lambda x, y: torch.stack([x[:2], y[:2]]).flatten(),
    "split": lambda x, y: x.split(2)[0],
    "as strided": lambda x, y: x.as_strided((2,), (1,)),
}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("with_input", [False, True])
def test_known_values_are_those_of_eager(with_input: bool, seed: int) -> None:
    """Also behind writes through views; where there is no input, all are known."""
    draw = random.Random(seed)
    sources = [
        lambda: torch.arange(4.0),
        lambda: torch.full((4,), 2.0),
        lambda: torch.tensor([1.0, 5.0, 1.0, 1.0]),
    ]
    reals: list[Any] = [source() for source in sources]
    unknown = torch.tensor([5.0, 6.0, 7.0, 8.0])
    with recording(unknown.clone()) as (x,):
        fakes: list[Any] = [source() for source in sources]
        if with_input:
            reals.append(unknown)
            fakes.append(x)
        for _ in range(12):
            name = draw.choice(list(STEPS))
            first, second = draw.choices(range(len(reals)), k=2)
            if any(len(real) < 4 or 0 in real.stride() for real in (reals[first], reals[second])):
                continue
            with torch_compat.without_modes():
                result = STEPS[name](reals[first], reals[second])
            fake = STEPS[name](fakes[first], fakes[second])
            if result is not None:
                reals.append(result)
                fakes.append(fake)
            values = list(map(known_value, fakes))
            assert with_input or None not in values
            with torch_compat.without_modes():
                for real, value in zip(reals, values, strict=True):
                    assert value is None or torch.equal(value, real), name
        assert known_value(x) is None
