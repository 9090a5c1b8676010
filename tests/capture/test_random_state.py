"""Programs that seed random generators, read their states and set them: torch's, Python's, NumPy's.
They draw what eager draws, and leave every state where eager leaves it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fusewright import api
from fusewright.capture.directives import graph_break
from tests.capture.agreement import assert_same
from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1

cases = Cases()


# -- torch ----------------------------------------------------------------------------------------


@cases(X)
def seeded(x: Any) -> Any:
    torch.manual_seed(3)
    a = torch.rand(3, 4)
    torch.random.manual_seed(True)
    return x + a * torch.rand(4), torch.nn.functional.dropout(x, 0.5)


@cases(X)
def seeded_last(x: Any) -> Any:
    y = x * torch.rand(4)
    return y, torch.manual_seed(-7) is torch.default_generator


@cases(X, raises=True)
def seeded_with_no_number(x: Any) -> Any:
    y = x * torch.rand(4)
    torch.manual_seed("seven")  # type: ignore[arg-type]
    return y


@cases(X, breaks="random-state" if torch.cuda.is_available() else "outside-world")
def everything_seeded(x: Any) -> Any:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(3)
    return torch.nn.functional.dropout(x, 0.5) * random.random()


@cases(X)
def saved_and_set(x: Any) -> Any:
    before = torch.get_rng_state()
    a = torch.rand(4)
    torch.set_rng_state(before)
    return x + a - torch.rand(4), before


@cases(X, torch.Generator().manual_seed(5).get_state())
def set_to_what_is_given(x: Any, state: Any) -> Any:
    torch.random.set_rng_state(state)
    return x + torch.rand(4)


@cases(X)
def forked(x: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        a = torch.randn(4)
    with torch.random.fork_rng(devices=[], enabled=False):
        b = torch.randn(4)
    return x + a, b, torch.rand(4)


@cases(X, raises=True)
def forked_and_left_by_an_exception(x: Any) -> Any:
    with torch.random.fork_rng():
        y = x + torch.rand(4)
        raise KeyError(str(y.shape))


@cases(X, breaks="user-break")
def forked_around_a_break(x: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        a = torch.randn(4)
        graph_break()
        b = torch.randn(4)
    return x + a, b, torch.rand(4)


@cases(X, breaks="user-break")
def seeded_around_a_break(x: Any) -> Any:
    torch.manual_seed(1)
    a = torch.rand(4)
    graph_break()
    return x + a + torch.rand(4)


@cases(X)
def generator_made(x: Any) -> Any:
    generator = torch.Generator("cpu").manual_seed(-7)
    return x + generator.initial_seed() % 5, torch.Generator().initial_seed()


@cases(X, breaks="random-state")
def generator_drawn_from(x: Any) -> Any:
    generator = torch.Generator()
    generator.manual_seed(7)
    y = x * 2 + torch.rand(4, generator=generator)
    return y, torch.randperm(5, generator=generator), generator.get_state()


@cases(X, breaks="random-state")
def asks_for_the_seed(x: Any) -> Any:
    return x + torch.initial_seed() % 3


# -- Python and NumPy -----------------------------------------------------------------------------


@cases(X, breaks="outside-world")
def python_seeded(x: Any) -> Any:
    random.seed(4)
    items = [x, x + 1, x + 2, "a"]
    random.shuffle(items)
    picked = random.sample(items, 2), random.choices("abc", weights=[1, 2, 3], k=4)
    return x * random.random(), random.randint(2, 90), random.gauss(0, 1), items, picked


@cases(X)
def python_seeded_and_not_looked_at(x: Any) -> Any:
    numbers = [random.uniform(1, 2)]
    random.seed(4)
    numbers += [random.random(), random.gauss(0, 1)]
    return x * len(numbers)


@cases(X, breaks="outside-world")
def python_drawn_then_seeded(x: Any) -> Any:
    random.random()
    random.seed("text")
    return x * random.choice([2.0, 3.0, 5.0])


@cases(X, breaks="outside-world")
def python_unknown(x: Any) -> Any:
    return x * random.random()


@cases(X, breaks="outside-world")
def python_saved_and_set(x: Any) -> Any:
    before = random.getstate()
    a = random.random()
    random.setstate(before)
    return x + a


@cases(X, breaks="user-break")
def python_seeded_around_a_break(x: Any) -> Any:
    random.seed(4)
    a = random.random()
    graph_break()
    return x + a * random.random()


@cases(X, breaks="outside-world")
def python_generator(x: Any) -> Any:
    generator = random.Random(5)
    a = generator.gauss(0, 1)
    generator.seed(7)
    return x + a, generator.uniform(1, 2), generator.choice([x, x + 1])


@cases(X, breaks="outside-world")
def python_generator_that_leaves(x: Any) -> Any:
    generator = random.Random(5)
    a = generator.gauss(0, 1)
    graph_break()
    return x + a, generator.gauss(0, 1), generator.random(), generator.getstate()


@cases(X)
def numpy_seeded(x: Any) -> Any:
    np.random.seed(4)
    return x + 1


@cases(X, breaks="outside-world")
def numpy_seeded_and_drawn(x: Any) -> Any:
    np.random.seed(4)
    return x + float(np.random.rand())


test_program = cases.test()


# -- compiled -------------------------------------------------------------------------------------


def everything(x: Any, weight: Any) -> Any:
    """Draws before, between and behind changes of the state, with gradients."""
    a = torch.nn.functional.dropout(x * weight, 0.5)
    before = torch.get_rng_state()
    torch.manual_seed(5)
    b = torch.rand(3, 4)
    torch.set_rng_state(before)
    c = torch.nn.functional.dropout(a.sin(), 0.25)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        d = torch.randn(4)
    return a + b, c * d + torch.rand(4)


@pytest.mark.parametrize("backend", ["aot_eager", "fusewright"])
@pytest.mark.parametrize("trains", [False, True])
def test_the_state_is_changed_in_its_place_in_compiled_code(backend: str, trains: bool) -> None:
    results = []
    compiled: Callable[..., Any] = api.compile(everything, backend=backend, fullgraph=True)
    for function in (everything, compiled):
        torch.manual_seed(11)
        weight = torch.full((4,), 0.5, requires_grad=trains)
        found = []
        for _ in range(2):
            outputs = function(X, weight)
            if trains:
                sum(output.sum() for output in outputs).backward()
            found.append([output.detach() for output in outputs])
        results.append((found, weight.grad, torch.get_rng_state()))
    assert_same(torch.tensor(0), torch.tensor(0))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_a_call_that_fails_puts_the_state_back_before_it_runs_again() -> None:
    def draws_and_fails(x: Any, index: Any) -> Any:
        torch.manual_seed(5)
        return x[index] + torch.rand(4)

    compiled = api.compile(draws_and_fails, backend="eager")
    torch.manual_seed(1)
    compiled(X, torch.tensor(1))
    for function in (draws_and_fails, compiled):
        torch.manual_seed(1)
        with pytest.raises(IndexError):
            function(X, torch.tensor(9))
        assert torch.initial_seed() == 5


def test_a_number_of_numpy_that_nobody_looks_at_is_drawn() -> None:
    def program(x: torch.Tensor, training: bool) -> torch.Tensor:
        chance = np.random.uniform(0, 1)
        return x if training and chance < 0.3 else x * 2

    x = torch.ones(2)
    for training, fullgraph in ((False, True), (True, False)):
        compiled = api.compile(program, backend="eager", fullgraph=fullgraph)
        for seed in range(4):
            np.random.seed(seed)
            expected, following = program(x, training), np.random.uniform()
            np.random.seed(seed)
            assert torch.equal(compiled(x, training), expected)
            assert np.random.uniform() == following
