"""Formulas of gradients that read the values of tensors, as one call in a traced graph.

The formula of a custom operator or of an autograd function is Python code, which the engine runs on
fakes, so that its operators are recorded. One that asks for values (`for end in offsets.tolist()`)
cannot be looked into; it is called when the graph runs, on what its forward kept for it:

    grouped_mm = mine.grouped_mm(input, weight, offsets)
    grouped_mmBackward = (input, weight, offsets, tangent0)     # runs the formula as it is written
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from fusewright import torch_compat
from fusewright.aot.eager_calls import EagerCall
from fusewright.aot.leaves import filled, with_leaves
from fusewright.aot.subprograms import empty
from fusewright.aot.tracer import Recorder
from fusewright.containers import tensors
from fusewright.errors import DataDependent
from fusewright.symbolic.nodes import SYMBOLIC

Formula = Callable[..., Any]
"""Takes what stands for `ctx`, and the gradients of the results; gives one gradient or a tuple."""


Geometry = tuple[Sequence[int], torch.dtype, torch.device]
"""The size, dtype and device of a gradient."""


def _run_formula(
    formula: Formula, needed: Sequence[bool], taken: Any, *arguments: Any
) -> tuple[torch.Tensor, ...]:
    """The gradients that are `needed`, by argument of the function, from tensors and symbolic
    numbers.

    `taken`: the saved tensors, the attributes of `ctx`, the gradients of the results, and by
    gradient that is needed its geometry: with a `Leaf` for each of `arguments`.
    """
    saved, attributes, tangents, likes = filled(taken, arguments)
    context = SimpleNamespace(saved_tensors=saved, needs_input_grad=needed, **attributes)
    result = formula(context, *tangents)
    gradients = result if isinstance(result, tuple) else (result,)
    wanted = [gradient for gradient, is_needed in zip(gradients, needed, strict=False) if is_needed]
    memory = {torch_compat.storage_key(tensor) for tensor in tensors(arguments)}
    return tuple(
        [_own(gradient, like, memory) for gradient, like in zip(wanted, likes, strict=True)]
    )


def _own(gradient: torch.Tensor | None, like: Geometry, memory: set[int]) -> torch.Tensor:
    """`gradient` as the engine would take it, dense, and in memory that is not in `memory`."""
    size, dtype, device = like
    if gradient is None:
        return torch.zeros(size, dtype=dtype, device=device)
    summed = gradient if gradient.shape == torch.Size(size) else gradient.sum_to_size(size)
    result = summed.to(dtype).contiguous()
    if torch_compat.storage_key(result) in memory:
        result = result.clone(memory_format=torch.contiguous_format)
    memory.add(torch_compat.storage_key(result))
    return result


# -- recording -------------------------------------------------------------------------------------


def watch_formulas(recorder: Recorder, nodes: Iterable[Any]) -> None:
    """Let formulas of those among the autograd `nodes` that have them in Python be called as they
    are where they read values.
    """
    for node in nodes:
        if isinstance(node, BackwardCFunction):
            # The engine looks `apply` up in the node, whose class has the usual one.
            apply = functools.partial(_gradients, recorder, weakref.ref(node))
            node.apply = apply  # type: ignore[method-assign]


def _gradients(recorder: Recorder, reference: Any, *tangents: Any) -> Any:
    """The gradients that the engine gets from a formula: recorded in its parts, or as a whole."""
    node = reference()
    recorded = len(recorder.graph.nodes)
    try:
        return type(node).apply(node, *tangents)
    except Exception as error:
        if not _reads_values(error):
            raise
    _erase_since(recorder, recorded)
    return _record_whole(recorder, node, tangents)


def _reads_values(error: Exception) -> bool:
    return isinstance(error, DataDependent) or torch_compat.is_read_of_fake(error)


def _erase_since(recorder: Recorder, count: int) -> None:
    """Erase the operators behind the first `count` nodes that nothing uses."""
    before = list(recorder.graph.nodes)
    kept = set(before[:count])
    for node in reversed(before[count:]):
        is_part = kept.issuperset(node.all_input_nodes) and "getitem" in node.name
        computes = isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))
        if node.op == "call_function" and computes and not node.users and not is_part:
            recorder.graph.erase_node(node)


def _record_whole(recorder: Recorder, node: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """Record one call of the formula of `node`; gives a gradient, or None, for each argument."""
    needed = node.needs_input_grad
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    likes = [torch_compat.autograd.geometry_of_edge(*edge) for edge in edges]
    attributes = {name: value for name, value in vars(node).items() if name != "apply"}
    arguments: list[Any] = []
    kinds = (torch.Tensor, *SYMBOLIC)
    taken = with_leaves((node.saved_tensors, attributes, tangents, likes), arguments, kinds)
    formula = torch_compat.autograd.formula_of_gradient(node)
    run = functools.partial(_run_formula, formula, tuple(needed), taken)
    results = [empty(recorder, *like) for like in likes]
    recorder.record_call(EagerCall(run, type(node).__name__), tuple(arguments), {}, tuple(results))
    gradients = iter(results)
    return tuple(next(gradients) if needs else None for needs in needed)
