"""A functional operator for each custom one that writes to its arguments.

mine::bump(Tensor(a0!) x, float by) -> ()
->
fusewright_functional::mine_bump(Tensor x, float by) -> Tensor     # bumps a copy, and gives it
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import UnsupportedOperator
from fusewright.torch_compat import OpOverload

NAMESPACE = "fusewright_functional"

_library = torch.library.Library(NAMESPACE, "FRAGMENT")


@functools.cache
def functional_operator(op: OpOverload) -> OpOverload | None:
    """An operator that takes what `op` takes and gives what `op` gives, then the new values of the
    tensors that `op` writes to; None where `op` writes to lists or optional tensors, or gives an
    alias.

    It counts as random, so that it runs once for each call in the program, in order: nobody knows
    what else a custom operator does. Torch keeps an operator once defined, so this does.
    """
    arguments = torch_compat.operator_arguments(op)
    written = [one for one in arguments if one.alias_info is not None]
    returns = torch_compat.operator_returns(op)
    plain = all(str(one.type) == "Tensor" and one.alias_info.is_write for one in written)
    if not plain or any(one.alias_info is not None for one in returns):
        return None

    name = re.sub(r"\W", "_", str(op).removesuffix(".default"))
    taken = re.sub(r"\(\w+!\)", "", torch_compat.arguments_text(op))
    given = ", ".join([*(str(one.type) for one in returns), *("Tensor" for _ in written)])
    _library.define(f"{name}({taken}) -> ({given})", tags=(torch.Tag.nondeterministic_seeded,))
    _library.impl(name, _on_copies(op), "CompositeExplicitAutograd")
    found: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return found


def _on_copies(op: OpOverload) -> Any:
    names = [argument.name for argument in torch_compat.operator_arguments(op)]
    written = torch_compat.written_arguments(op)
    count = len(torch_compat.operator_returns(op))

    def run(*args: Any, **kwargs: Any) -> Any:
        bound = {**dict(zip(names, args, strict=False)), **kwargs}
        copies = {name: bound[name].clone() for name in written}
        result = op(**{**bound, **copies})
        own = () if count == 0 else (result,) if count == 1 else tuple(result)
        results = (*own, *copies.values())
        return results[0] if len(results) == 1 else results

    return run


def refuse_unusual(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: `UnsupportedOperator`, where a functional form would lose an autograd history, or
    that two arguments share memory, so that `op` would see in one what it writes to the other.
    """
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    if any(one.requires_grad for one in tensors):
        raise UnsupportedOperator(f"{op} writes to its arguments, where gradients are tracked")
    memory = {torch_compat.storage_key(getattr(one, "meta_tensor", one)) for one in tensors}
    if len(memory) < len(tensors):
        raise UnsupportedOperator(f"{op} writes to its arguments, two of which share memory")
