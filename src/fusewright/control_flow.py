"""Conditions and loops of the program that stand in its graph as calls: what each does with its
functions, on tensors and on fakes.

    torch.cond(x.sum() > 0, f, g, (x,))   ->   cond(f, g, x.sum() > 0, (x,))

On fakes, nobody knows which side runs: both are called, and must give alike results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.containers import mapped, tensors
from fusewright.errors import UnsupportedOperator
from fusewright.fake import FakeTensor
from fusewright.torch_compat import SCAN_STACKS_ALONG_ITS_DIMENSION

Function = Callable[..., Any]


def cond(true: Function, false: Function, predicate: torch.Tensor, operands: Sequence[Any]) -> Any:
    """`torch.cond` with a tensor as predicate."""
    if not isinstance(predicate, FakeTensor):
        return (true if predicate else false)(*operands)
    results = true(*operands)
    require_alike("the sides of a condition", results, false(*operands))
    return copied(results)


def while_loop(condition: Function, body: Function, carried: Sequence[torch.Tensor]) -> Any:
    """`torch.while_loop`: the last values of `carried`."""
    if any(isinstance(value, FakeTensor) for value in carried):
        condition(*carried)
        before, after = tuple(carried), tuple(body(*carried))
        require_alike("what a loop carries", before, after)
        while _gains_history(before, after):
            before, after = after, tuple(body(*after))
        pairs = zip(before, after, strict=True)
        return tuple([torch.clone(old if old.requires_grad else new) for old, new in pairs])
    values = tuple(carried)
    if not condition(*values):
        return tuple(copied(values))
    while True:
        values = tuple(body(*values))
        if not condition(*values):
            return values


def scan(combine: Function, init: Any, xs: Any, dim: int = 0, reverse: bool = False) -> Any:
    """`scan`: the last carry, and the results of all steps stacked, along `dim` where they have
    that many dimensions.
    """
    if any(isinstance(value, FakeTensor) for value in tensors([init, xs])):
        count = next(tensors(xs)).shape[dim]
        before, (carry, result) = init, combine(init, sliced(xs, dim, 0))
        require_alike("what a scan carries", init, carry)
        while _gains_history(before, carry):  # which results have from the second step on
            before, (carry, result) = carry, combine(carry, sliced(xs, dim, 0))
        return copied(carry), mapped(
            lambda result_of_step: moved(_repeated(result_of_step, count), dim), result
        )
    return scan_by_steps(combine, init, xs, dim, reverse)


def scan_by_steps(
    combine: Function, init: Any, xs: Any, dim: int = 0, reverse: bool = False
) -> Any:
    """`scan` with every step made, on fakes too."""
    count = next(tensors(xs)).shape[dim]
    carry, results = init, []
    for step in range(count)[::-1] if reverse else range(count):
        carry, result = combine(carry, sliced(xs, dim, step))
        results.append(result)
    return carry, stacked(results[::-1] if reverse else results, dim)


FUNCTIONS: dict[str, Function] = {"cond": cond, "while_loop": while_loop, "scan": scan}
"""By name."""


class ControlFlow:
    """The target of such a call in a captured graph. Its first argument are the tensors that each
    function reads from outside, the others those of the function in `FUNCTIONS`.
    """

    def __init__(self, name: str, modules: Sequence[fx.GraphModule]) -> None:
        self.name = name
        self.modules = modules
        """Graphs of the functions: from the tensors in their arguments, and those from outside."""

        self.__name__ = self.__qualname__ = name  # as fx asks them of the target of a call
        self.__module__ = __name__

    def __call__(self, outside: Sequence[Sequence[Any]], *arguments: Any, **keywords: Any) -> Any:
        pairs = zip(self.modules, outside, strict=True)
        functions = [called(module, read) for module, read in pairs]
        return copied(FUNCTIONS[self.name](*functions, *arguments, **keywords))


def called(module: fx.GraphModule, outside: Sequence[Any]) -> Function:
    """A function's graph as the function: called with its arguments."""
    return lambda *arguments, **keywords: module(*tensors((arguments, keywords)), *outside)


# -- containers ----------------------------------------------------------------------------------


def copied(value: Any) -> Any:
    return mapped(torch.clone, value)


def sliced(xs: Any, dim: int, step: int) -> Any:
    return mapped(lambda tensor: tensor.select(dim, step), xs)


def stacked(results: Sequence[Any], dim: int) -> Any:
    columns = zip(*map(tensors, results), strict=True)
    stacks = iter([moved(torch.stack(column), dim) for column in columns])
    return mapped(lambda tensor: next(stacks), results[0])


def _gains_history(before: Any, after: Any) -> bool:
    """Whether tensors `after` require grad where those before do not."""
    pairs = zip(tensors(before), tensors(after), strict=True)
    return any(new.requires_grad and not old.requires_grad for old, new in pairs)


def _repeated(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return (
        tensor.unsqueeze(0)
        .expand(count, *tensor.shape)
        .clone(memory_format=torch.contiguous_format)
    )


def moved(stack: torch.Tensor, dim: int) -> torch.Tensor:
    moves = SCAN_STACKS_ALONG_ITS_DIMENSION and dim < stack.ndim
    return stack.movedim(0, dim) if moves else stack


def require_alike(what: str, left: Any, right: Any) -> None:
    """Raises UnsupportedOperator unless two results have tensors of the same sizes and types in the
    same places, and the same other objects.
    """
    shapes = [
        mapped(lambda t: (tuple(t.shape), t.dtype, t.device), value) for value in (left, right)
    ]
    if shapes[0] != shapes[1]:
        raise UnsupportedOperator(f"{what} differ: {shapes[0]} and {shapes[1]}")
