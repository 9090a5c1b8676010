"""Facts about values, sizes and buffers for all scheduling passes, each computed once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusewright.ir.index import (
    Index,
    LoopSymbol,
    Symbol,
    contiguous_strides,
    integer,
    product,
)
from fusewright.ir.limits import Limits, LimitsOf, limits_of_cpu
from fusewright.ir.program import Buffer, CallOperator, Layout, Program
from fusewright.ir.raising import value_may_raise
from fusewright.ir.value import (
    Expressions,
    IndexValue,
    Load,
    Random,
    Value,
    node_cost,
    postorder,
)
from fusewright.records import replace
from fusewright.schedule.effects import Effects

UNKNOWN_SIZE = 1024
"""Stands for a size that no fact gives a hint for."""


class Analysis:
    """Memory of one scheduling: the program's buffers, size hints, and facts about its values."""

    def __init__(self, program: Program, limits_of: LimitsOf = limits_of_cpu) -> None:
        self.limits_of = limits_of
        self.expressions: Expressions = program.expressions
        self.buffers: dict[str, Buffer] = program.buffers()
        self.released: frozenset[str] = program.released_inputs
        """Inputs that go when nobody reads them any more."""

        self._memory = _memory_owners(program)
        self._hints = {fact.symbol.name: fact.hint for fact in program.sizes}
        self._known_hints: dict[Index, int] = {}
        self.plans: dict[object, object] = {}
        """Decisions about loops that passes remember, by what they depend on."""

        self.products_that_compute: set[str] = set()
        """Buffers of matrix products whose kernels compute their operands."""

        self.stored_products: set[str] = set()
        """Results of matrix products that nothing fuses with."""

        self.in_pieces: set[str] = set()
        """Buffers that are too large to be whole at any time."""

        self.effects: dict[int, Effects] = {}
        """The effects of the program's library calls and copies, by their identity."""

        self._bytes: dict[str, int] = {}
        self._products: dict[tuple[Index, ...], Index] = {}
        self._strides: dict[tuple[Index, Symbol], Index | None] = {}
        self._elements_at: dict[object, Index] = {}
        self._loops: dict[tuple[str, Index], LoopSymbol] = {}
        self._nodes: dict[int, tuple[Value, ...]] = {}
        self._loads: dict[int, tuple[Load, ...]] = {}
        self._indices: dict[int, tuple[Index, ...]] = {}
        self._costs: dict[int, int] = {}
        self._may_raise: dict[int, bool] = {}

    # Buffers --------------------------------------------------------------------------------------

    def limits(self, name: str) -> Limits:
        """The limits of the device that a buffer is on."""
        return self.limits_of(self.buffers[name].layout.device)

    def free_name(self, name: str) -> str:
        """A name that no buffer has: this one, or one that begins with it."""
        while name in self.buffers:
            name += "_"
        return name

    def new_buffer(self, name: str, like: Layout, size: Iterable[Index]) -> Buffer:
        """A new contiguous buffer of a size, of the type and on the device of another; its name is
        this one where that is free.
        """
        size = tuple(size)
        layout = replace(like, size=size, stride=contiguous_strides(size), offset=integer(0))
        buffer = Buffer(name=self.free_name(name), layout=layout)
        self.buffers[buffer.name] = buffer
        return buffer

    def load(self, buffer: Buffer, position: tuple[Index, ...]) -> Value:
        """The element of a buffer at a position."""
        layout = buffer.layout
        return self.expressions.load(buffer.name, layout.index(position), layout.dtype)

    def memory(self, name: str) -> str:
        """The buffer that owns the memory of `name`: itself, or what a library call's result is an
        alias of.
        """
        return self._memory.get(name, name)

    # Sizes ----------------------------------------------------------------------------------------

    def product(self, factors: Iterable[Index]) -> Index:
        """The product of sizes."""
        key = tuple(factors)
        result = self._products.get(key)
        if result is None:
            result = self._products[key] = product(key)
        return result

    def stride(self, index: Index, symbol: Symbol) -> Index | None:
        """The step of `index` along a loop, None where it is not constant."""
        key = (index, symbol)
        if key not in self._strides:
            self._strides[key] = index.stride(symbol)
        return self._strides[key]

    def substitute(self, index: Index, renaming: Mapping[Symbol, Index]) -> Index:
        """`index` with loops replaced."""
        return self.expressions.substitute_index(index, renaming)

    def element(self, layout: Layout, loops: tuple[LoopSymbol, ...]) -> Index:
        """The element at the point of the loops, one a dimension."""
        key = (layout.offset, layout.stride, loops)
        index = self._elements_at.get(key)
        if index is None:
            point = tuple(symbol.index for symbol in loops)
            index = self._elements_at[key] = layout.index(point)
        return index

    def loop(self, name: str, extent: Index) -> LoopSymbol:
        """A loop variable; the same object for the same name and extent."""
        key = (name, extent)
        symbol = self._loops.get(key)
        if symbol is None:
            symbol = self._loops[key] = LoopSymbol(name, extent)
        return symbol

    def hint(self, index: Index) -> int:
        """The number that `index`, free of loops, had when compiling. For profitability only."""
        if index.is_constant:
            return index.constant
        number = self._known_hints.get(index)
        if number is None:
            values = {s.name: self._hints.get(s.name, UNKNOWN_SIZE) for s in index.free()}
            number = self._known_hints[index] = index.evaluate(values)
        return number

    def points(self, loops: Iterable[Index]) -> int:
        """The number of points that loops of these extents have, by hints."""
        total = 1
        for extent in loops:
            total *= self.hint(extent)
        return total

    def elements(self, name: str) -> int:
        """Elements of a buffer, by hints."""
        return self.hint(self.product(self.buffers[name].layout.size))

    def bytes(self, name: str) -> int:
        """Bytes of a buffer, by hints."""
        count = self._bytes.get(name)
        if count is None:
            count = self.elements(name) * self.buffers[name].layout.dtype.bytes
            self._bytes[name] = count
        return count

    # Values ---------------------------------------------------------------------------------------

    def nodes(self, value: Value) -> tuple[Value, ...]:
        """Every value below `value` once, in postorder."""
        result = self._nodes.get(id(value))
        if result is None:
            result = self._nodes[id(value)] = tuple(postorder((value,)))
        return result

    def loads(self, value: Value) -> tuple[Load, ...]:
        """The distinct loads below `value`, in order of first use."""
        result = self._loads.get(id(value))
        if result is None:
            result = tuple(node for node in self.nodes(value) if isinstance(node, Load))
            self._loads[id(value)] = result
        return result

    def indices(self, value: Value) -> tuple[Index, ...]:
        """Every index expression below `value`: of loads, of index values and of random draws."""
        result = self._indices.get(id(value))
        if result is None:
            indices: dict[Index, None] = {}
            for node in self.nodes(value):
                if isinstance(node, (Load, IndexValue)):
                    indices[node.index] = None
                elif isinstance(node, Random):
                    indices[node.position] = None
            result = self._indices[id(value)] = tuple(indices)
        return result

    def cost(self, value: Value) -> int:
        """The work of one evaluation of `value`, loads left out."""
        result = self._costs.get(id(value))
        if result is None:
            result = self._costs[id(value)] = sum(map(node_cost, self.nodes(value)))
        return result

    def may_raise(self, value: Value) -> bool:
        """Whether an evaluation of `value` raises in some cases."""
        result = self._may_raise.get(id(value))
        if result is None:
            result = self._may_raise[id(value)] = any(map(value_may_raise, self.nodes(value)))
        return result


def _memory_owners(program: Program) -> dict[str, str]:
    """The owner of the memory of each result of a library call that shares an argument's."""
    owners: dict[str, str] = {}
    for statement in program.statements:
        if isinstance(statement, CallOperator):
            for result, argument in statement.aliases:
                owners[result] = owners.get(argument, argument)
    return owners
