"""Python that runs as it stands, as one call of a traced graph: what eager computes better than
loops could, and what nobody can look into.

    bags, kept = embedding_bag(weight, indices, offsets)                  (forward)
    gradient = embedding_bagBackward(indices, offsets, tangent, kept)     (backward)

What such a call keeps for its gradient, and no shape describes, is an opaque value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.aot.graph import AtenGraph
from fusewright.aot.subprograms import differentiable, empty
from fusewright.aot.tracer import Recorder
from fusewright.opaque import Opaque


class EagerCall:
    """The target of a call in a traced graph: a function of tensors, numbers and opaque values. Its
    results, a tuple of tensors and opaque values, share no memory with one another or with what it
    is given.
    """

    graphs: tuple[AtenGraph, ...] = ()
    """No part of it is compiled."""

    def __init__(
        self, function: Callable[..., tuple[Any, ...]], name: str, *, may_raise: bool = False
    ) -> None:
        self.function = function
        self.may_raise = may_raise
        """Whether it is called for its exceptions where nothing reads its results."""

        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        return self.function(*arguments)

    @property
    def signature(self) -> tuple[str, bool]:
        """All that a plan depends on: it is given the function itself."""
        return self.__name__, self.may_raise


def record_eager(
    recorder: Recorder,
    name: str,
    functions: tuple[Callable[..., tuple[Any, ...]], Callable[..., tuple[Any, ...]]],
    arguments: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
) -> list[Any]:
    """Record a library call with a gradient; gives its results, which are like the fakes `results`.

    `functions`: one from the arguments to the results and, last, an opaque value; and one from
    `saved`, tensors among arguments and results, the gradients of the results and the opaque value
    to the gradients of all arguments, None for those that have none.
    """
    forward, backward = functions
    kept = Opaque()
    recorder.record_call(
        EagerCall(forward, name, may_raise=True), tuple(arguments), {}, (*results, kept)
    )
    wanted = [number for number, argument in enumerate(arguments) if argument.requires_grad]

    def gradients(*values: Any) -> tuple[Any, ...]:
        results = backward(*values)
        return tuple([results[number] for number in wanted])

    def record_backward(tangents: Sequence[Any]) -> tuple[Any, ...]:
        likes = [arguments[number] for number in wanted]
        fakes = [empty(recorder, like.shape, like.dtype, like.device) for like in likes]
        call = EagerCall(gradients, f"{name}Backward")
        recorder.record_call(call, (*saved, *tangents, kept), {}, tuple(fakes))
        by_number = dict(zip(wanted, fakes, strict=True))
        return tuple([by_number.get(number) for number in range(len(arguments))])

    tracked = [k for k, result in enumerate(results) if result.is_floating_point()]
    return differentiable(recorder, results, tracked, record_backward, arguments)
