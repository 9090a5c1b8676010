"""Writes values as assignments, each once, after the mask and the loop that it needs."""

from __future__ import annotations

from collections.abc import Iterable

from fusewright.ir.dtype import DType
from fusewright.ir.index import Compound, Index, LoopSymbol, RealSymbol, Symbol
from fusewright.ir.proof import is_nonnegative
from fusewright.ir.relations import COMPARISONS
from fusewright.ir.value import (
    Apply,
    Cast,
    Constant,
    IndexValue,
    Indirect,
    Load,
    Masked,
    Random,
    Value,
    children,
    postorder,
)
from fusewright.kernels.triton.approximations import FORMS
from fusewright.kernels.triton.operations import (
    TYPES,
    constant_text,
    number_text,
    operation_text,
)
from fusewright.kernels.triton.random import compared_bits, place_of
from fusewright.kernels.triton.tiling import TileAxis, Tiling
from fusewright.records import field, record

BARE_NUMBERS = (*COMPARISONS, "add", "sub", "mul", "div", "maximum", "minimum", "where")
"""Operations in which a bare number takes the type of the other operand."""

EXACT_NUMBERS = frozenset({DType.BOOL, DType.F64, DType.I16, DType.I8, DType.U8})
"""Types whose numbers are never bare: some versions of Triton take one for an f32, which has fewer
digits than an f64, or for an i32, in which what is made of it does not wrap around.
"""

Guards = tuple[Value, ...]
"""Masks that hold wherever a value is computed, outermost first."""


@record(frozen=False)
class Body:
    """The statements of a kernel, and where new ones go."""

    rows: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, row: str) -> None:
        self.rows.append("    " * self.depth + row)


class Writer:
    """Assigns values to variables; a value that is known by name is not written again."""

    def __init__(
        self, tiling: Tiling, local_names: Iterable[str], numbers: frozenset[str], body: Body
    ) -> None:
        self.axes: dict[Symbol, TileAxis] = {axis.symbol: axis for axis in tiling.axes}
        self.outer = frozenset(tiling.outer)
        self.is_walked = tiling.walks_outer
        self.rank = tiling.rank
        self.local_names = frozenset(local_names)
        self.numbers = numbers
        """Arguments that are given by value."""

        self.body = body
        self.names: dict[int, str] = {}
        """The variable of each value, or the number that it is, by the value's id."""

        self.values: dict[int, Value] = {}
        """Every value of the kernel, by id."""

        self.locals: dict[tuple[str, Index], str] = {}
        """Variables of locals, and of memory that this kernel stored, by buffer and element."""

        self.widened: dict[str, str] = {}
        """By a variable of bfloat16 that was rounded, the one that holds the same in float32."""

        self.starts: frozenset[TileAxis] = frozenset()
        """Axes whose first point in a tile is a variable that loads mention."""

        self.quartered: set[TileAxis | None] = set()
        """Axes by whose points, four at a time, random numbers are drawn."""

        self.bits: dict[int, str] = {}
        """The variable of a random number's word, by the number's id."""

        self.policies: dict[int, str] = {}
        """How long caches keep what is loaded, where that is not left to them, by the load's id."""

        self.condition = ""
        """When memory is touched at all by what is written now; "": always."""

        self.whole: TileAxis | None = None
        """An axis of whose rows a whole block is written, so that it needs no mask."""

        self.guards: dict[int, Guards] = {}
        self.varying: dict[int, frozenset[TileAxis]] = {}
        self.plain_indices: set[int] = set()
        self.counts = {"t": 0, "k": 0}
        self.checks_bounds = False

    # What is needed where -------------------------------------------------------------------------

    def prepare(self, roots: tuple[Value, ...]) -> None:
        """Learn the guards of the values below `roots`, and which indices are only compared."""
        order = list(postorder(roots))
        self.values = {id(value): value for value in order}
        guards: dict[int, Guards] = {id(root): () for root in roots}
        compared: dict[int, bool] = {}
        for value in reversed(order):
            here = guards[id(value)]
            only = isinstance(value, Apply) and value.operation in COMPARISONS
            only = only and all(isinstance(a, IndexValue | Constant) for a in children(value))
            for child in children(value):
                below = here
                if isinstance(value, Masked) and child is value.value:
                    below = here if value.mask in here else (*here, value.mask)
                others = guards.get(id(child))
                guards[id(child)] = (
                    below if others is None else tuple(mask for mask in others if mask in below)
                )
                if isinstance(child, IndexValue):
                    compared[id(child)] = only and compared.get(id(child), True)
        self.guards = guards
        self.plain_indices = {name for name, only in compared.items() if only}
        for value in order:
            self.varying[id(value)] = self._axes_of(value)
            if isinstance(value, Random):
                self.quartered.add(place_of(value.position, self.axes.values()).axis)

    def axes_of(self, value: Value) -> frozenset[TileAxis]:
        """The axes along which a value varies, or is guarded."""
        return self.varying[id(value)]

    def _axes_of(self, value: Value) -> frozenset[TileAxis]:
        """The same, from what the values below have."""
        axes = frozenset[TileAxis]().union(*(self.axes_of(child) for child in children(value)))
        match value:
            case Load(index=index):
                axes |= self.index_axes(self.at_start(index))
            case IndexValue(index=index) | Random(position=index):
                axes |= self.index_axes(index)
        if isinstance(value, Load) and value.buffer in self.local_names:
            axes |= self.outer
        if isinstance(value, Load | Indirect):
            axes = axes.union(*(self.axes_of(mask) for mask in self.guards[id(value)]))
        return axes

    def index_axes(self, index: Index) -> frozenset[TileAxis]:
        return frozenset(self.axes[symbol] for symbol in index.free() if symbol in self.axes)

    def is_masked(self, axis: TileAxis) -> bool:
        """Whether the block that is written may reach past the end of an axis."""
        return axis.is_masked and axis != self.whole

    def mask_of(self, axes: Iterable[TileAxis], guards: Guards = ()) -> str:
        """The condition under which memory is touched: within the axes, and where guards hold."""
        ordered = sorted(axes, key=lambda axis: axis.position)
        parts = [f"{axis.name}mask" for axis in ordered if self.is_masked(axis)]
        parts += [self.names[id(guard)] for guard in guards]
        if not self.condition:
            return " & ".join(parts)
        return " & ".join([*parts, f"({self.condition})"]) if parts else self.condition

    # Values ---------------------------------------------------------------------------------------

    def write(self, values: Iterable[Value]) -> None:
        """Assign each of the values, which come after what they are made from."""
        for value in values:
            if id(value) not in self.names:
                self.names[id(value)] = self.assign(value)

    def assign(self, value: Value) -> str:
        match value:
            case Constant():
                is_float = value.dtype.is_float
                return number_text(value.value, is_float=is_float)
            case Load(buffer=buffer, index=index) if (buffer, index) in self.locals:
                return self.locals[buffer, index]
            case Load(buffer=buffer) if buffer in self.numbers:
                return buffer
            case Masked(value=Load() as load) if self.is_masked_load(value, load):
                return self.names[id(load)]
            case Indirect():
                return self.indirect(value)
            case Random():
                return self.random(value)
            case Cast(argument=half, dtype=DType.F32) if half.dtype is DType.BF16:
                return self.widened_variable(half)
        return self.variable(self.expression(value))

    def widened_variable(self, half: Value) -> str:
        """A variable of float32 for a value of bfloat16, which is rounded to that once."""
        name = self.operand(half)
        if name in self.widened:
            return self.widened[name]
        wide = self.variable(self.cast(half, DType.F32))
        if isinstance(half, Cast):
            self.widened[name] = wide
        return wide

    def variable(self, text: str) -> str:
        """A new variable that holds an expression."""
        name = f"t{self.counts['t']}"
        self.counts["t"] += 1
        self.body.add(f"{name} = {text}")
        return name

    def expression(self, value: Value) -> str:
        match value:
            case Load():
                return self.load(value)
            case IndexValue(index=index, dtype=dtype):
                text = self.index(index)
                if any(isinstance(s, RealSymbol) for s in index.free()):
                    return text
                plain = id(value) in self.plain_indices
                return text if plain else f"({text}).to({TYPES[dtype]})"
            case Apply():
                return self.apply(value)
            case Cast(argument=argument, dtype=dtype):
                return self.cast(argument, dtype)
            case Masked(mask=mask, value=inner, otherwise=otherwise):
                return (
                    f"tl.where({self.operand(mask)}, {self.typed(inner)}, {self.typed(otherwise)})"
                )
            case _:
                raise AssertionError(f"{type(value).__name__} needs no expression")

    def cast(self, argument: Value, dtype: DType) -> str:
        """A value in another type; in a half type by way of f32, and of a float in an unsigned one
        by way of i64, which negative numbers wrap around, as eager has it.
        """
        match argument:
            case Cast(argument=wide, dtype=DType.BF16) if wide.dtype is DType.F32 is dtype:
                return f"functions.rounded_to_bfloat16({self.operand(wide)})"
        operand = self.operand(argument)
        if dtype is DType.BOOL:
            return f"{operand} != 0"
        if dtype is DType.U8 and argument.dtype.is_float:
            operand = f"{operand}.to({TYPES[DType.I64]})"
        if dtype is not dtype.compute and argument.dtype not in (dtype, dtype.compute):
            operand = f"{operand}.to({TYPES[dtype.compute]})"
        return f"{operand}.to({TYPES[dtype]})"

    def operand(self, value: Value) -> str:
        return self.names[id(value)]

    def typed(self, value: Value) -> str:
        """The operand; a constant with its exact type, where a bare number might take another."""
        if not isinstance(value, Constant):
            return self.operand(value)
        if value.dtype in (DType.F32, DType.I32):
            return self.operand(value)
        return constant_text(value.value, value.dtype)

    def apply(self, value: Apply) -> str:
        compared = compared_bits(value)
        if compared is not None:
            drawn, comparison = compared
            return f"{self.bits[id(drawn)]} {comparison}"
        operands = []
        for position, argument in enumerate(value.arguments):
            if isinstance(argument, Constant) and not self.takes_number(value, position):
                operands.append(constant_text(argument.value, argument.dtype))
            else:
                operands.append(self.operand(argument))
        if value.operation in FORMS:
            return f"functions.{value.operation}({operands[0]})"
        return operation_text(value.operation, operands, value.arguments[-1].dtype)

    def takes_number(self, value: Apply, position: int) -> bool:
        """Whether a bare number at this position takes its type from another operand."""
        dtype = value.arguments[position].dtype
        if value.operation not in BARE_NUMBERS or dtype in EXACT_NUMBERS:
            return False
        first = 1 if value.operation == "where" else 0
        if value.operation == "div" and position == 0:
            return False
        return any(not isinstance(argument, Constant) for argument in value.arguments[first:])

    def random(self, value: Random) -> str:
        """A variable for the word; what readers need of it stands in their own expressions."""
        place, seed = place_of(value.position, self.axes.values()), self.operand(value.seed)
        counter, lane = self.index(place.counter), self.index(place.lane)
        word = self.variable(f"functions.random_bits({seed}, {counter}, {lane})")
        self.bits[id(value)] = word
        drawn = f"functions.uniform({word})"
        return drawn if value.dtype is DType.F32 else f"{drawn}.to({TYPES[value.dtype]})"

    # Forgetting -----------------------------------------------------------------------------------

    def forget(self, stale: Iterable[Value]) -> None:
        """Write these values again when they are next needed."""
        for value in stale:
            self.names.pop(id(value), None)

    def forget_loads(self, buffers: frozenset[str]) -> None:
        """The buffers have new content: so have the values made from it."""
        stale: set[int] = set()
        for name, value in self.values.items():
            is_load = isinstance(value, Load) and value.buffer in buffers
            if is_load or any(id(child) in stale for child in children(value)):
                stale.add(name)
        self.forget(self.values[name] for name in stale)

    # Memory ---------------------------------------------------------------------------------------

    def load(self, value: Load) -> str:
        guards = self.guards.get(id(value), ())
        self.write(postorder(guards))  # The outer ones of masks in masks may be new.
        touched = self.touched(value)
        mask = self.mask_of(touched, guards)
        at = self.at_start(value.index)
        self.starts |= self.index_axes(value.index) - self.index_axes(at)
        place = self.address(value.buffer, at)
        guarded = touched.union(*(self.axes_of(guard) for guard in guards))
        if guarded != touched:  # A mask may not be larger than the addresses that it guards.
            index = self.index(at)
            place = f"{value.buffer} + (tl.zeros({self.shape(guarded)}, tl.int32) + {index})"
        policy = self.policies.get(id(value))
        kept = f', eviction_policy="{policy}"' if policy else ""
        if not mask:
            return f"tl.load({place}{kept})"
        otherwise = self.otherwise(value, guards)
        return f"tl.load({place}, {mask}{otherwise}{kept})"

    def at_start(self, index: Index) -> Index:
        """The index of a load, in terms of a tile's first point along the axes along which it is
        the same for a whole tile: `x // 2048` where a block of x has 1024 elements. What is loaded
        there has one element along them: before Triton 3.9 a thread loads each of its own anew.
        """
        replaced: dict[Symbol, Index] = {}
        for axis in () if self.is_walked else self.index_axes(index) & self.outer:
            tile, rest = LoopSymbol("tile", axis.extent), LoopSymbol("rest", axis.block)
            place = tile.index * axis.block + rest.index
            is_one_point = axis.block == 1
            if is_one_point or rest not in index.substitute({axis.symbol: place}).free():
                replaced[axis.symbol] = LoopSymbol(axis.start_name, axis.extent).index
        return index.substitute(replaced)

    def shape(self, axes: Iterable[TileAxis]) -> str:
        """The shape of a block that varies along these axes."""
        sizes = ["1"] * self.rank
        for axis in axes:
            sizes[axis.position] = axis.block_name
        return f"[{', '.join(sizes)}]"

    def touched(self, value: Load) -> frozenset[TileAxis]:
        """The axes behind the address of a load, loaded indices included."""
        axes = self.index_axes(self.at_start(value.index))
        for index_value in value.indirect:
            axes |= self.axes_of(index_value)
        return axes

    def otherwise(self, value: Load, guards: Guards) -> str:
        """The value of masked lanes: the one that each `Masked` around wants, if all agree."""
        fillers = {
            number_text(node.otherwise.value, is_float=node.dtype.is_float)
            for node in self.values.values()
            if isinstance(node, Masked) and node.value is value and guards == (node.mask,)
        }
        return f", other={fillers.pop()}" if len(fillers) == 1 else ""

    def is_masked_load(self, value: Masked, load: Load) -> bool:
        """Whether the load itself already gives the mask's other value."""
        guards = self.guards.get(id(load), ())
        if guards != (value.mask,) or (load.buffer, load.index) in self.locals:
            return False
        return bool(self.otherwise(load, guards)) and id(load) in self.names

    def address(self, buffer: str, index: Index) -> str:
        if index == 0:
            return buffer
        text = self.index(index)
        return f"{buffer} + {text}" if _is_sum(index) else f"{buffer} + ({text})"

    def indirect(self, value: Indirect) -> str:
        """A loaded index: counted from the end where negative, and checked."""
        name = value.symbol.name
        size = self.index(value.size)
        loaded = self.operand(value.value)
        if value.wrap:
            loaded = f"tl.where({loaded} < 0, {loaded} + {_bracketed(value.size, size)}, {loaded})"
        self.body.add(f"{name} = {loaded}")
        if value.check:
            self.checks_bounds = True
            guards = self.guards.get(id(value), ())
            mask = self.mask_of(self.axes_of(value), guards)
            inside = f"(0 <= {name}) & ({name} < {size})"
            if mask:  # Triton 3.4 refuses its own argument for it.
                inside = f"({inside}) | ~({mask})"
            self.body.add(f'tl.device_assert({inside}, "an index is out of range for size {size}")')
        return name

    def index(self, index: Index) -> str:
        """An index expression as Triton source, where `//` and `%` round towards zero."""
        return _print_index(index)


# Indices ------------------------------------------------------------------------------------------


def _is_sum(index: Index) -> bool:
    """Whether the text can stand behind a plus."""
    return not index.text.startswith("-")


def _bracketed(index: Index, text: str) -> str:
    return text if index.is_constant else f"({text})"


def _print_index(index: Index) -> str:
    """As `Index.text`, but for what Python and Triton read differently."""
    pieces: list[str] = []
    terms = sorted(index.terms, key=lambda term: (-abs(term[0]), term[0] < 0))
    for coefficient, atoms in terms:
        body = "*".join(_print_atom(atom) for atom in atoms)
        piece = body if abs(coefficient) == 1 else f"{abs(coefficient)}*{body}"
        if pieces:
            pieces.append(f" {'-' if coefficient < 0 else '+'} {piece}")
        else:
            pieces.append(f"-{piece}" if coefficient < 0 else piece)
    if index.constant or not pieces:
        sign = f" {'-' if index.constant < 0 else '+'} " if pieces else ""
        pieces.append(f"{sign}{abs(index.constant) if pieces else index.constant}")
    return "".join(pieces)


def _print_atom(atom: Symbol | Compound) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    left, right = _print_index(atom.left), _print_index(atom.right)
    match atom.operator:
        case "min" | "max":
            return f"tl.{atom.operator}imum({left}, {right})"
        case operator if is_nonnegative(atom.left):
            return f"({_factor(atom.left, left)} {operator} {_factor(atom.right, right)})"
        case "//":
            return f"functions.floor_div({left}, {right})"
        case _:
            return f"functions.remainder({left}, {right})"


def _factor(index: Index, text: str) -> str:
    """In brackets unless it is one symbol, number or division."""
    is_atom = len(index.terms) == 1 and index.terms[0][0] == 1 and len(index.terms[0][1]) == 1
    alone = index.is_constant or (is_atom and not index.constant)
    return text if alone else f"({text})"
