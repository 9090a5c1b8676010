"""The gradients of an operator's sample, compiled, beside eager's: a stage of `walk`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate

from tests.end_to_end.gradients import is_writable
from tests.lower.support import graph_of, leaves
from tests.operators.samples import HALF_TYPES, dimension_of_equals, summed_over_equals, tolerance

Gradients = tuple[Tensor | None, ...]
Compiler = Callable[[fx.GraphModule, Sequence[Tensor]], Callable[..., Any]]
"""What makes a callable of a graph and its inputs."""


def check_gradients(
    compiler: Compiler,
    operator: Callable[..., Any],
    unique: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtype: torch.dtype,
) -> None:
    """AssertionError unless the gradients of all floating arguments, for some random gradient of
    what `unique` makes of the results, are eager's, or nearer to those in double precision; those
    of equal elements together, where a GPU may choose any of them. Where eager gives none, nothing
    is compiled.
    """

    def function(*inner: Any, **keywords: Any) -> Any:
        return unique(operator(*inner, **keywords))

    module, tensors = graph_of_call(function, args, kwargs)
    with torch.enable_grad():
        inputs = _leaves(tensors)
        try:
            expected = _gradients(module, inputs, dtype)
        except (RuntimeError, NotImplementedError, IndexError):  # no gradient, or none of this type
            return
        computed = _gradients(compiler(module, inputs), inputs, dtype)
        assert [g is None for g in computed] == [g is None for g in expected], "absent gradients"
        try:
            _assert_close(computed, expected, dtype)
        except AssertionError:
            dim = dimension_of_equals(operator, args, kwargs)
            if dim is not None and tensors[0].is_cuda:
                assert_equals_share(computed, expected, tensors[0], dim, dtype)
            elif not _are_more_exact(computed, expected, module, tensors, dtype):
                raise


def graph_of_call(
    operator: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[fx.GraphModule, list[Tensor]]:
    """A graph of one call, and its tensors. Keywords that the text of a graph cannot hold, such as
    functions, are part of what it calls.
    """
    options = {name: value for name, value in kwargs.items() if not is_writable(value)}
    keywords = {name: value for name, value in kwargs.items() if name not in options}

    def function(*inner: Any, **outer: Any) -> Any:
        return operator(*inner, **outer, **options)

    module, tensors = graph_of(function, args, keywords)
    return module, tensors


def _assert_close(computed: Gradients, expected: Gradients, dtype: torch.dtype) -> None:
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance(dtype))


def assert_equals_share(
    computed: Gradients, expected: Gradients, x: Tensor, dim: int, dtype: torch.dtype
) -> None:
    """AssertionError unless gradients agree, where those of equal elements of the first input `x`
    are taken together: any of them may have been chosen.
    """

    def together(gradients: Gradients) -> Gradients:
        first, *others = gradients
        return (None if first is None else summed_over_equals(first, x, dim), *others)

    _assert_close(together(computed), together(expected), dtype)


def _leaves(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex())
        for tensor in tensors
    ]


def _gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor], dtype: torch.dtype
) -> Gradients:
    """The gradients of the inputs for some random gradient of the results, of numbers that `dtype`
    has. RuntimeError: no result has a gradient.
    """
    tracked = [
        result
        for result in leaves(function(*inputs))
        if isinstance(result, Tensor) and result.requires_grad
    ]
    generator = torch.Generator().manual_seed(1)
    tangents = [
        torch.randn(result.shape, generator=generator).to(dtype).to(result.device, result.dtype)
        for result in tracked
    ]
    trained = [tensor for tensor in inputs if tensor.requires_grad]
    return torch.autograd.grad(tracked, trained, tangents, allow_unused=True)


def _in_double(module: fx.GraphModule) -> fx.GraphModule:
    """The module with double precision wherever its calls name a half type."""

    def widened(value: Any) -> Any:
        return torch.float64 if isinstance(value, torch.dtype) and value in HALF_TYPES else value

    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.args = map_aggregate(node.args, widened)
        node.kwargs = map_aggregate(node.kwargs, widened)
    return fx.GraphModule(module, graph)


def _are_more_exact(
    computed: Gradients,
    expected: Gradients,
    module: fx.GraphModule,
    tensors: Sequence[Tensor],
    dtype: torch.dtype,
) -> bool:
    """True when gradients of half type are nearer to those in double precision than eager's, or
    off by what rounding the results of each operator once more explains.
    """
    if dtype not in HALF_TYPES:
        return False
    wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]
    exact = _gradients(_in_double(module), _leaves(wide), dtype)
    for one, other, truth in zip(computed, expected, exact, strict=True):
        if one is None or other is None or truth is None:
            continue
        error, eager_error = ((truth - x.double()).abs().nan_to_num() for x in (one, other))
        room = 2e-2 * truth.abs().nan_to_num() + 1e-2
        if not bool((error <= eager_error + room).all()):
            return False
    return True
