"""Random numbers that kernels make on the way, on a GPU: a call draws a seed for each operator, all
at once, and the numbers are a function of the seed and of a position.

before                                      after
------                                      -----
y, mask = native_dropout(x, 0.1, True)      seed = randint(2**63 - 1, [])
                                            mask = philox_uniform(seed, x.shape) >= 0.1
                                            y = x * mask * (1 / 0.9)

Nothing but the seed is kept for backward, which computes the mask again; eager keeps it whole, and
writes and reads it in kernels of their own. The numbers are others than eager's.

seed = randint(2**63 - 1, [])               seeds = draw_seeds(2)
...                                         seed = seeds[0]
seed_1 = randint(2**63 - 1, [])             ...
                                            seed_1 = seeds[1]

A draw is a launch. Each seed stays a tensor of its own, so that equal layers share their kernels:
these would differ by the seed's place in a tensor of all.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, fx

from fusewright import philox, torch_compat
from fusewright.formulas import When, formula
from fusewright.formulas.draws import native_dropout as dropout_of_nothing
from fusewright.formulas.helpers import as_type, rounded, widened
from fusewright.ir.dtype import DType
from fusewright.ir.limits import aligned_elements
from fusewright.own_operators import define
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

SEEDS: Final = (1 << 63) - 1
"""Below this is each seed."""


def _philox_uniform(seed: Tensor, size: Sequence[int]) -> Tensor:
    if seed.device.type == "meta":
        return torch.empty(size, dtype=torch.float32, device=seed.device)
    places = torch.arange(math.prod(size), device=seed.device).view(size)
    return philox.uniform(seed, places)


@functools.cache
def uniform_operator() -> OpOverload:
    """`philox_uniform(seed, size)`: row-major, in float32."""
    return define("philox_uniform", "(Tensor seed, SymInt[] size) -> Tensor", _philox_uniform)


@formula(aten.native_dropout.default, when=When.FREE_DRAWS)
def native_dropout(x: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """x mask / (1 - p), where a number that is not below p has the mask keep an element."""
    is_drawn = (train or train is None) and 0 < probability < 1
    if not is_drawn or x.device.type != torch_compat.cuda.TYPE:
        return dropout_of_nothing(x, probability, train)
    seed = aten.randint.default(SEEDS, [], dtype=torch.int64, device=x.device)
    mask = aten.ge.Scalar(uniform_operator()(seed, x.shape), probability)
    wide = widened(x)
    factor = aten.mul.Tensor(as_type(mask, wide.dtype), 1 / (1 - probability))
    return rounded(aten.mul.Tensor(wide, factor), x), mask


def _draw_seeds(count: int, device: torch.device) -> list[Tensor]:
    apart = aligned_elements(DType.I64)
    return list(torch.randint(SEEDS, (count, apart), device=device)[:, 0].unbind())


@functools.cache
def seeds_operator() -> OpOverload:
    """`draw_seeds(count)`: single numbers, which share memory. Each is aligned as a tensor of its
    own would be: a kernel loads and stores in pieces where all that it is given is aligned.
    """
    return define(
        "draw_seeds",
        "(int count, *, Device device) -> Tensor[]",
        _draw_seeds,
        tags=(torch.Tag.nondeterministic_seeded,),
    )


def join_draws_of_seeds(graph: fx.Graph) -> int:
    """Draw the seeds of a device at once, where the first of them was drawn. Gives how many draws
    were replaced.
    """
    by_device: dict[torch.device, list[fx.Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_function", target=aten.randint.default):
        if _is_seed(node):
            by_device[node.meta["val"].device].append(node)
    joined = [draws for draws in by_device.values() if len(draws) > 1]
    for draws in joined:
        _join(graph, draws)
    return sum(map(len, joined))


def _is_seed(node: fx.Node) -> bool:
    """Whether nothing but `philox_uniform` reads a number: a program's own draws are eager's."""
    return bool(node.users) and all(
        str(user.target) == "fusewright.philox_uniform.default" for user in node.users
    )


def _join(graph: fx.Graph, draws: Sequence[fx.Node]) -> None:
    values = tuple(draw.meta["val"] for draw in draws)
    with graph.inserting_before(draws[0]):
        seeds = graph.call_function(seeds_operator(), (len(draws),), {"device": values[0].device})
    seeds.meta.update(draws[0].meta, val=values)
    for place, draw in enumerate(draws):
        with graph.inserting_before(draw):
            seed = graph.call_function(operator.getitem, (seeds, place))
        seed.meta.update(draw.meta)
        draw.replace_all_uses_with(seed)
        graph.erase_node(draw)
