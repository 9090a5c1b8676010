"""From a captured graph's arguments, in their own order, to what generated code takes: sizes first,
then tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewright.records import record

Call = Callable[[list[Any]], Any]


@record
class SizeSource:
    """Where a symbol's number is found: the argument at `position`, or dimension `dimension` of the
    tensor there.
    """

    position: int
    dimension: int | None = None

    def find(self, arguments: list[Any]) -> int | float:
        found: Any = arguments[self.position]
        return found if self.dimension is None else found.shape[self.dimension]


@record
class CallingOrder:
    """How the arguments of generated code follow from those of the captured graph."""

    sizes: tuple[SizeSource, ...]
    tensors: tuple[int, ...]
    """Positions of the tensors among the captured graph's arguments."""

    arguments: int
    """How many arguments the captured graph has; those not mentioned are known constants."""

    def around(self, call: Call) -> Call:
        """`call` with the captured graph's arguments; itself where the orders agree."""
        sizes, tensors = self.sizes, self.tensors
        given = [size.position for size in sizes if size.dimension is None]
        if len(given) == len(sizes) and [*given, *tensors] == list(range(self.arguments)):
            return call

        def reordered(arguments: list[Any]) -> Any:
            ordered = [size.find(arguments) for size in sizes]
            ordered += [arguments[position] for position in tensors]
            arguments.clear()
            return call(ordered)

        return reordered
