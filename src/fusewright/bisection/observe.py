"""Runs a graph on copies of its inputs, and keeps all that can be seen of it: results, inputs after
the call, and gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.bisection.differences import Difference, Expected, difference
from fusewright.bisection.double import InDouble, widened
from fusewright.records import record

Run = Callable[[list[Any]], Any]
"""Takes a graph's inputs as one list, gives its results."""

NOISY_RUNS: Final = 3
SEED: Final = 0


@record(kw_only=True)
class Observation:
    """All that can be seen of one call."""

    values: dict[str, Any]
    """Values by their names: `result 0`, `input 1 after the call`, `gradient of input 2`."""


@record(kw_only=True)
class Reference:
    """A call as eager makes it, and without rounding."""

    values: dict[str, Expected]

    def first_difference(self, observation: Observation) -> tuple[str, Difference] | None:
        """The first value that differs, and how."""
        for name, expected in self.values.items():
            if name not in observation.values:
                return name, Difference(kind="type", detail="it is not there")
            differs = difference(observation.values[name], expected)
            if differs is not None:
                return name, differs
        return None


def copies(values: Sequence[Any]) -> list[Any]:
    """Copies with the same strides, which share memory where the originals do, and require grad
    where they do. What has a history gets one of its own.
    """
    copied = copy.deepcopy([_detached(value) for value in values])
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            copied[place].requires_grad_()
    return copied


def with_histories(leaves: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """The inputs of a graph for `leaves`: a tensor that is no leaf where `like` has none."""
    return [
        leaf.clone() if isinstance(original, torch.Tensor) and not original.is_leaf else leaf
        for leaf, original in zip(leaves, like, strict=True)
    ]


def observe(run: Run, inputs: Sequence[Any]) -> Observation:
    """The observation of `run` on copies of `inputs`. Raises its exceptions."""
    return _observe(run, inputs, copies(inputs))


def expect(graph: fx.GraphModule, inputs: Sequence[Any]) -> Reference:
    """The expected observation of a captured graph. Raises its exceptions, run eagerly."""

    def run(arguments: list[Any]) -> Any:
        return graph(*arguments)

    watch = _Narrowest()
    watch.see(inputs)
    with watch:
        eager = observe(run, inputs)
    exact = _in_double(run, inputs, InDouble())
    noisy = [
        _in_double(run, inputs, InDouble(torch.finfo(watch.dtype).eps, seed))
        for seed in range(NOISY_RUNS)
    ]
    return Reference(
        values={
            name: Expected(
                eager=value,
                exact=None if exact is None else exact.values.get(name),
                noisy=tuple(
                    observation.values.get(name) for observation in noisy if observation is not None
                ),
            )
            for name, value in eager.values.items()
        }
    )


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _observe(run: Run, inputs: Sequence[Any], leaves: list[Any]) -> Observation:
    state = torch.get_rng_state()
    torch.manual_seed(SEED)
    try:
        arguments = with_histories(leaves, inputs)
        results = list(_flat(run(list(arguments))))
        values = {f"result {place}": _kept(value) for place, value in enumerate(results)}
        values |= {
            f"input {place} after the call": _kept(value)
            for place, value in enumerate(arguments)
            if isinstance(value, torch.Tensor)
        }
        values |= _gradients(results, leaves)
    finally:
        torch.set_rng_state(state)
    return Observation(values=values)


def _gradients(results: Sequence[Any], leaves: Sequence[Any]) -> dict[str, Any]:
    """The gradients of the inputs, for random gradients of the results."""
    outputs = [
        result
        for result in results
        if isinstance(result, torch.Tensor) and result.requires_grad and result.grad_fn is not None
    ]
    wanted = {
        place: leaf
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    }
    if not outputs or not wanted:
        return {}
    random = torch.Generator().manual_seed(SEED)
    # Eighths are the same numbers in every type.
    tangents = [
        (torch.randint(-16, 17, output.shape, generator=random) / 8).to(output.device, output.dtype)
        for output in outputs
    ]
    gradients = torch.autograd.grad(
        outputs,
        list(wanted.values()),
        tangents,
        allow_unused=True,
    )
    return {
        f"gradient of input {place}": _kept(gradient)
        for place, gradient in zip(wanted, gradients, strict=True)
    }


def _in_double(run: Run, inputs: Sequence[Any], mode: InDouble) -> Observation | None:
    """The call in double precision; None where some operator has no such version, and where inputs
    share memory, which copies in double precision would not.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    memories = {value.untyped_storage().data_ptr() for value in tensors if value.numel()}
    if len(memories) < sum(value.numel() > 0 for value in tensors):
        return None
    leaves = [
        widened(value).requires_grad_(original.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value, original in zip(
            copy.deepcopy([_detached(argument) for argument in inputs]), inputs, strict=True
        )
    ]
    try:
        with mode:
            return _observe(run, inputs, leaves)
    except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
        return None


def _kept(value: Any) -> Any:
    """A value as it is now."""
    if not isinstance(value, torch.Tensor):
        return value
    return copy.deepcopy(value.detach())


def _flat(results: Any) -> Iterator[Any]:
    if isinstance(results, tuple | list):
        for result in results:
            yield from _flat(result)
    elif isinstance(results, dict):
        for result in results.values():
            yield from _flat(result)
    else:
        yield results


class _Narrowest(torch.overrides.TorchFunctionMode):
    """Sees the narrowest floating type that a program computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.float64

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(result if isinstance(result, tuple | list) else (result,))
        return result

    def see(self, values: Sequence[Any]) -> None:
        """Take values that the program has into account."""
        for value in values:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.dtype = max(self.dtype, value.dtype, key=lambda dtype: torch.finfo(dtype).eps)
