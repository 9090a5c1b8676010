"""Random numbers that kernels make on the way, on a GPU: a call draws one seed for each operator,
and the numbers are a function of the seed and of a position.

before                                      after
------                                      -----
y, mask = native_dropout(x, 0.1, True)      seed = randint(2**63 - 1, [])
                                            mask = philox_uniform(seed, x.shape) >= 0.1
                                            y = x * mask * (1 / 0.9)

Nothing but the seed is kept for backward, which computes the mask again; eager keeps it whole, and
writes and reads it in kernels of their own. The numbers are others than eager's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from fusewright import philox, random_state, torch_compat
from fusewright.aot.decompositions import native_dropout as dropout_of_nothing
from fusewright.aot.decompositions import rounded, widened
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

_library = torch.library.Library(random_state.NAMESPACE, "FRAGMENT")

SEEDS: Final = (1 << 63) - 1
"""Below this is each seed."""


def _philox_uniform(seed: Tensor, size: Sequence[int]) -> Tensor:
    if seed.device.type == "meta":
        return torch.empty(size, dtype=torch.float32, device=seed.device)
    places = torch.arange(math.prod(size), device=seed.device).view(size)
    return philox.uniform(seed, places)


@functools.cache
def uniform_operator() -> OpOverload:
    """`philox_uniform(seed, size)`: row-major, in float32. Torch keeps operators once they are
    defined: this one is when a program first needs it.
    """
    _library.define("philox_uniform(Tensor seed, SymInt[] size) -> Tensor")
    _library.impl("philox_uniform", _philox_uniform, "CompositeExplicitAutograd")
    found: OpOverload = torch.ops.fusewright.philox_uniform.default
    return found


def native_dropout(x: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """x mask / (1 - p), where a number that is not below p has the mask keep an element."""
    is_drawn = (train or train is None) and 0 < probability < 1
    if not is_drawn or x.device.type != torch_compat.cuda.TYPE:
        return dropout_of_nothing(x, probability, train)
    seed = aten.randint.default(SEEDS, [], dtype=torch.int64, device=x.device)
    mask = aten.ge.Scalar(uniform_operator()(seed, x.shape), probability)
    kept = aten.mul.Tensor(aten.mul.Tensor(widened(x), mask), 1 / (1 - probability))
    return rounded(kept, x), mask


KERNEL_DRAWS: Mapping[Any, Callable[..., Any]] = {aten.native_dropout.default: native_dropout}
"""Decompositions where the draws need not be eager's."""
