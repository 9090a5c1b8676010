"""Index expressions as registers: scalars where they can be, vectors where they differ by lane."""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.index import Atom, Compound, Index, LoopSymbol, Symbol, integer
from fusewright.ir.proof import is_nonnegative
from fusewright.kernels.analysis import stride
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.scope import POINTER, Scope
from fusewright.kernels.llvm.storage import MEMORY


def lane_stride(scope: Scope, index: Index) -> Index | None:
    """The step of `index` from lane to lane; None where it is irregular or an indirect index is a
    vector."""
    if scope.lanes is None:
        return integer(0)
    if has_vectors(scope, index):
        return None
    return stride(index, scope.lanes.symbol, scope.lanes.count)


def has_vectors(scope: Scope, index: Index) -> bool:
    """Whether an index holds loaded indices that differ from lane to lane."""
    return any(register.type.lanes > 1 for register in _loaded(scope, index))


def _loaded(scope: Scope, index: Index) -> list[Register]:
    """The registers of the loaded symbols in an index."""
    return [
        scope.symbols[s]
        for s in index.free()
        if not isinstance(s, LoopSymbol) and s in scope.symbols
    ]


def scalar(scope: Scope, index: Index) -> Register:
    """The value of `index` (in the first lane) as an i64, summed from the outermost level
    inwards."""
    if index.is_constant:
        return scope.integer(index.constant)
    key = ("index", scope.expression_key(index))
    register = scope.recall(key)
    if register is not None:
        return register
    parts = sorted(
        ((_term_level(scope, atoms), number) for number, (_, atoms) in enumerate(index.terms))
    )
    total: Register | None = None
    for level, number in parts:
        coefficient, atoms = index.terms[number]
        with scope.at(level):
            term = _term(scope, coefficient, atoms)
            total = term if total is None else total + term
    assert total is not None
    with scope.at(parts[-1][0]):
        if index.constant:
            total = total + index.constant
        return scope.remember(key, total)


def _term_level(scope: Scope, atoms: tuple[Atom, ...]) -> int:
    """The level at which a term is known."""
    symbols: set[Symbol] = set()
    for atom in atoms:
        symbols |= {atom} if isinstance(atom, Symbol) else atom.free()
    level = scope.level_of_symbols(symbols)
    for symbol in symbols:
        if not isinstance(symbol, LoopSymbol) and symbol in scope.symbols:
            level = max(level, scope.symbols[symbol].level)
    return level


def _term(scope: Scope, coefficient: int, atoms: tuple[Atom, ...]) -> Register:
    product: Register | None = None
    for atom in atoms:
        factor = _atom(scope, atom)
        product = factor if product is None else product * factor
    assert product is not None
    return product if coefficient == 1 else product * coefficient


def _atom(scope: Scope, atom: Atom) -> Register:
    if isinstance(atom, Symbol):
        return scope.symbols[atom]
    left, right = scalar(scope, atom.left), scalar(scope, atom.right)
    return _compound(scope, atom, left, right)


def _compound(scope: Scope, atom: Compound, left: Register, right: Register) -> Register:
    """Floor division, remainder, minimum or maximum; operands known to be non-negative divide
    unsigned."""
    b = scope.b
    if atom.operator in ("min", "max"):
        return b.intrinsic(f"s{atom.operator}", left, right)
    if is_nonnegative(atom.left):
        return b.binary("udiv" if atom.operator == "//" else "urem", left, right)
    quotient = b.binary("sdiv", left, right)
    rest = left - quotient * right
    below = rest < 0
    if atom.operator == "//":
        return b.select(below, quotient - 1, quotient)
    return b.select(below, rest + right, rest)


def runs(count: Index) -> bool:
    """Whether a loop of `count` steps is known to do one."""
    return is_nonnegative(count - 1)


def vector(scope: Scope, index: Index, element: str = "i64") -> Register:
    """`index` in every lane, as integers of type `element`; the caller knows that they fit."""
    lanes = scope.lanes
    assert lanes is not None
    key = ("vector", scope.expression_key(index), element, lanes.count)
    register = scope.recall(key)
    if register is None:
        with scope.at(_vector_level(scope, index)):
            register = scope.remember(key, _write_vector(scope, index, element))
    return register


def _vector_level(scope: Scope, index: Index) -> int:
    """The level at which `index` is known in every lane."""
    assert scope.lanes is not None
    levels = [_term_level(scope, atoms) for _, atoms in index.terms]
    return max([scope.level_of_symbols({scope.lanes.symbol}), *levels])


def _write_vector(scope: Scope, index: Index, element: str) -> Register:
    lanes = scope.lanes
    assert lanes is not None
    step = lane_stride(scope, index)
    if step is not None and step.is_constant:
        first = _narrowed(scope, scalar(scope, index), element)
        result = scope.b.splat(first, lanes.count)
        if step != 0:
            result = result + scope.lane_positions(element) * int(step)
        return result
    total: Register | None = None
    for coefficient, atoms in index.terms:
        product: Register | None = None
        for atom in atoms:
            factor = _vector_atom(scope, atom, element)
            product = factor if product is None else product * factor
        assert product is not None
        product = product if coefficient == 1 else product * coefficient
        total = product if total is None else total + product
    assert total is not None
    return total + index.constant if index.constant else total


def _vector_atom(scope: Scope, atom: Atom, element: str) -> Register:
    lanes = scope.lanes
    assert lanes is not None
    if isinstance(atom, Compound):
        left, right = vector(scope, atom.left, element), vector(scope, atom.right, element)
        return _compound(scope, atom, left, right)
    register = _narrowed(scope, scope.symbols[atom], element)
    if register.type.lanes == 1:
        register = scope.b.splat(register, lanes.count)
    return register + scope.lane_positions(element) if atom == lanes.symbol else register


def _narrowed(scope: Scope, register: Register, element: str) -> Register:
    if register.type.element == element:
        return register
    if not register.text.startswith("%"):
        return Register(scope.b, register.text, VectorType(element, register.type.lanes))
    return scope.b.cast("trunc", register, element)


def fits_in_32_bits(index: Index) -> bool:
    """Whether the expression and every part of it are known to fit an i32."""
    return all(_fits(bound) for bound in index.bounds()) and all(
        all(_fits(bound) for bound in atom.bounds())
        and (
            isinstance(atom, Symbol) or (fits_in_32_bits(atom.left) and fits_in_32_bits(atom.right))
        )
        for _, atoms in index.terms
        for atom in atoms
    )


def _fits(bound: int | None) -> bool:
    return bound is not None and -(2**31) <= bound < 2**31


def address(scope: Scope, buffer: str, index: Index, dtype: DType) -> Register:
    """Pointer to the element at `index` of a buffer, of the first lane where lanes differ."""
    return address_from(scope, scope.pointers[buffer], index, MEMORY[dtype])


def address_from(scope: Scope, base: Register, index: Index, element: str) -> Register:
    """Pointer `index` elements past `base`: added up from the outermost level inwards, so that the
    innermost addition is what the processor's addressing does."""
    pointer = base
    by_level: dict[int, Index] = {}
    for coefficient, atoms in index.terms:
        level = _term_level(scope, atoms)
        part = Index(((coefficient, atoms),), 0)
        by_level[level] = by_level[level] + part if level in by_level else part
    if index.constant:
        first = min(by_level, default=0)
        by_level[first] = by_level.get(first, integer(0)) + index.constant
    for level in sorted(by_level):
        part = by_level[level]
        key = ("address", pointer.text, scope.expression_key(part), element)
        address = scope.recall(key)
        if address is None:
            with scope.at(level):
                offset = scalar(scope, part)
                address = scope.b.emit(
                    POINTER, f"getelementptr {element}, ptr {pointer.text}, i64 {offset.text}"
                )
                scope.remember(key, address)
        pointer = address
    return pointer


def lane_addresses(scope: Scope, buffer: str, index: Index, dtype: DType) -> Register:
    """A pointer a lane, for gathers and scatters: what all lanes share is added once, before."""
    lanes = scope.lanes
    assert lanes is not None
    shared, apart = _by_lane(scope, index)
    base = address(scope, buffer, shared, dtype)
    positions = vector(scope, apart, "i32" if fits_in_32_bits(apart) else "i64")
    kind = VectorType("ptr", lanes.count)
    return scope.b.emit(
        kind,
        f"getelementptr {MEMORY[dtype]}, ptr {base.text}, {positions.type} {positions.text}",
    )


def _by_lane(scope: Scope, index: Index) -> tuple[Index, Index]:
    """`index` as a sum of two: what is the same in all lanes, and the rest."""
    lanes = scope.lanes
    assert lanes is not None
    shared = apart = integer(0)
    for coefficient, atoms in index.terms:
        term = Index(((coefficient, atoms),), 0)
        varies = lanes.symbol in term.free() or has_vectors(scope, term)
        shared, apart = (shared, apart + term) if varies else (shared + term, apart)
    return shared + index.constant, apart
