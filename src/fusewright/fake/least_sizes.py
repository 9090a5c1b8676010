"""The least sizes that eager's kernels take, where sizes depend on data: asked of the kernels
themselves, as `refusals` does, on tensors of one size after the other.

    aten.max_pool2d(f32[1, 1, u0], [1, 2])    the kernel refuses u0 = 0 and 1: u0 >= 2 is required

The graph checks what is required, whether or not the result is read; where it does not hold, eager
runs the call, and raises. So a requirement that is too strict costs time only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.fake.refusals import LARGEST_SIZE, SIZE_OF_DATA, SMALL, EagerTrial, usual_number
from fusewright.fake_rules.arguments import flat
from fusewright.fake_rules.geometry import require
from fusewright.ir.index import SizeSymbol, Symbol
from fusewright.ir.raising import OPERATORS, operator_name
from fusewright.operators import OperatorKind, trusts_integers
from fusewright.operators import facts as operator_facts
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of, symbolic_int
from fusewright.torch_compat import OpOverload

_LEAST: Final[dict[Any, int]] = {}
"""By the key of the first trial: the least size that was taken; the first where none was."""


def require_least_sizes(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], facts: ShapeFacts
) -> None:
    """State, for each size that depends on data, from which number on eager takes a call of fakes.
    Raises Required where that is not known to hold. An operator that may refuse values checks
    these when it runs, and its sizes with them.
    """
    values = list(flat((*args, *kwargs.values())))
    symbols = _sizes_of_data(values, facts)
    if not symbols or not _is_asked(op) or _is_large(values):
        return
    for symbol in symbols:
        least = _least(op, args, kwargs, facts, symbol)
        if least > (symbol.lower or 0):
            require(symbolic_int(facts, symbol.index) >= least)


def _sizes_of_data(values: Sequence[Any], facts: ShapeFacts) -> list[SizeSymbol]:
    """The symbols, none of them negative, of sizes and integers that depend on data."""
    symbols: dict[SizeSymbol, None] = {}
    for value in values:
        for number in value.shape if isinstance(value, Tensor) else (value,):
            if isinstance(number, torch.SymInt):
                free = facts.resolve(index_of(number)).free()
                symbols.update(dict.fromkeys(s for s in free if isinstance(s, SizeSymbol)))
    return sorted(
        (s for s in symbols if facts.is_of_data(s) and s.lower is not None and s.lower >= 0),
        key=lambda symbol: symbol.name,
    )


_ONLY_WARN: Final = frozenset({"std", "std_mean", "var", "var_mean"})
"""Operators that warn of too few elements, which a user should not see, and take them."""


@functools.cache
def _is_asked(op: OpOverload) -> bool:
    """Whether it is its sizes alone that a kernel of torch's refuses."""
    if op.namespace != "aten" or operator_facts(op).kind is OperatorKind.GEOMETRY:
        return False
    if trusts_integers(op):
        return False
    name = operator_name(str(op)).rstrip("_")
    if name in OPERATORS or name in _ONLY_WARN or operator_facts(op).refuses_values:
        return False
    return not torch_compat.is_composite(op)


def _is_large(values: Sequence[Any]) -> bool:
    """Whether a trial might make a large result, of integers that are arguments."""
    return math.prod(value for value in values if type(value) is int and value > 1) > SMALL


def _least(
    op: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    facts: ShapeFacts,
    symbol: SizeSymbol,
) -> int:
    """The least size, of the few that are tried, that eager takes; the symbol's own bound where
    it takes none of them, or where they do not go with what stands for other sizes.
    """
    first, step = symbol.lower or 0, symbol.multiple
    last = first + (LARGEST_SIZE - 1) * step
    if symbol.upper is not None:
        last = min(last, symbol.upper)
    sizes = range(first, last + 1, step)
    try:
        key = (_trial(op, args, kwargs, facts, {symbol: first}).key(), sizes)
        if key not in _LEAST:
            trials = ((size, _trial(op, args, kwargs, facts, {symbol: size})) for size in sizes)
            _LEAST[key] = next((size for size, trial in trials if trial.error() is None), first)
        return _LEAST[key]
    except ArithmeticError:
        return first


def _trial(
    op: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    facts: ShapeFacts,
    chosen: Mapping[Symbol, int],
) -> EagerTrial:
    """A call with the chosen sizes; of others that depend on data, each is `SIZE_OF_DATA`, or the
    least that may be. ArithmeticError: no tensor has such sizes.
    """

    def number_of(symbol: Symbol) -> float:
        if symbol in chosen:
            return chosen[symbol]
        usual = max(symbol.lower or 0, SIZE_OF_DATA * symbol.multiple)
        return facts.hints.get(symbol.name, usual)

    def plain(value: Any) -> Any:
        if not isinstance(value, torch.SymInt):
            return usual_number(value)
        index = facts.resolve(index_of(value))
        return index.evaluate({symbol.name: number_of(symbol) for symbol in index.free()})

    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, Tensor)]
    geometry = [number for x in tensors for number in (*x.shape, *x.stride(), x.storage_offset())]
    if any(plain(number) < 0 for number in geometry):
        raise ArithmeticError("a negative size")
    is_small = all(math.prod(map(plain, tensor.shape)) <= SMALL for tensor in tensors)
    return EagerTrial(op, args, kwargs, None if is_small else LARGEST_SIZE, plain)
