"""Programs run compiled and in eager, side by side: results, writes, gradients, aliasing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fusewright.aot import COMPILER_DECOMPOSITIONS, aot_function
from fusewright.backends.eager import eager

Program = Callable[..., Any]


def compiled(program: Program, **options: Any) -> Program:
    options.setdefault("decompositions", COMPILER_DECOMPOSITIONS)
    return aot_function(program, fw_compiler=eager, **options)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [one for item in value for one in tensors(item)] if isinstance(value, list | tuple) else []
    )


def leaf(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=dtype).requires_grad_()


def leaves_above(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that require grad among `values` and what they were computed from."""
    found = {id(one): one for one in values if one.is_leaf and one.requires_grad}
    nodes = [one.grad_fn for one in values if one.grad_fn is not None]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        nodes += [above for above, _ in node.next_functions if above is not None]
    return list(found.values())


def aliasing(values: list[torch.Tensor]) -> list[tuple[int, int]]:
    """By tensor: the first that it is, and the first whose storage it shares."""
    storages = [one.untyped_storage().data_ptr() or number for number, one in enumerate(values)]
    return [
        (next(n for n, other in enumerate(values) if other is one), storages.index(storage))
        for one, storage in zip(values, storages, strict=True)
    ]


def run(program: Program, make: Callable[[], list[Any]]) -> tuple[list[Any], ...]:
    """Results and inputs afterwards, what they are like, and the gradients of all leaves."""
    made = make()
    inputs = tensors(made)
    leaves = leaves_above(inputs)
    torch.manual_seed(7)
    results = tensors(program(*made))
    values = [*results, *inputs]
    like = [(one.requires_grad, one.is_leaf, one.stride(), one.dtype) for one in results]
    loss = sum(
        (one.double() * torch.arange(1, one.numel() + 1).view(one.shape)).sum()
        for one in values
        if one.requires_grad and not one.is_complex()
    )
    if isinstance(loss, torch.Tensor):
        loss.backward()
    return values, [like, aliasing(values)], [one.grad for one in leaves]


def check(program: Program, make: Callable[[], list[Any]], compile: Any = compiled) -> Program:
    """Compare with eager, twice with one compilation; gives the compiled program."""
    ours = compile(program)
    for _ in range(2):
        given, given_like, given_gradients = run(ours, make)
        wanted, wanted_like, wanted_gradients = run(program, make)
        torch.testing.assert_close(given, wanted)
        assert given_like == wanted_like
        for one, other in zip(given_gradients, wanted_gradients, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
    return ours  # type: ignore[no-any-return]
