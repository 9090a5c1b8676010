"""From a captured graph's arguments, in their own order, to what generated code takes: numbers
first, then tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusewright.ir.index import Index
from fusewright.records import record

Call = Callable[[list[Any]], Any]


@record
class SymbolSource:
    """Where the number of a symbol is found: an argument, or a size or stride of one, is
    `factor * symbol + rest`.
    """

    symbol: str
    position: int
    dimension: int | None = None
    """The dimension of the tensor argument whose size or stride it is; None where the argument is a
    number.
    """

    is_stride: bool = False
    factor: Index | None = None
    """None: the symbol itself is found there."""

    rest: Index | None = None

    @property
    def is_argument(self) -> bool:
        """Whether the number is an argument, as that stands."""
        return self.dimension is None and self.factor is None

    def find(self, arguments: list[Any], symbols: Mapping[str, int]) -> int | float:
        """The number, given those of the symbols in `factor` and `rest`."""
        argument: Any = arguments[self.position]
        number: int | float = argument
        if self.dimension is not None:
            number = (argument.stride() if self.is_stride else argument.shape)[self.dimension]
        if self.factor is None or self.rest is None:
            return number
        return (number - self.rest.evaluate(symbols)) // self.factor.evaluate(symbols)


@record
class CallingOrder:
    """How the arguments of generated code follow from those of the captured graph."""

    symbols: tuple[str, ...]
    """In the order of the generated code's arguments."""

    numbers: tuple[SymbolSource, ...]
    """In an order in which they can be found."""

    tensors: tuple[int, ...]
    """Positions of the tensors among the captured graph's arguments."""

    arguments: int
    """How many arguments the captured graph has; those not mentioned are known constants."""

    def around(self, call: Call) -> Call:
        """`call` with the captured graph's arguments; itself where the orders agree."""
        symbols, numbers, tensors = self.symbols, self.numbers, self.tensors
        positions = {source.symbol: source.position for source in numbers if source.is_argument}
        if [*map(positions.get, symbols), *tensors] == list(range(self.arguments)):
            return call

        def reordered(arguments: list[Any]) -> Any:
            values: dict[str, Any] = {}
            for number in numbers:
                values[number.symbol] = number.find(arguments, values)
            ordered = [values[symbol] for symbol in symbols]
            ordered += [arguments[position] for position in tensors]
            arguments.clear()
            return call(ordered)

        return reordered
