"""The legality of values: the rules that hold for every body, whether of a program or of a group.

value        legal when
Load         its buffer is defined; the types agree; its symbols are in scope; not out of bounds
Constant     a bool, int or float as its type wants; an integer within its type's range
IndexValue   of integer type; its symbols are in scope; or a real number alone, of type f64
Apply        `ops.OPERATIONS` gives its type; only `where` takes half types (lowering moved to f32)
Cast         between different types
Masked       the mask is bool; both values have its type
Indirect     of integer values; its size is in scope
Random       kind uniform, of a floating type; the seed is i64
all          real types only
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusewright.ir.bounds import ALWAYS, Conditions, Verdict, access_conditions, judge_access
from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, RealSymbol, Symbol
from fusewright.ir.relations import below
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
    postorder,
    result_type,
)
from fusewright.records import field, record

RANDOM_KINDS = ("uniform",)


@record(frozen=False)
class Accesses:
    """How many loads and stores lie inside their buffers, by why; and how many stores reach every
    element of what they write.
    """

    proved: int = 0
    """Inside wherever their loops go."""

    masked: int = 0
    """Inside where the masks hold under which they happen."""

    checked: int = 0
    """Inside since the loaded indices in them are checked at run time."""

    promised: int = 0
    """Inside if the loaded indices in them are as their maker promised."""

    unknown: int = 0
    covered: int = 0
    """Buffers and locals of which each element is written."""

    not_covered: int = 0
    """How many buffers and locals could not be proved to be written whole."""

    rows: list[str] = field(default_factory=list)
    """The accesses that are unknown, and what is not known to be covered."""

    def add(self, other: Accesses) -> None:
        """Count what `other` has counted too."""
        for name in ("proved", "masked", "checked", "promised", "unknown", "covered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.not_covered += other.not_covered
        self.rows += other.rows

    def __str__(self) -> str:
        names = ("proved", "masked", "checked", "promised", "unknown", "covered", "not_covered")
        counts = [(getattr(self, name), name.replace("_", " ")) for name in names]
        return ", ".join(f"{count} {name}" for count, name in counts if count) or "no accesses"


@record
class Memory:
    """The memory that can be loaded or stored by one name."""

    dtype: DType
    capacity: Index
    """How many elements the memory holds."""


@record(frozen=False)
class ValueScope:
    """Where a body stands: the memory it may load, its loops, the sizes, what its masks say."""

    memory: Mapping[str, Memory]
    loops: tuple[LoopSymbol, ...]
    sizes: frozenset[Symbol]
    accesses: Accesses
    loaded: set[Symbol] = field(default_factory=set)
    """Symbols of the loaded indices checked so far."""

    conditions: dict[int, Conditions] = field(default_factory=dict)

    def out_of_scope(self, index: Index) -> str | None:
        """Why `index` cannot be computed here."""
        unknown = index.free() - set(self.loops) - self.sizes - self.loaded
        if unknown:
            return f"{', '.join(sorted(map(str, unknown)))} is not in scope in {index}"
        return None

    def access(
        self,
        name: str,
        index: Index,
        conditions: Conditions = ALWAYS,
        indirect: Sequence[Value] = (),
    ) -> str | None:
        """Judge an access and count it; why it is illegal. `indirect`: the values behind the loaded
        symbols in `index`, each of which lies inside the size that it is an index of.
        """
        reason = self.out_of_scope(index)
        if reason is not None:
            return reason
        capacity = self.memory[name].capacity
        loaded = [value for value in indirect if isinstance(value, Indirect)]
        limits = frozenset(below(value.symbol, value.size) for value in loaded)

        def judge(assumed: Conditions) -> Verdict:
            return judge_access(index, capacity, self.loops, assumed)

        with_limits = judge(limits)
        if not conditions and (judge(ALWAYS) if limits else with_limits) is Verdict.OUTSIDE:
            return f"{name}[{index}] leaves the {capacity} elements of {name}"
        if with_limits is Verdict.INSIDE:
            checked = all(value.check for value in loaded)
            kind = "proved" if not loaded else "checked" if checked else "promised"
        elif judge(limits | conditions) is Verdict.INSIDE:
            kind = "masked"
        else:
            kind = "unknown"
            self.accesses.rows.append(f"{name}[{index}] of {capacity}")
        setattr(self.accesses, kind, getattr(self.accesses, kind) + 1)
        return None


def check_values(roots: tuple[Value, ...], scope: ValueScope) -> tuple[Value, str] | None:
    """The first illegal value below `roots` and what is wrong with it."""
    scope.conditions = access_conditions(roots)
    for value in postorder(roots):
        reason = _CHECKS[type(value)](value, scope)
        if reason is None and not value.dtype.is_computed:
            reason = f"{value.dtype} is no type of a body's values"
        if reason is not None:
            return value, reason
    return None


def _load(value: Load, scope: ValueScope) -> str | None:
    memory = scope.memory.get(value.buffer)
    if memory is None:
        return f"{value.buffer} is not defined here"
    if memory.dtype is not value.dtype:
        return f"{value.buffer} holds {memory.dtype}, the load gives {value.dtype}"
    conditions = scope.conditions[id(value)]
    return scope.access(value.buffer, value.index, conditions, value.indirect)


def _constant(value: Constant, scope: ValueScope) -> str | None:
    wanted = {"float": float, "signed": int, "unsigned": int, "bool": bool}.get(value.dtype.kind)
    if type(value.value) is not wanted:
        return f"{value.value!r} is no {value.dtype}"
    if isinstance(value.value, int) and value.dtype.is_integer:
        signed = value.dtype.kind == "signed"
        low = -(1 << (value.dtype.bits - 1)) if signed else 0
        if not low <= value.value < low + (1 << value.dtype.bits):
            return f"{value.value} does not fit {value.dtype}"
    return None


def _index(value: IndexValue, scope: ValueScope) -> str | None:
    reals = [symbol for symbol in value.index.free() if isinstance(symbol, RealSymbol)]
    if reals and (value.index != reals[0].index or value.dtype is not DType.F64):
        return f"a real number stands alone, as f64: not {value.index} as {value.dtype}"
    if not reals and not value.dtype.is_integer:
        return f"an index is an integer, not {value.dtype}"
    return scope.out_of_scope(value.index)


def _apply(value: Apply, scope: ValueScope) -> str | None:
    types = tuple(argument.dtype for argument in value.arguments)
    try:
        wanted = result_type(value.operation, types)
    except TypeError as error:
        return str(error)
    if wanted is not value.dtype:
        return f"{value.operation} gives {wanted}, not {value.dtype}"
    halves = [dtype for dtype in types if dtype.compute is not dtype]
    if halves and value.operation != "where":
        return f"{value.operation} on {halves[0]}: arithmetic on half types is done in f32"
    return None


def _cast(value: Cast, scope: ValueScope) -> str | None:
    return "a cast to its own type" if value.argument.dtype is value.dtype else None


def _masked(value: Masked, scope: ValueScope) -> str | None:
    if value.mask.dtype is not DType.BOOL:
        return f"the mask is {value.mask.dtype}, not bool"
    if not value.value.dtype is value.otherwise.dtype is value.dtype:
        return f"{value.value.dtype} and {value.otherwise.dtype} do not make {value.dtype}"
    return None


def _indirect(value: Indirect, scope: ValueScope) -> str | None:
    if not value.value.dtype.is_integer:
        return f"an index is an integer, not {value.value.dtype}"
    reason = scope.out_of_scope(value.size)
    scope.loaded.add(value.symbol)
    return reason


def _random(value: Random, scope: ValueScope) -> str | None:
    if value.kind not in RANDOM_KINDS:
        return f"{value.kind} is none of {', '.join(RANDOM_KINDS)}"
    if value.seed.dtype is not DType.I64:
        return f"the seed is {value.seed.dtype}, not i64"
    if not value.dtype.is_float:
        return f"{value.kind} gives no {value.dtype}"
    return scope.out_of_scope(value.position)


_CHECKS: dict[type, Callable[[Any, ValueScope], str | None]] = {
    Load: _load,
    Constant: _constant,
    IndexValue: _index,
    Apply: _apply,
    Cast: _cast,
    Masked: _masked,
    Indirect: _indirect,
    Random: _random,
}
