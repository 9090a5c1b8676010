"""The backend that runs each graph by every stage of the compiler, and names the first stage whose
results are not eager's. Slow; without gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.backends.aot_eager import aot_eager, aot_eager_decomp_partition
from fusewright.backends.loops_eager import loops_eager
from fusewright.backends.torch_dynamo import fusewright
from fusewright.errors import StageDiffers

STAGES: dict[str, Callable[..., Callable[..., Any]]] = {
    "tracing": aot_eager,
    "decompositions": aot_eager_decomp_partition,
    "lowering to loops": loops_eager,
    "scheduling and kernels": lambda graph, inputs: fusewright(
        graph, inputs, options={"strict": True, "verify": True}
    ),
}
"""Stages in the compiler's order: each compiles the whole graph, and runs what one more made."""


def stage_check(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph as it is, after each call of which every stage is given the same inputs.

    Random numbers are drawn from the same state, but a stage may draw them in another order. Calls
    raise StageDiffers for the first stage whose results, or whose changes of inputs, are not
    eager's within torch.testing's tolerances; compiling raises what a stage raises.
    """
    with torch.no_grad():
        compiled = {
            name: compile_stage(graph, [_detached(value) for value in example_inputs])
            for name, compile_stage in STAGES.items()
        }

    def call(*inputs: Any) -> Any:
        copies, random_state = _copies(inputs), torch.get_rng_state()
        results = graph(*inputs)
        after = torch.get_rng_state()
        expected = _copies([*results, *inputs])
        for name, run in compiled.items():
            torch.set_rng_state(random_state)
            own = _copies(copies)
            with torch.no_grad():
                values = [*run(*own), *own]
            _compare(name, values, expected, len(results))
        torch.set_rng_state(after)
        return results

    return call


def _compare(stage: str, values: Sequence[Any], expected: Sequence[Any], results: int) -> None:
    """Raise StageDiffers unless all are close."""
    for position, (value, wanted) in enumerate(zip(values, expected, strict=True)):
        changed = f"input {position - results}, after the call,"
        what = f"result {position}" if position < results else changed
        try:
            torch.testing.assert_close(value, wanted, equal_nan=True)
        except AssertionError as error:
            raise StageDiffers(stage, what, str(error)) from None


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _copies(values: Sequence[Any]) -> list[Any]:
    """Copies with the same strides, which share memory where the originals do."""
    return copy.deepcopy([_detached(value) for value in values])
