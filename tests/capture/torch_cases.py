"""A table of small torch programs, each of which must do, captured, what it does when run.

    cases = Cases()

    @cases(X)                                   # one graph, with these arguments
    def transposed(x): ...

    @cases(X, breaks="branch-on-tensor")        # a graph break for this reason
    def branching(x): ...

    @cases(lambda: (Model(), X))                # arguments made anew for each run
    def with_module(module, x): ...

    test_program = cases.test()

Compared are results, exceptions, the arguments afterwards, gradients, the random state and torch's
global modes.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fusewright import api
from fusewright.errors import Unsupported
from tests.capture.agreement import assert_same

SAMPLED = 8
"""Each such program is tried with symbolic sizes too; `--dynamic` tries all of them so."""


@dataclass(frozen=True, slots=True)
class Case:
    """One program of the table."""

    function: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]
    breaks: str | None
    """Name of the reason why it is more than one graph; None for one graph."""

    raises: bool
    """Whether the program itself raises."""

    captures: int
    """Captures for two calls with arguments made anew: 2 where they are told apart."""


class Cases:
    """Collects programs, and makes the test of all of them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(
        self,
        *arguments: Any,
        breaks: str | None = None,
        raises: bool = False,
        captures: int = 1,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        if len(arguments) == 1 and callable(arguments[0]) and not _is_module(arguments[0]):
            make = arguments[0]
        else:
            make = lambda: copy.deepcopy(arguments)  # noqa: E731

        def enter(function: Callable[..., Any]) -> Callable[..., Any]:
            self.cases.append(Case(function, make, breaks, raises, captures))
            return function

        return enter

    def test(self) -> Callable[[Case], None]:
        """The test function, one call a program; of a sample one more, with symbolic sizes."""
        names = [case.function.__name__ for case in self.cases]
        assert len(set(names)) == len(names), "a program hides another of the same name"
        sample = [
            pytest.param(case, marks=pytest.mark.dynamic(True), id=f"{name}, symbolic sizes")
            for case, name in list(zip(self.cases, names, strict=True))[::SAMPLED]
        ]

        def test_program(case: Case) -> None:  # one a table: pytest marks the function itself
            check_case(case)

        cases = [pytest.param(case, id=name) for case, name in zip(self.cases, names, strict=True)]
        return pytest.mark.parametrize("case", [*cases, *sample])(test_program)


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def check_case(case: Case) -> None:
    """The program captured does what it does when run, in one graph or with the break expected."""
    expected = observe(case.function, case.make)
    assert isinstance(expected.result, Exception) == case.raises, expected.result
    if case.breaks is None:
        _check_one_graph(case, expected)
    else:
        with pytest.raises(Unsupported) as refusal:
            # What breaks a graph that may break: one that may not keeps integers.
            options = {"capture_scalar_outputs": False}
            refusing = api.compile(case.function, backend="eager", fullgraph=True, options=options)
            _call(refusing, case.make)
        assert refusal.value.reason == case.breaks, str(refusal.value)
    compiled = api.compile(case.function, backend="eager")
    for _ in range(2):
        assert_agree(observe(compiled, case.make), expected)


def _check_one_graph(case: Case, expected: Observation) -> None:
    compiled = api.compile(case.function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert_agree(observe(compiled, case.make), expected)
    if not case.raises:  # a program that raises runs as it is, in frames of its own
        assert compiled.compiler.capture_count == case.captures, "the second call captured again"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call did that anyone can see."""

    result: Any
    """What it returned; the exception that it raised."""

    arguments: tuple[Any, ...]
    gradients: list[torch.Tensor | None]
    next_draw: torch.Tensor
    """The number that torch's random generator gives next."""

    modes: tuple[Any, ...]


def _call(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> Any:
    _seed()
    arguments = make()
    _seed()
    return function(*arguments)


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)


def observe(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> Observation:
    _seed()
    arguments = make()
    _seed()
    before = _modes()
    try:
        result = function(*arguments)
    except Unsupported:
        raise
    except Exception as error:
        result = error
    draw, modes = torch.rand(()), _modes()
    _restore(before)
    gradients = _gradients(result, arguments)
    return Observation(result, arguments, gradients, draw, modes)


def _modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
    )


def _restore(modes: tuple[Any, ...]) -> None:
    torch.set_grad_enabled(modes[0])
    torch.set_autocast_enabled("cpu", modes[2])
    torch.set_autocast_dtype("cpu", modes[3])
    torch.set_default_dtype(modes[4])
    if torch.get_default_device() != modes[5]:
        torch.set_default_device(None)


def _gradients(result: Any, arguments: tuple[Any, ...]) -> list[torch.Tensor | None]:
    """The gradients of all leaves among the arguments, of the sum of all results."""
    outputs = [
        t for t in _tensors(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())
    ]
    if outputs and any(t.grad_fn is not None for t in outputs):
        with torch.enable_grad():
            sum(t.abs().sum().double() for t in outputs if t.grad_fn is not None).backward()
    return [t.grad for t in _tensors(arguments) if t.is_leaf]


def _tensors(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    """All tensors in a value, modules included, in order."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    match value:
        case torch.Tensor():
            return [value]
        case torch.nn.Module():
            parts: Any = [*value.parameters(), *value.buffers()]
        case dict():
            parts = value.values()
        case list() | tuple():
            parts = value
        case _:
            return []
    return [tensor for part in parts for tensor in _tensors(part, seen)]


def assert_agree(found: Observation, expected: Observation) -> None:
    if isinstance(expected.result, Exception):
        assert type(found.result) is type(expected.result), repr(found.result)
        assert str(found.result) == str(expected.result)
    else:
        if isinstance(found.result, Exception):
            raise found.result
        _assert_equal(found.result, expected.result, "result")
    _assert_equal(found.arguments, expected.arguments, "arguments")
    _assert_equal(found.gradients, expected.gradients, "gradients")
    assert torch.equal(found.next_draw, expected.next_draw), "the random state differs"
    assert found.modes == expected.modes


def _assert_equal(found: Any, expected: Any, path: str) -> None:
    """`assert_same` that also looks into modules, and at what autograd knows of a tensor."""
    if isinstance(expected, torch.nn.Module):
        assert type(found).__qualname__ == type(expected).__qualname__, path
        _assert_equal(_state(found), _state(expected), path)
    elif isinstance(expected, torch.Tensor):
        assert type(found) is type(expected), path
        assert found.requires_grad == expected.requires_grad, f"{path}: requires_grad"
        assert found.is_leaf == expected.is_leaf, f"{path}: is_leaf"
        assert found.layout == expected.layout, path
        if (
            not expected.is_nested
            and expected.layout is torch.strided
            and not expected.is_quantized
        ):
            assert_same(found.detach(), expected.detach(), path)
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected), path
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            _assert_equal(one, other, f"{path}[{index}]")
    elif isinstance(expected, dict):
        assert type(found) is type(expected) and list(found) == list(expected), path
        for key in expected:
            _assert_equal(found[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, torch.optim.Optimizer):
        _assert_equal(found.state_dict(), expected.state_dict(), path)
    elif isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected), path
    else:
        assert_same(found, expected, path)


def _state(module: torch.nn.Module) -> dict[str, Any]:
    """All that a module holds: tables, mode, and plain attributes."""
    plain = (bool, int, float, str, list, tuple, torch.Tensor, type(None))
    return {
        **{name: value for name, value in vars(module).items() if isinstance(value, plain)},
        "parameters": dict(module._parameters),
        "buffers": dict(module._buffers),
        "modules": dict(module._modules),
        "hooks": [
            len(vars(module)[name])
            for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        ],
    }
