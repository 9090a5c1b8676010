"""The state of torch's random numbers as operators, which stand in graphs among those that draw.

    fusewright::manual_seed(int seed) -> ()             torch.manual_seed, of all devices
    fusewright::get_rng_state() -> Tensor               torch.get_rng_state, of the CPU
    fusewright::set_rng_state(Tensor state) -> ()       torch.set_rng_state
    fusewright::draw(Tensor like, str distribution, Scalar a, Scalar? b=None) -> Tensor
        torch.empty_like(like).uniform_(a, b), or another distribution's: torch's own operators take
        no parameter that varies

They count as random, so that each stays, in its order among the draws. Torch keeps operators once
they are defined: these are when a program first needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright.own_operators import define
from fusewright.torch_compat import OpOverload


def _manual_seed(seed: int, device: torch.device | None = None) -> None:
    if not _is_meta(device):
        torch.manual_seed(seed)


def _get_rng_state(device: torch.device | None = None) -> torch.Tensor:
    state = torch.get_rng_state()
    return torch.empty_like(state, device=device) if _is_meta(device) else state


def _set_rng_state(state: torch.Tensor, device: torch.device | None = None) -> None:
    if not _is_meta(device):
        torch.set_rng_state(state)


def _draw(like: torch.Tensor, distribution: str, *parameters: float | None) -> torch.Tensor:
    drawn = torch.empty_like(like)
    if not _is_meta(like.device):
        numbers = [float(parameter) for parameter in parameters if parameter is not None]
        getattr(drawn, f"{distribution}_")(*numbers)
    return drawn


def _is_meta(device: torch.device | None) -> bool:
    """Whether only the result's geometry is asked for."""
    return device is not None and torch.device(device).type == "meta"


_OPERATORS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "manual_seed": ("(int seed, *, Device? device=None) -> ()", _manual_seed),
    "get_rng_state": ("(*, Device? device=None) -> Tensor", _get_rng_state),
    "set_rng_state": ("(Tensor state, *, Device? device=None) -> ()", _set_rng_state),
    "draw": ("(Tensor like, str distribution, Scalar a, Scalar? b=None) -> Tensor", _draw),
}


@functools.cache
def operator(name: str) -> OpOverload:
    """One of the operators, by its name."""
    signature, function = _OPERATORS[name]
    return define(name, signature, function, tags=(torch.Tag.nondeterministic_seeded,))
