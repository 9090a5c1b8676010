"""Values: typed expression graphs over real numbers, hash-consed in a table that belongs to one
compile.

Within one `Expressions` table two values are equal when they are the same object; across tables,
compare text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, IndexLike, SizeSymbol, Symbol, as_index
from fusewright.ir.ops import OPERATIONS, RANDOM_COST, Result
from fusewright.ir.proof import proves
from fusewright.ir.relations import at_least, below
from fusewright.records import record

Number = bool | int | float


@record(eq=False, kw_only=True)
class Load:
    """The element of `buffer` at `index` (in elements, from where the buffer's data begins)."""

    buffer: str
    index: Index
    dtype: DType
    """The buffer's element type: a load never converts."""

    indirect: tuple[Indirect, ...] = ()
    """The values behind the loaded symbols (`k0`) that occur in `index`, in the order in which they
    were made.
    """


@record(eq=False, kw_only=True)
class Constant:
    """A number: a Python bool, int or float as the type wants."""

    value: Number
    dtype: DType


@record(eq=False, kw_only=True)
class IndexValue:
    """An index expression as a value of integer type; or a real symbol, of type f64."""

    index: Index
    dtype: DType
    indirect: tuple[Indirect, ...] = ()


@record(eq=False, kw_only=True)
class Apply:
    """An operation of `ops.OPERATIONS`."""

    operation: str
    arguments: tuple[Value, ...]
    dtype: DType


@record(eq=False, kw_only=True)
class Cast:
    """Conversion as torch does it: float to integer truncates, anything to bool is `!= 0`."""

    argument: Value
    dtype: DType


@record(eq=False, kw_only=True)
class Masked:
    """`value` where `mask` holds, else the constant `otherwise`; loads below `value` happen only
    where it holds.
    """

    mask: Value
    value: Value
    otherwise: Constant
    dtype: DType


@record(eq=False, kw_only=True)
class Indirect:
    """An index that is itself a value: `symbol` stands for it in index expressions.

    A negative value counts from the end of `size` when `wrap`; the result must lie in `[0, size)`,
    which is checked at run time when `check`, else promised by whoever made it.
    """

    symbol: Symbol
    value: Value
    size: Index
    wrap: bool
    check: bool
    dtype: DType = DType.I64


@record(eq=False, kw_only=True)
class Random:
    """The number that Philox gives for a seed at a position: `kind` is uniform, as
    `philox.uniform`.
    """

    kind: str
    seed: Value
    position: Index
    dtype: DType
    indirect: tuple[Indirect, ...] = ()


Value = Load | Constant | IndexValue | Apply | Cast | Masked | Indirect | Random


class Expressions:
    """The interning table of one compile, and the only maker of values; constructors fold and check
    types.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Value] = {}
        self._substituted: dict[tuple[object, ...], Index] = {}
        self._indirect: dict[Symbol, Indirect] = {}
        self._loaded_names: set[str] = set()

    def load(self, buffer: str, index: IndexLike, dtype: DType) -> Value:
        index = as_index(index)
        key = ("load", buffer, index, dtype)
        return self._intern(
            key,
            lambda: Load(buffer=buffer, index=index, dtype=dtype, indirect=self.behind(index)),
        )

    def constant(self, value: Number, dtype: DType) -> Value:
        converted = _convert_constant(value, dtype)
        key = ("constant", repr(converted), dtype)
        return self._intern(key, lambda: Constant(value=converted, dtype=dtype))

    def index(self, index: IndexLike, dtype: DType = DType.I64) -> Value:
        index = as_index(index)
        if index.is_constant:
            return self.constant(index.constant, dtype)
        key = ("index", index, dtype)
        return self._intern(
            key, lambda: IndexValue(index=index, dtype=dtype, indirect=self.behind(index))
        )

    def apply(self, operation: str, *arguments: Value) -> Value:
        """An operation on arguments of one type; `where` takes a bool first. Wrong types are an
        error here. What a constant bool decides is folded.
        """
        key = ("apply", operation, *map(id, arguments))
        node = self._known.get(key)
        if node is not None:
            return node
        dtype = result_type(operation, tuple(argument.dtype for argument in arguments))
        decided = self._decided(operation, arguments)
        if decided is not None:
            return decided
        return self._intern(
            key, lambda: Apply(operation=operation, arguments=arguments, dtype=dtype)
        )

    def _decided(self, operation: str, arguments: tuple[Value, ...]) -> Value | None:
        """The value of an operation that a constant bool among its arguments decides, or None."""
        if arguments[0].dtype is not DType.BOOL:
            return None
        match operation, arguments:
            case "where", (Constant(value=holds), value, otherwise):
                return value if holds else otherwise
            case "bitwise_not", (Constant(value=holds),):
                return self.constant(not holds, DType.BOOL)
            case "bitwise_and", (Constant(value=True), other) | (other, Constant(value=True)):
                return other
            case "bitwise_or", (Constant(value=False), other) | (other, Constant(value=False)):
                return other
            case (
                ("bitwise_and" | "bitwise_or"),
                (Constant() as known, _) | (_, Constant() as known),
            ):
                return known
        return None

    def cast(self, argument: Value, dtype: DType) -> Value:
        if argument.dtype == dtype:
            return argument
        if isinstance(argument, Constant):
            number, own = argument.value, argument.dtype
            return self.constant(own.rounded(number) if own.is_float else number, dtype)
        widens = dtype.is_float and dtype.compute == argument.dtype
        if widens and isinstance(argument, Cast) and argument.argument.dtype == dtype:
            return argument.argument  # widened, and rounded back
        if dtype.is_float and isinstance(argument, Cast) and argument.dtype.is_float:
            source = argument.argument
            if source.dtype is DType.BOOL:
                return self.cast(source, dtype)  # 0 and 1 are in every type
        key = ("cast", id(argument), dtype)
        return self._intern(key, lambda: Cast(argument=argument, dtype=dtype))

    def masked(self, mask: Value, value: Value, otherwise: Number) -> Value:
        if isinstance(mask, Constant):
            return value if mask.value else self.constant(otherwise, value.dtype)
        other = self.constant(otherwise, value.dtype)
        assert isinstance(other, Constant)
        key = ("masked", id(mask), id(value), id(other))
        return self._intern(
            key, lambda: Masked(mask=mask, value=value, otherwise=other, dtype=value.dtype)
        )

    def indirect(
        self, value: Value, size: IndexLike, *, wrap: bool = True, check: bool = True
    ) -> Index:
        """The index expression that is `value` at run time, bounded by `size`.

        A value that is an index expression or a constant within `[0, size)` is that index: nothing
        is loaded.
        """
        size = as_index(size)
        if isinstance(value, IndexValue | Constant):
            place = place_of(value)
            promised = not (wrap or check)
            if promised or (proves(at_least(place, 0)) and proves(below(place, size))):
                return place
        key = ("indirect", id(value), size, wrap, check)
        node = self._known.get(key)
        if isinstance(node, Indirect):
            return node.symbol.index
        number = len(self._indirect)
        while f"k{number}" in self._loaded_names:
            number += 1
        indirect = self.named_indirect(f"k{number}", value, size, wrap=wrap, check=check)
        return indirect.symbol.index

    def named_indirect(
        self, name: str, value: Value, size: Index, *, wrap: bool, check: bool
    ) -> Indirect:
        """An index that is loaded, as `indirect` makes it, whose symbol has this name."""
        upper = size.upper
        symbol = SizeSymbol(name, 0, None if upper is None else upper - 1)
        indirect = Indirect(symbol=symbol, value=value, size=size, wrap=wrap, check=check)
        self._known[("indirect", id(value), size, wrap, check)] = indirect
        self._indirect[symbol] = indirect
        self._loaded_names.add(name)
        return indirect

    def random(self, kind: str, seed: Value, position: IndexLike, dtype: DType) -> Value:
        position = as_index(position)
        key = ("random", kind, id(seed), position, dtype)
        return self._intern(
            key,
            lambda: Random(
                kind=kind, seed=seed, position=position, dtype=dtype, indirect=self.behind(position)
            ),
        )

    def substitute(self, value: Value, replacements: Mapping[Symbol, Index]) -> Value:
        """`value` with loop or size symbols replaced in every index; what does not mention them is
        shared.
        """
        return self.rewrite(value, replacements, lambda load: None)

    def substitute_index(self, index: Index, replacements: Mapping[Symbol, Index]) -> Index:
        """`index.substitute(replacements)`, remembered: the layers of a network ask it over and
        over.
        """
        key = (index, *((s, replacements[s]) for s in index.free() if s in replacements))
        result = self._substituted.get(key)
        if result is None:
            result = self._substituted[key] = index.substitute(replacements)
        return result

    def rewrite(
        self,
        value: Value,
        replacements: Mapping[Symbol, Index],
        replace_load: Callable[[Load], Value | None],
        decide: Callable[[Apply], bool | None] = lambda comparison: None,
    ) -> Value:
        """Replace symbols, then each load for which `replace_load` (given the new load) returns a
        value, and each operation that gives a bool, for which `decide` (given the new one) knows
        it.
        """
        done: dict[int, Value] = {}
        for node in postorder((value,)):
            new = self._rewrite_node(node, done, replacements, replace_load)
            if isinstance(new, Apply) and new.dtype is DType.BOOL:
                known = decide(new)
                new = new if known is None else self.constant(known, DType.BOOL)
            done[id(node)] = new
        return done[id(value)]

    def _rewrite_node(
        self,
        node: Value,
        done: dict[int, Value],
        replacements: Mapping[Symbol, Index],
        replace_load: Callable[[Load], Value | None],
    ) -> Value:
        match node:
            case Constant(value=value, dtype=dtype):
                return self.constant(value, dtype)
            case Apply(operation=operation, arguments=arguments):
                return self.apply(operation, *(done[id(argument)] for argument in arguments))
            case Cast(argument=argument, dtype=dtype):
                return self.cast(done[id(argument)], dtype)
            case Masked(mask=mask, value=value, otherwise=otherwise):
                return self.masked(done[id(mask)], done[id(value)], otherwise.value)
            case Indirect(value=value, size=size, wrap=wrap, check=check):
                index = self.indirect(
                    done[id(value)], size.substitute(replacements), wrap=wrap, check=check
                )
                for indirect in self.behind(index):
                    if index == indirect.symbol.index:
                        return indirect
                return self.index(index)
            case Load() | IndexValue() | Random():
                loaded = {
                    inner.symbol: place_of(done[id(inner)])
                    for inner in node.indirect
                    if done[id(inner)] is not inner
                }
                replacements = {**replacements, **loaded} if loaded else replacements
                return self._rewrite_access(node, done, replacements, replace_load)

    def _rewrite_access(
        self,
        node: Load | IndexValue | Random,
        done: dict[int, Value],
        replacements: Mapping[Symbol, Index],
        replace_load: Callable[[Load], Value | None],
    ) -> Value:
        match node:
            case Load(buffer=buffer, index=index, dtype=dtype):
                load = self.load(buffer, self.substitute_index(index, replacements), dtype)
                assert isinstance(load, Load)
                replaced = replace_load(load)
                return load if replaced is None else replaced
            case IndexValue(index=index, dtype=dtype):
                return self.index(self.substitute_index(index, replacements), dtype)
            case Random(kind=kind, seed=seed, position=position, dtype=dtype):
                position = self.substitute_index(position, replacements)
                return self.random(kind, done[id(seed)], position, dtype)

    def behind(self, index: Index) -> tuple[Indirect, ...]:
        """The values behind the loaded symbols that occur in `index`, in the order in which they
        were made.
        """
        nodes = (self._indirect[s] for s in index.free() if s in self._indirect)
        return tuple(sorted(nodes, key=lambda node: (len(node.symbol.name), node.symbol.name)))

    def _intern(self, key: tuple[object, ...], make: Callable[[], Value]) -> Value:
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = make()
        return node


def result_type(operation: str, arguments: tuple[DType, ...]) -> DType:
    """The type of `operation` on arguments of these types; an error names what does not fit."""
    row = OPERATIONS.get(operation)
    if row is None:
        raise TypeError(f"there is no operation {operation!r}")
    if len(arguments) != row.arity:
        raise TypeError(f"{operation} takes {row.arity} arguments, not {len(arguments)}")
    if row.result is Result.SECOND:
        if arguments[0] is not DType.BOOL:
            raise TypeError(f"the condition of {operation} is {arguments[0]}, not bool")
        arguments = arguments[1:]
    if any(argument is not arguments[0] for argument in arguments):
        raise TypeError(f"{operation} on mixed types {', '.join(map(str, arguments))}")
    kind = {"float": "f", "signed": "i", "unsigned": "i", "bool": "b"}.get(arguments[0].kind, "?")
    if kind not in row.kinds:
        raise TypeError(f"{operation} does not take {arguments[0]}")
    return DType.BOOL if row.result is Result.BOOL else arguments[0]


def children(value: Value) -> tuple[Value, ...]:
    """The values that `value` is made from, in order, indices that were loaded included."""
    match value:
        case Load(indirect=indirect) | IndexValue(indirect=indirect):
            return indirect
        case Apply(arguments=arguments):
            return arguments
        case Cast(argument=argument):
            return (argument,)
        case Masked(mask=mask, value=inner, otherwise=otherwise):
            return (mask, inner, otherwise)
        case Indirect(value=inner):
            return (inner,)
        case Random(seed=seed, indirect=indirect):
            return (seed, *indirect)
        case Constant():
            return ()


def postorder(roots: tuple[Value, ...]) -> Iterator[Value]:
    """Every value below `roots` once, each after what it is made from; iterative, so depth is no
    limit.
    """
    entered: set[int] = set()
    left: set[int] = set()
    stack = [*reversed(roots)]
    while stack:
        value = stack[-1]
        number = id(value)
        if number not in entered:
            entered.add(number)
            below = children(value)
            if below:
                stack.extend(below[::-1])
                continue
        del stack[-1]
        if number not in left:
            left.add(number)
            yield value


def node_cost(value: Value) -> int:
    """The cost of computing `value` from its arguments, in additions; loads cost nothing here."""
    match value:
        case Apply(operation=operation):
            return OPERATIONS[operation].cost
        case Cast() | Masked():
            return 1
        case Random():
            return RANDOM_COST
        case _:
            return 0


def place_of(value: Value) -> Index:
    """The index expression that stands for a value used as an index."""
    match value:
        case Indirect(symbol=symbol):
            return symbol.index
        case IndexValue(index=index):
            return index
        case Constant(value=number):
            return as_index(int(number))
        case _:
            raise TypeError(f"{type(value).__name__} is no index")


def _convert_constant(value: Number, dtype: DType) -> Number:
    """`value` as a Python number of the type's kind, wrapped to its width if it is an integer."""
    if dtype is DType.BOOL:
        return bool(value)
    if dtype.is_float:
        return float(value)
    modulus = 1 << dtype.bits
    wrapped = int(value) % modulus
    signed = dtype.kind == "signed" and wrapped >= modulus // 2
    return wrapped - modulus if signed else wrapped
