"""Graphs that raise while they run: the call begins again as it was written, so that exceptions
come from eager's lines and into the program's own handlers.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import GraphFailed
from tests.capture.agreement import assert_same
from tests.capture.reporting import frames, report

X = torch.arange(3.0)
OUTSIDE = torch.tensor([7])
INSIDE = torch.tensor([1])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "fusewright"])


def raised(x, index):
    y = x + 1
    return y[index]


def looked_up(x, index):
    return x[index]


def raised_in_an_inlined_function(x, index):
    y = x + 1
    return looked_up(
        y,
        index,
    )


def raised_behind_a_break(x, index, *rest, scale=2, **others):
    y = x * scale
    report(1)
    z = y + 1
    return z[index], rest, others


def raised_before_a_break(x, index):
    y = x[index]
    report(1)
    return y


def raised_while_handling(x, index):
    try:
        {}["a"]
    except KeyError:
        report(1)
        return x[index]


def raised_in_a_loop(x, index):
    for n in range(3):
        x = x + n
        report(n)
        x = x + x[index]
    return x


def closure(x, index):
    def inner():
        return x[index]

    x = x + 1
    return inner()


def by_a_library(x, index):
    square = x[index].reshape(1, 1) * 0
    return torch.linalg.inv(square)


RAISING = [
    raised, raised_in_an_inlined_function, raised_behind_a_break, raised_before_a_break,
    raised_while_handling, raised_in_a_loop, closure, by_a_library,
]  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("program", RAISING, ids=lambda program: program.__name__)
def test_frames_and_lines_are_those_of_eager(program: Callable[..., Any], backend: str) -> None:
    compiled = fusewright.compile(program, backend=backend)
    with contextlib.suppress(RuntimeError):
        compiled(X, INSIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert frames(compiled, X, OUTSIDE) == frames(program, X, OUTSIDE)


def handled(x, index, log):
    log.append("begun")
    try:
        y = x[index]
    except IndexError as error:
        log.append(type(error).__name__)
        y = x * 2
    finally:
        log.append("end")
    return y + 1


def handled_behind_a_break(x, index, log):
    numbers = iter([1, 2, 3])
    log.append(next(numbers))
    report(1)
    try:
        log.append(next(numbers))
        y = x[index]
    except IndexError:
        y = x * 2
    log.append(next(numbers))
    return y + 1


def suppressed(x, index, log):
    y = x * 2
    with contextlib.suppress(IndexError):
        y = x[index]
    log.append(1)
    return y


@BACKENDS
@pytest.mark.parametrize("program", [handled, handled_behind_a_break, suppressed])
def test_handlers_of_the_program(program: Callable[..., Any], backend: str) -> None:
    compiled = fusewright.compile(program, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index in (INSIDE, OUTSIDE, OUTSIDE, INSIDE):
            found: list[Any] = []
            expected: list[Any] = []
            assert_same(compiled(X, index, found), program(X, index, expected))
            assert found == expected
    assert "runs as it was written" in str(fusewright.explain(compiled))


def test_random_state_is_used_once() -> None:
    def program(x, index):
        y = torch.nn.functional.dropout(x, 0.5) + torch.rand(3)
        try:
            return y[index]
        except IndexError:
            return y + torch.randn(3)

    compiled = fusewright.compile(program, backend="eager", fullgraph=True)
    for index in (INSIDE, OUTSIDE, INSIDE):
        torch.manual_seed(3)
        expected, state = program(X, index), torch.get_rng_state()
        torch.manual_seed(3)
        assert_same(compiled(X, index), expected)
        assert torch.equal(torch.get_rng_state(), state)


def test_new_tensors_may_be_written_to() -> None:
    def program(x, index):
        y = torch.zeros(3)
        y[0] = 4
        y.add_(x)
        return y[index]

    compiled = fusewright.compile(program, backend="eager", fullgraph=True)
    assert frames(compiled, X, OUTSIDE) == frames(program, X, OUTSIDE)


@pytest.mark.parametrize("way", ["method", "view", "item", "statistics"])
def test_inputs_are_not_written_to_twice(way: str) -> None:
    norm = torch.nn.BatchNorm1d(3)

    def program(x, index):
        match way:
            case "method":
                x.add_(1)
            case "view":
                x.view(-1)[1:].mul_(3)
            case "item":
                x[0, 0] = 5
            case "statistics":
                norm(x)
        return x[index]

    compiled = fusewright.compile(program, backend="eager", fullgraph=True)
    expected, found = torch.ones(2, 3), torch.ones(2, 3)
    with pytest.raises(IndexError):
        program(expected, OUTSIDE)
    before = int(norm.num_batches_tracked)
    with pytest.raises(IndexError) as raised:
        compiled(found, OUTSIDE)
    assert torch.equal(found, expected)
    assert int(norm.num_batches_tracked) == 2 * before
    assert "must not happen twice" in raised.value.__notes__[0]


def writes_and_raises(x, index, log):
    log.append("begun")
    x.add_(1)
    log.append(len(log))
    y = x[index]
    return y * 2


def writes_to_its_argument(x, index, log):
    log.append("begun")
    x *= 2
    log.append(len(log))
    return x


def view_of_a_leaf() -> torch.Tensor:
    return torch.ones(4, requires_grad=True)[1:]


@pytest.mark.parametrize("backend", ["aot_eager", "fusewright"])
@pytest.mark.parametrize(
    ("program", "make"),
    [(writes_and_raises, lambda: torch.ones(3)), (writes_to_its_argument, view_of_a_leaf)],
)
def test_a_graph_that_has_not_written_yet_begins_again(
    program: Callable[..., Any], make: Callable[[], torch.Tensor], backend: str
) -> None:
    compiled = fusewright.compile(program, backend=backend)
    compiled(torch.ones(3), INSIDE, [])
    for _ in range(2):
        expected, found = make(), make()
        expected_log: list[Any] = []
        found_log: list[Any] = []
        lines = frames(compiled, found, OUTSIDE, found_log)
        assert lines == frames(program, expected, OUTSIDE, expected_log)
        assert found_log == expected_log and found_log[0] == "begun"
        assert torch.equal(found, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "fusewright"])
def test_a_graph_that_has_written_does_not_begin_again(backend: str) -> None:
    def program(x, y):
        x.mul_(2)
        y.mul_(2)

    compiled = fusewright.compile(program, backend=backend)
    x, y = torch.ones(3, requires_grad=True) * 1, view_of_a_leaf()
    with pytest.raises(RuntimeError, match="a view of a leaf") as raised:
        compiled(x, y)
    assert torch.equal(x, torch.full((3,), 2.0))
    assert "must not happen twice" in raised.value.__notes__[0]


def test_a_leaf_that_must_not_be_written_to_is_told_from_other_tensors() -> None:
    def program(x):
        try:
            x.mul_(2)
        except RuntimeError:
            return x + 1
        return x

    compiled = fusewright.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for is_leaf in (True, False, True):
            found = torch.ones(3, requires_grad=True)
            expected = torch.ones(3, requires_grad=True)
            if not is_leaf:
                found, expected = found * 1, expected * 1
            assert_same(compiled(found), program(expected))


def failing(error: Callable[[], BaseException]) -> Callable[..., Any]:
    """A backend whose graphs raise."""

    def backend(graph_module: Any, inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise error()

        return run

    return backend


def plain(x, index):
    return x[index]


def test_a_graph_that_is_wrong_is_told_once() -> None:
    compiled = fusewright.compile(plain, backend=failing(lambda: ValueError("wrong")))
    with pytest.warns(RuntimeWarning, match=r"plain, .*raised ValueError: wrong") as warned:
        for _ in range(2):
            assert torch.equal(compiled(X, INSIDE), plain(X, INSIDE))
    assert len(warned) == 1 and "in run\n    raise error()" in str(warned[0].message)
    with pytest.raises(IndexError):
        compiled(X, OUTSIDE)


@pytest.mark.parametrize("how", [{"fullgraph": True}, {"options": {"strict": True}}])
def test_a_graph_that_is_wrong_is_an_error(how: dict[str, Any]) -> None:
    compiled = fusewright.compile(plain, backend=failing(lambda: ValueError("wrong")), **how)
    with pytest.raises(GraphFailed, match="defect of the backend") as raised:
        compiled(X, INSIDE)
    assert raised.value.raised == "ValueError: wrong"
    assert raised.value.location.line == plain.__code__.co_firstlineno


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes(kind: type[BaseException]) -> None:
    compiled = fusewright.compile(plain, backend=failing(kind))
    with pytest.raises(kind):
        compiled(X, INSIDE)


@pytest.mark.parametrize("kind", ["function", "method"])
def test_what_a_signal_raises_passes(kind: str) -> None:
    class Late(Exception):
        def handle(self, number: int, frame: Any) -> None:
            raise self

    def handle(number: int, frame: Any) -> None:
        raise Late

    def while_it_runs() -> BaseException:
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("the handler raises")

    before = signal.signal(signal.SIGUSR1, handle if kind == "function" else Late().handle)
    try:
        with pytest.raises(Late):
            fusewright.compile(plain, backend=failing(while_it_runs))(X, INSIDE)
    finally:
        signal.signal(signal.SIGUSR1, before)


class TooMuch(Exception):
    """What a hook raises that has been given two tensors."""


class Counting:
    """A hook of what is saved for backward, in each form that one has."""

    def __init__(self) -> None:
        self.given: list[torch.Tensor] = []

    def pack(self, tensor: torch.Tensor, raised: type[Exception] = TooMuch) -> torch.Tensor:
        self.given.append(tensor)
        if len(self.given) == 2:
            raise raised
        return tensor

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.pack(tensor)


@BACKENDS
@pytest.mark.parametrize("kind", ["function", "method", "partial", "object"])
def test_what_a_hook_of_saved_tensors_raises_passes(kind: str, backend: str) -> None:
    """It has counted the call's tensors: of another run it would be given more."""

    def program(x, y):
        return (x * y).sin().exp()

    counting = Counting()
    hooks: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "function": lambda tensor: counting.pack(tensor),
        "method": counting.pack,
        "partial": functools.partial(counting.pack, raised=TooMuch),
        "object": counting,
    }
    compiled = fusewright.compile(program, backend=backend)
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    for _ in range(2):
        counting.given.clear()
        with (
            torch.autograd.graph.saved_tensors_hooks(hooks[kind], lambda tensor: tensor),
            pytest.raises(TooMuch),
        ):
            compiled(x, y)
        assert [type(tensor) for tensor in counting.given] == [torch.Tensor] * 2


def test_a_compiled_function_in_another() -> None:
    inner = fusewright.compile(handled, backend="eager")

    def outer(x, index, log):
        y = inner(x + 1, index, log)
        return y * 2

    compiled = fusewright.compile(outer, backend="eager")
    for index in (INSIDE, OUTSIDE):
        found: list[Any] = []
        expected: list[Any] = []
        assert_same(compiled(X, index, found), handled(X + 1, index, expected) * 2)
        assert found == expected


def test_methods_and_self() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.calls = 0

        def forward(self, x, index):
            self.calls += 1
            return (self.weight * x)[index]

    model = Model()
    compiled = fusewright.compile(model, backend="eager")
    for index in (INSIDE, OUTSIDE, OUTSIDE):
        with contextlib.suppress(IndexError):
            compiled(X, index)
    assert model.calls == 3


def test_nothing_stays_alive() -> None:
    compiled = fusewright.compile(plain, backend="eager")
    tensor = torch.ones(3)
    watched = weakref.ref(tensor)
    with pytest.raises(IndexError):
        compiled(tensor, OUTSIDE)
    del tensor
    gc.collect()
    assert watched() is None


SIZES_BY_DATA: dict[str, Callable[..., Any]] = {
    "unique": lambda x, y: torch.remainder(y, torch.unique(x)),
    "mask": lambda x, y: torch.where(x[x > 0] > 1, x[x > 0], y) + 1,
    "nonzero": lambda x, y: x.nonzero()[:, 0] * y,
}

SINGLE = {"unique": [2, 2, 2], "mask": [0, 0, 2], "nonzero": [0, 0, 2]}
"""Values of which each of these programs chooses one."""


@pytest.mark.parametrize("name", SIZES_BY_DATA)
def test_a_size_found_in_data_is_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two sizes are taken to be equal, but may be broadcast: no defect, and no warning."""
    program = SIZES_BY_DATA[name]
    compiled = fusewright.compile(program)
    y = torch.arange(3.0)
    for x in ([1, 2, 3], SINGLE[name], [1, 2, 3]):
        assert_same(compiled(torch.tensor(x), y), program(torch.tensor(x), y))
    explanation = str(fusewright.explain(compiled))
    assert "its size, found in data, is (1" in explanation
    assert "report" not in explanation
    assert not caplog.records
