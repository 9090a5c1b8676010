"""Which inputs and results of a graph eager's autograd nodes save.

    total = x.sum(0, keepdim=True)       # a result of the graph: the program may write to it later
    values = torch.cummax(total, 0)[0]   # whose node saves `total`, and reads its sizes alone

Eager's backward raises where a tensor that it has saved was written to since. Compiled code saves
what its own backward reads, which need not be `total`, so the versions of these are noted as well.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from fusewright import torch_compat
from fusewright.aot.histories import Reaching, numbers
from fusewright.aot.specs import FromInput, Leaf
from fusewright.fake import FakeTensor
from fusewright.records import record


@record
class EagerSave:
    """A tensor that the program can reach after the graph, and that eager saves."""

    place: FromInput | Leaf
    tangents: frozenset[int]
    """The numbers of the tangents whose backward reads it."""

    version: int
    """The number of times that eager has written to it in the graph, when that ends."""


Saved = dict[int, list[tuple[FakeTensor, frozenset[int]]]]
"""By storage: the tensors that nodes of autograd have saved, each with the numbers of the tangents
that reach its node.
"""


def saved_by_nodes(reaching: Reaching) -> Saved:
    """The tensors that nodes of autograd have saved; to be asked before a backward frees them."""
    saved: Saved = defaultdict(list)
    for node, bits in reaching.items():
        tangents = frozenset(numbers(bits))
        for tensor in torch_compat.autograd.saved_by_node(node):
            if isinstance(tensor, FakeTensor):
                saved[torch_compat.storage_key(tensor.meta_tensor)].append((tensor, tangents))
    return saved


def eager_saves(saved: Saved, inputs: Iterable[Any], results: Iterable[Any]) -> Iterator[EagerSave]:
    """The `inputs` and `results` that share a version counter with a tensor that is `saved`; not
    all that share its memory do. `x.data` shows the memory of `x`, and counts for itself.
    """
    unknown = dict(saved)
    places: Iterator[tuple[FromInput | Leaf, Any]] = itertools.chain(
        ((FromInput(index), value) for index, value in enumerate(inputs)),
        ((Leaf(number), value) for number, value in enumerate(results)),
    )
    for place, value in places:
        if not isinstance(value, FakeTensor):
            continue
        key = torch_compat.storage_key(value.meta_tensor)
        group = unknown.get(key)
        if not group:
            continue
        version = torch_compat.autograd.version(value)
        shared = [torch_compat.autograd.share_version(tensor, value) for tensor, _ in group]
        unknown[key] = [entry for entry, same in zip(group, shared, strict=True) if not same]
        if any(shared):
            tangents = [entry[1] for entry, same in zip(group, shared, strict=True) if same]
            yield EagerSave(place, frozenset().union(*tangents), version)
