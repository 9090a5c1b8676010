"""The table of formulas: what each computes by simpler operators, and where it holds."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, TypeVar

import torch

Formula = Callable[..., Any]
"""Takes the arguments of the operator or function that it stands for and computes its result by
others; NotImplemented leaves the call as it is.
"""

F = TypeVar("F", bound=Formula)


class When(Enum):
    """The use of a formula."""

    EVERYWHERE = auto()
    """In every trace, whatever operators its caller wants: what writes to tensors is followed
    through views of one result, and written tensors are known one by one.
    """

    COMPILED = auto()
    """In graphs that this compiler lowers, which has no rule for the operator, or a worse one."""

    FREE_DRAWS = auto()
    """In such graphs, if random numbers need not be eager's."""

    BACKWARD = auto()
    """In calls by autograd's formulas, whose results may differ from the operator's elsewhere."""

    VARYING_REAL = auto()
    """For a function of torch that is given a real number that varies, where its C++ takes a plain
    one.
    """

    VARYING_NUMBER = auto()
    """For a function of torch that is given any number that varies, where its C++ takes a plain
    one.
    """

    VARYING_SIZE = auto()
    """For a function of torch whose C++ takes plain sizes, on tensors whose sizes vary."""

    ANY_CALL = auto()
    """For a function of torch in any call that is traced, where what its C++ calls cannot be
    compiled, or is not what eager computes.
    """


_FORMULAS: Final[dict[When, dict[Any, Formula]]] = defaultdict(dict)


def formula(*targets: Any, when: When = When.COMPILED) -> Callable[[F], F]:
    """Enter the decorated function as the formula of operators, or of functions of torch."""

    def enter(function: F) -> F:
        for target in targets:
            if target in _FORMULAS[when]:
                raise ValueError(f"{target} has a formula already, {when.name}")
            _FORMULAS[when][target] = function
        return function

    return enter


def formulas(when: When) -> Mapping[Any, Formula]:
    """The formulas for one place, by operator or function."""
    return _FORMULAS[when]


def formula_of_call(function: Any, when: When) -> Formula | None:
    """The formula of a function of torch; of a method that belongs to a tensor, with that as its
    first argument.
    """
    owner = getattr(function, "__self__", None)
    table = _FORMULAS[when]
    try:
        if isinstance(owner, torch.Tensor):
            method = table.get(getattr(torch.Tensor, function.__name__, None))
            return method and functools.partial(method, owner)
        return table.get(function)
    except TypeError:  # It has no hash.
        return None
