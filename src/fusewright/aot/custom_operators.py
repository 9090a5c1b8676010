"""A functional operator for one that writes to its arguments and comes without.

mine::bump(Tensor(a0!) x, Tensor(a1!)[] more, float by) -> Tensor
->
fusewright_functional::mine_bump(Tensor x, Tensor[] more, float by) -> Tensor[]

The functional one bumps copies. It gives what the other gives, then the copies.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.errors import UnsupportedOperator
from fusewright.fake_rules.arguments import by_name, flat
from fusewright.own_operators import define
from fusewright.records import record
from fusewright.torch_compat import OpOverload

NAMESPACE = "fusewright_functional"


@record
class FunctionalTwin:
    """The functional `operator` of one that writes to its arguments `written`."""

    operator: OpOverload
    names: tuple[str, ...]
    """Names of all arguments, in order."""

    written: tuple[str, ...]
    returned: tuple[str | None, ...]
    """For each result of the writing operator, the name of the argument that it is; None for a
    tensor, or a list, of its own.
    """

    def targets(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The tensors written to, in the order in which their new values are given."""
        bound = by_name(self.names, args, kwargs)
        return [tensor for name in self.written for tensor in tensors_of(bound.get(name))]

    def result(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], own: Sequence[Tensor]
    ) -> Any:
        """The result of the writing operator: tensors of its own, and arguments."""
        bound = by_name(self.names, args, kwargs)
        returns = torch_compat.operator_returns(op)
        left = list(own)
        results = []
        for position, (name, kind) in enumerate(zip(self.returned, returns, strict=True)):
            if name is not None:
                results.append(bound.get(name))
            elif str(kind.type) == "Tensor":
                results.append(left.pop(0))
            else:
                behind = sum(name is None for name in self.returned[position + 1 :])
                count = len(left) - behind
                results.append(left[:count])
                left = left[count:]
        return tuple(results) if len(results) > 1 else results[0] if results else None


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of an argument: one, some, or none."""
    if isinstance(value, Tensor):
        return [value]
    return [] if value is None else list(value)


@functools.cache
def functional_twin(op: OpOverload) -> FunctionalTwin | None:
    """The functional operator that is made for `op`; None where a result is a view of an argument,
    or no tensor. Of torch's own operators only those have one that write to lists: others change
    more than values.

    It counts as random, so that it runs once for each call in the program, in order: nobody knows
    what else a custom operator does. Torch keeps an operator once defined, so this does.
    """
    arguments = torch_compat.operator_arguments(op)
    returned = _returned_arguments(op)
    writes_lists = any(
        argument.alias_info is not None and str(argument.type) == "List[Tensor]"
        for argument in arguments
    )
    if returned is None or (torch_compat.is_of_torch(op) and not writes_lists):
        return None

    name = re.sub(r"\W", "_", str(op).removesuffix(".default"))
    taken = re.sub(r"Tensor\(\w+!?\)", "Tensor", torch_compat.arguments_text(op))
    names = tuple(argument.name for argument in arguments)
    written = torch_compat.written_arguments(op)
    twin = define(
        name,
        f"({taken}) -> Tensor[]",
        _on_copies(op, names, written, returned),
        namespace=NAMESPACE,
        tags=(torch.Tag.nondeterministic_seeded,),
    )
    return FunctionalTwin(twin, names, written, returned)


def _returned_arguments(op: OpOverload) -> tuple[str | None, ...] | None:
    """For each result the argument that it is, None for one of its own; None where that cannot be
    told.
    """
    arguments = [
        argument
        for argument in torch_compat.operator_arguments(op)
        if argument.alias_info is not None
    ]
    returned: list[str | None] = []
    own_lists = 0
    for result in torch_compat.operator_returns(op):
        if result.alias_info is None:
            if str(result.type) not in ("Tensor", "List[Tensor]"):
                return None
            own_lists += str(result.type) == "List[Tensor]"
            returned.append(None)
            continue
        same = [
            argument.name
            for argument in arguments
            if argument.alias_info.is_write
            and str(argument.type) == str(result.type)
            and argument.alias_info.before_set == result.alias_info.before_set
        ]
        if len(same) != 1:
            return None
        returned.append(same[0])
    return None if own_lists > 1 else tuple(returned)


def _on_copies(
    op: OpOverload,
    names: Sequence[str],
    written: Sequence[str],
    returned: Sequence[str | None],
) -> Callable[..., list[Tensor]]:
    def run(*args: Any, **kwargs: Any) -> list[Tensor]:
        bound = by_name(names, args, kwargs)
        copies = {name: _clones(bound[name]) for name in written if name in bound}
        result = op(**{**bound, **copies})
        results = result if len(returned) > 1 else (result,)
        own = [
            tensor
            for value, name in zip(results, returned, strict=False)
            if name is None
            for tensor in tensors_of(value)
        ]
        return [*own, *[tensor for value in copies.values() for tensor in tensors_of(value)]]

    return run


def _clones(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return None if value is None else [tensor.clone() for tensor in value]


def refuse_unusual(
    op: OpOverload,
    targets: Sequence[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tracks_gradients: bool,
) -> None:
    """Raises: `UnsupportedOperator`, where a functional form would lose an autograd history, or
    that something written to shares memory with another argument, in which `op` would see it.
    """
    tensors = [tensor for tensor in flat((*args, *kwargs.values())) if isinstance(tensor, Tensor)]
    if tracks_gradients and any(tensor.requires_grad for tensor in tensors):
        raise UnsupportedOperator(f"{op} writes to its arguments, where gradients are tracked")
    memory = [_memory(tensor) for tensor in tensors]
    if any(memory.count(_memory(target)) > 1 for target in targets):
        raise UnsupportedOperator(f"{op} writes to its arguments, two of which share memory")


def _memory(tensor: Tensor) -> int:
    return torch_compat.storage_key(getattr(tensor, "meta_tensor", tensor))
