"""Training calls of compiled graphs: what fails in them, or in their backward, leaves nothing
behind; threads share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import FusewrightError
from fusewright.native import CallPlan, TrainingCall, history_backward, history_forward
from fusewright.records import record
from fusewright.runtime import native_plan
from tests.leftovers import leaves_nothing

Tensor = torch.Tensor

# -- programs --------------------------------------------------------------------------------------


def layers(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (torch.softmax(torch.tanh(x @ w) @ w.t(), -1),)


def several_results(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = torch.exp(x)
    return y, (y @ w).sum(), torch.cumsum(w, 0) * 2


def saved_for_another(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Of each history, the other saves an output."""
    a, b = torch.exp(x), torch.exp(w)
    return a * b.detach().sum(), b * a.detach().sum(), a, b


def of_sizes(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (x.mean() * x.shape[0] + w.sum(), x.expand(3, *x.shape).transpose(0, 1) * 2)


PROGRAMS = (layers, several_results, saved_for_another, of_sizes)


def arguments(rows: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x, w = torch.randn(rows, 6, generator=generator), torch.randn(6, 6, generator=generator)
    return x.requires_grad_(), w.requires_grad_()


def gradients(function: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Those of the sum of all results, each weighted."""
    results = function(*inputs)
    weighted = [one * torch.linspace(0.5, 2, one.numel()).view_as(one) for one in results]
    return list(torch.autograd.grad([one.sum() for one in weighted], inputs, allow_unused=True))


def compiled(program: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    # An exception in an alternative that is not chosen would never be raised.
    options = {"strict": True, "target": "native", "multi_kernel": "off"}
    return fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options)


def training_call(function: Callable[..., Any]) -> TrainingCall:
    """What runs the one graph of a compiled function."""
    (compilation,) = fusewright.api.compilations(function)
    call = compilation.compiled.run
    assert isinstance(call, TrainingCall)
    return call


# -- what fails ------------------------------------------------------------------------------------


class Injected(Exception):
    """What a test raises in a call."""


def fail(*values: Any) -> Any:
    raise Injected


@record(frozen=False)
class Replaceable:
    """Runs a plan, or what stands for it."""

    operations: tuple[native_plan.Operation, ...]
    others: tuple[Any, ...]
    plan: CallPlan
    inputs: tuple[Any, ...] = ()
    """Of the last call."""

    def __call__(self, inputs: list[Any]) -> Any:
        self.inputs = tuple(inputs)
        return self.plan(inputs)

    def failing_at(self, place: int) -> CallPlan:
        """The plan with an exception ahead of the operation at `place`."""
        constants = (*self.others[3], fail)
        failure = ("call", 1, (None, ~(len(constants) - 1), 0, None))
        operations = (*self.operations[:place], failure, *self.operations[place:])
        return CallPlan(operations, *self.others[:3], constants, *self.others[4:])


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Replaceable]:
    """Those of the forward halves, and then of backward, that the test makes."""
    made: list[Replaceable] = []

    def make(operations: tuple[native_plan.Operation, ...], *others: Any) -> Replaceable:
        made.append(Replaceable(operations, others, CallPlan(operations, *others)))
        return made[-1]

    monkeypatch.setattr(native_plan, "CallPlan", make)
    return made


@pytest.mark.parametrize(
    ("program", "dynamic"),
    [
        (layers, False),
        *[
            pytest.param(program, dynamic, marks=pytest.mark.thorough)
            for program in PROGRAMS
            for dynamic in (False, True)
            if (program, dynamic) != (layers, False)
        ],
    ],
)
def test_an_exception_at_any_operation_leaves_nothing_behind(
    program: Callable[..., Any], dynamic: bool, plans: list[Replaceable]
) -> None:
    function = compiled(program, dynamic)
    inputs = arguments()
    expected = gradients(program, inputs)
    torch.testing.assert_close(gradients(function, inputs), expected)
    given, call_graph = plans[0].inputs, training_call(function)

    def run(*_: Tensor) -> Any:
        return call_graph(*given)

    assert len(plans) > 1
    for plan in plans:
        whole = plan.plan
        failing = [plan.failing_at(place) for place in range(len(plan.operations) + 1)]

        def call(plan: Replaceable = plan, failing: Sequence[CallPlan] = failing) -> None:
            for plan.plan in failing:
                with pytest.raises(Injected):
                    gradients(run, inputs)

        leaves_nothing(call)
        plan.plan = whole
    torch.testing.assert_close(gradients(run, inputs), expected)


def training_call_of_layers() -> TrainingCall:
    function = compiled(layers)
    gradients(function, arguments())
    return training_call(function)


class Marked(torch.Tensor):
    """A subclass."""


def test_calls_and_gradients_that_are_refused_leave_nothing_behind() -> None:
    """But for hooks that raise when a saved tensor is asked for, of which torch keeps something, in
    eager too.
    """
    run = training_call_of_layers()
    inputs = arguments()

    def hook() -> None:
        packing = torch.autograd.graph.saved_tensors_hooks(fail, lambda saved: saved)
        with pytest.raises(Injected), packing:
            run(*inputs)

    def subclass() -> None:
        (result,) = run(*inputs)
        with pytest.raises(FusewrightError, match="a gradient of type Marked"):
            torch.autograd.grad(result, inputs, torch.ones_like(result).as_subclass(Marked))

    def freed() -> None:
        (result,) = run(*inputs)
        result.sum().backward(retain_graph=False)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result.sum().backward()
        for one in inputs:
            one.grad = None

    def written() -> None:
        copies = [one.detach().clone().requires_grad_() for one in inputs]
        (result,) = run(*copies)
        with torch.no_grad():
            copies[1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()

    def all_of_them() -> None:
        for call in (hook, subclass, freed, written):
            call()

    leaves_nothing(all_of_them)


@pytest.mark.parametrize("program", [pytest.param(layers, marks=pytest.mark.thorough), of_sizes])
def test_steps_leave_nothing_behind(program: Callable[..., Any]) -> None:
    """With gradients laid out as they come, with gaps, and absent ones."""
    function = compiled(program)
    inputs = arguments()
    gradients(function, inputs)
    run = training_call(function)

    def call() -> None:
        gradients(run, inputs)
        results = run(*inputs)
        gap = torch.ones(*results[0].shape, 2)[..., 0]
        torch.autograd.grad(results[0], inputs, gap, allow_unused=True)
        with torch.no_grad():
            run([*inputs])

    leaves_nothing(call)


# -- threads, misuse -------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [layers, saved_for_another])
def test_threads_share_a_training_call(program: Callable[..., Any]) -> None:
    function = compiled(program, True)
    gradients(function, arguments())
    start = threading.Barrier(16)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        start.wait()
        try:
            for turn in range(3):
                inputs = arguments(6 + (number + turn) % 3)
                torch.testing.assert_close(gradients(function, inputs), gradients(program, inputs))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_what_is_called_with_other_arguments_is_refused() -> None:
    run = training_call_of_layers()
    (result,) = run(*arguments())
    node: Any = result.grad_fn
    assert node.name() == type(node).__name__ == "CompiledFunctionBackward"
    with pytest.raises(TypeError, match="a gradient for each of its outputs"):
        node.apply()
    with pytest.raises(TypeError, match="a gradient for each of its outputs"):
        history_backward(torch.exp(arguments()[0]).grad_fn, result)
    with pytest.raises(TypeError, match="made by a TrainingCall"):
        history_forward(node, node.call)
    with pytest.raises(TypeError, match="made by a TrainingCall"):
        history_forward(node)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no arguments by name"):
        run(inputs=arguments())  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="takes 2 inputs; 1 given"):
        run(arguments()[0])
    with pytest.raises(TypeError, match="tuple of histories"):
        TrainingCall(list, (1,), 1, list, None, None)  # type: ignore[arg-type]
