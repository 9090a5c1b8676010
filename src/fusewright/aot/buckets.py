"""How `DistributedDataParallel` puts gradients into buckets, each of which is reduced by itself as
soon as all its gradients are there.

The reducer walks the parameters in the order in which their gradients became final, the last
layer's first. A bucket is full when its bytes reach a limit; the first limit is smaller, so that
reductions begin early. Gradients of other types or devices are in other buckets.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from fusewright.records import record

Limits = tuple[int, ...]
"""Bytes at which a bucket is full: the first, the second, …; the last is that of all further ones.
"""


@record
class Gradient:
    """A gradient that is reduced."""

    kind: Hashable
    """Type and device: only gradients of one kind share a bucket."""

    byte_count: int


def full_buckets(gradients: Iterable[Gradient], limits: Sequence[int]) -> list[int]:
    """After which of the gradients, by number, a bucket is full, in order. They come in the order
    in which they become final. What comes behind the last number fills no bucket.
    """
    filled: dict[Hashable, int] = {}
    counts: dict[Hashable, int] = {}
    ends = []
    for number, gradient in enumerate(gradients):
        kind = gradient.kind
        filled[kind] = filled.get(kind, 0) + gradient.byte_count
        count = counts.get(kind, 0)
        if filled[kind] >= limits[min(count, len(limits) - 1)]:
            filled[kind] = 0
            counts[kind] = count + 1
            ends.append(number)
    return ends
