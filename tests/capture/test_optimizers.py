"""Steps of torch.optim: one graph each, compiled for the first step and once for all others."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import fusewright

STEPS = 7

OPTIMIZERS: dict[str, Sequence[dict[str, Any]]] = {
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "dampening": 0.5, "maximize": True},
    ],
    "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1, "maximize": True}],
    "AdamW": [{}, {"amsgrad": True, "maximize": True}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True}, {"weight_decay": 0.1, "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"maximize": True}],
    "Adadelta": [{}, {"weight_decay": 0.1, "maximize": True}],
    "NAdam": [{}, {"weight_decay": 0.1}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Rprop": [{}, {"maximize": True}],
    "Adafactor": [{}, {"weight_decay": 0.1, "maximize": True}, {"d": 1.5}],
    "ASGD": [{}, {"t0": 2.0, "weight_decay": 0.1}, {"t0": 2.0, "maximize": True}],
}

CASES = [
    pytest.param(name, options, foreach, id=f"{name}-{'-'.join(options)}-{foreach}")
    for name, every in OPTIMIZERS.items()
    for options in every
    for foreach in (False, True)
]


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (7,), ()]
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]


def give_gradients(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        one.grad = torch.randn_like(one)
        other.grad = one.grad.clone()


def same_state(
    optimizer: torch.optim.Optimizer, expected: torch.optim.Optimizer, **tolerance: float
) -> None:
    torch.testing.assert_close(
        optimizer.state_dict()["state"], expected.state_dict()["state"], **tolerance
    )


@pytest.mark.parametrize(("name", "options", "foreach"), CASES)
def test_steps_agree_with_eager_and_compile_twice(
    name: str, options: dict[str, Any], foreach: bool
) -> None:
    ours, theirs = parameters(), parameters()
    make = getattr(torch.optim, name)
    optimizer = make(ours, lr=0.01, foreach=foreach, **options)
    expected = make(theirs, lr=0.01, foreach=foreach, **options)
    had_state = any(optimizer.state.values())
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    for _ in range(STEPS):
        give_gradients(ours, theirs)
        step()
        expected.step()
    torch.testing.assert_close(ours, theirs)
    same_state(optimizer, expected)
    has_state = any(optimizer.state.values())
    assert len(fusewright.compilations(step)) == 1 + (has_state and not had_state)


@pytest.mark.parametrize("foreach", [False, True])
def test_a_function_that_calls_steps_of_two_optimizers(foreach: bool) -> None:
    def train(model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    twin = copy.deepcopy(model)
    optimizers, expected = (
        [
            torch.optim.Adam(of[0].parameters(), foreach=foreach),
            torch.optim.SGD(of[1].parameters(), momentum=0.9, foreach=foreach),
        ]
        for of in (model, twin)
    )
    compiled = fusewright.compile(train, fullgraph=True, backend="eager")
    for _ in range(STEPS):
        give_gradients([*model.parameters()], [*twin.parameters()])
        compiled(model, *optimizers)
        train(twin, *expected)
        assert all(one.grad is None for one in model.parameters())
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert len(fusewright.compilations(compiled)) == 2


def test_compiled_steps_hold_for_other_tensors_and_keep_none_alive() -> None:
    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    compiled = fusewright.compile(step, fullgraph=True, backend="eager")
    for _ in range(3):
        ours, theirs = parameters(), parameters()
        optimizer, expected = torch.optim.Adam(ours), torch.optim.Adam(theirs)
        for _ in range(3):
            give_gradients(ours, theirs)
            compiled(optimizer)
            expected.step()
        torch.testing.assert_close(ours, theirs)
    assert len(fusewright.compilations(compiled)) == 2
    gone = weakref.ref(ours[0])
    del optimizer, ours
    gc.collect()
    assert gone() is None


def test_parameters_that_had_no_gradient_yet() -> None:
    ours, theirs = parameters(), parameters()
    optimizer, expected = torch.optim.Adam(ours), torch.optim.Adam(theirs)
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    for present in (1, 1, 2, 3, 3, 3):
        give_gradients(ours[-present:], theirs[-present:])
        step()
        expected.step()
    torch.testing.assert_close(ours, theirs)
    same_state(optimizer, expected)
    assert [id(one) for one in optimizer.state] == [id(one) for one in reversed(ours)]


@pytest.mark.parametrize(
    ("name", "foreach"),
    [("SGD", False), ("SGD", True), ("Adam", False), ("RAdam", True), ("RMSprop", True)],
)
def test_a_learning_rate_in_a_tensor_changes_without_compiling(name: str, foreach: bool) -> None:
    ours, theirs = parameters(), parameters()
    make = getattr(torch.optim, name)
    optimizer = make(ours, lr=torch.tensor(0.01, dtype=torch.float64), foreach=foreach)
    expected = make(theirs, lr=0.01, foreach=foreach)
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    for count in range(STEPS):
        give_gradients(ours, theirs)
        optimizer.param_groups[0]["lr"].fill_(0.01 / (count + 1))
        expected.param_groups[0]["lr"] = 0.01 / (count + 1)
        step()
        expected.step()
    torch.testing.assert_close(ours, theirs)
    assert len(fusewright.compilations(step)) <= 2


def test_a_learning_rate_that_a_scheduler_changes() -> None:
    ours, theirs = parameters(), parameters()
    optimizer, expected = torch.optim.AdamW(ours), torch.optim.AdamW(theirs)
    schedulers = [torch.optim.lr_scheduler.StepLR(one, 3, 0.5) for one in (optimizer, expected)]
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    for _ in range(STEPS):
        give_gradients(ours, theirs)
        step()
        expected.step()
        for scheduler in schedulers:
            scheduler.step()
    torch.testing.assert_close(ours, theirs)


def test_tensors_as_keys() -> None:
    def count(table: dict[Any, int], *keys: Any) -> tuple[int, bool]:
        first, second, third = keys
        table[first] += 1
        table["all"] = table["all"] + table.pop(second)
        return len(table), third in table

    compiled = fusewright.compile(count, fullgraph=True, backend="eager")
    for _ in range(2):
        one, two, three = torch.ones(3), torch.ones(3), torch.ones(3)
        table: dict[Any, int] = {one: 1, "all": 5, two: 2}
        assert compiled(table, one, two, three) == (2, False)
        assert {id(key): value for key, value in table.items()} == {id(one): 2, id("all"): 7}
        table = {one: 1, "all": 5, two: 2}
        assert compiled(table, one, two, two) == (2, False)
        table = {one: 1, "all": 5, two: 2}
        assert compiled(table, one, two, one) == (2, True)
    assert len(fusewright.compilations(compiled)) == 3


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_steps_in_one_operator(name: str) -> None:
    """`fused=True`: taken apart, so that nothing but loops is left for the compiler."""
    ours, theirs = parameters()[:2], parameters()[:2]
    make = getattr(torch.optim, name)
    optimizer, expected = make(ours, lr=0.01, fused=True), make(theirs, lr=0.01, fused=True)
    step = fusewright.compile(optimizer.step, fullgraph=True, options={"strict": True})
    for _ in range(4):
        give_gradients(ours, theirs)
        step()
        expected.step()
    torch.testing.assert_close(ours, theirs)
    same_state(optimizer, expected)
    record = fusewright.compilations(step)[-1].record
    assert record is not None and not record.extern_calls


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_adafactor_reads_norms_as_python_does(dtype: torch.dtype, foreach: bool) -> None:
    """Of zeros, of what is no number, and in every precision."""
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer = torch.optim.Adafactor(ours, foreach=foreach)
    expected = torch.optim.Adafactor(theirs, foreach=foreach)
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    for value in (None, 0.0, 1.0, torch.inf, torch.nan):
        give_gradients(ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            if value is not None and one.dim() < 2:
                one.grad.fill_(value)  # type: ignore[union-attr]
                other.grad.fill_(value)  # type: ignore[union-attr]
        step()
        expected.step()
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        same_state(optimizer, expected, equal_nan=True)
