"""Where each result of a program comes from, given the outputs of its compiled graph and its
inputs.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright.records import record


@record
class FromGraph:
    """The graph's own output at `position`."""

    position: int


@record
class FromInput:
    """The input at `index` itself: the program returns a tensor that it was given."""

    index: int


@record
class ViewOf:
    """A view, made anew after each call, of an input or of a graph output; so that it aliases as in
    eager.

    `size`, `stride` and `offset` are in elements of `dtype`, which may be another than the base's,
    the offset counted from the first element of the base; an entry is an int, or for a symbolic
    size the graph output that holds it.
    """

    base: FromGraph | FromInput
    size: tuple[int | FromGraph, ...]
    stride: tuple[int | FromGraph, ...]
    offset: int | FromGraph
    dtype: torch.dtype
    conjugate: bool = False
    """The view shows the complex conjugates of the base's elements."""

    negative: bool = False
    """The view shows the negatives of the base's elements."""

    with_gradients: bool | None = None
    """Whether the program made it with gradients on, which it may have turned on or off itself;
    None where that does not matter.
    """


@record
class Replayed:
    """A view, made anew by the operators that the program made it with: of a tensor whose elements
    are partly one in memory, where each element has a gradient of its own.
    """

    base: FromGraph | FromInput
    calls: tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...]
    """Each an operator, its arguments behind the first, and those by name; a symbolic size is the
    graph output that holds it.
    """

    with_gradients: bool
    """Whether the program made it with gradients on."""


@record
class KnownResult:
    """A result that is known beforehand: a number, None, a dtype …"""

    value: Any


@record
class Detached:
    """The value of `base` without its autograd history: the program detached it."""

    base: FromGraph | FromInput | ViewOf | Replayed


@record
class Repeated:
    """A result that is the very tensor of an earlier result, number `index`."""

    index: int


ResultSpec = FromGraph | FromInput | ViewOf | Replayed | Detached | KnownResult | Repeated


@record
class GeometryChange:
    """A call, after the graph, that changes the sizes and strides of an input: `x.t_()`."""

    index: int
    operator: Any
    arguments: tuple[Any, ...]
    """The operator's arguments behind the first."""


@record
class StorageBase:
    """A further input: the memory shared by several inputs one of which is written to, as a
    one-dimensional tensor.

    It has `length` elements and begins `offset` elements after the first element of input `index`.
    """

    index: int
    offset: int
    length: int
    has_history: bool = False
    """Whether it is a view of what the inputs are views of, and takes their gradients."""


@record
class Leaf:
    """The place of result number `index` in a nested result."""

    index: int
