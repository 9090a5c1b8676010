"""Inlining: a stored value that is cheaper to compute again than to keep is put where it is read,
and its buffer goes.

Before:
```
nest [i0<768]                  store a[i0]:  w[i0] * 2
nest [i0<256, i1<768]          store y[768*i0 + i1]:  x[768*i0 + i1] + a[i1]
```
After:
```
nest [i0<256, i1<768]          store y[768*i0 + i1]:  x[768*i0 + i1] + w[i1] * 2
```
The loops of the producer are found from the element that is read (`invert`), so the reader may walk
it in any order, repeat it or skip parts; where that takes divisions, the reader's loops are split
as the producer's are (`align`). A value that may raise has to be read whole by someone. A
value is inlined
* into a single place that needs each element about once, whatever it costs; or more often, if it
  is stored only because it may raise;
* into every place, where it costs little and reads no more bytes than it writes, or reads nothing
  at all, or is a sum that needs no loop (`single_terms`);
* into matrix products whose kernels compute their operands (`Limits.product_form`), whatever it
  costs, where nobody else reads it;
* nowhere, where it is read along its memory so often that computing it again is more work than a
  launch of its own: biases by distances between words are the same for all sentences of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fusewright.ir.bounds import ALWAYS, Conditions, access_conditions
from fusewright.ir.index import Index, Symbol, extent, integer
from fusewright.ir.products import is_operand, symbols_of
from fusewright.ir.value import Load, Value
from fusewright.records import record, replace
from fusewright.schedule.align import split_alike
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.dead_code import remove_unread
from fusewright.schedule.invert import compounds, loops_of_element
from fusewright.schedule.nest import ORDERED_KINDS, Access, Nest, Piece, Step, step_effects
from fusewright.schedule.simplify import simplify
from fusewright.schedule.single_terms import without_single_terms

REPEATS = 1.25
"""The number of times, on average, that one place may need each element for a value of any cost to
move there.
"""

READ_SHARE = 1.125
"""A value that is computed again wherever it is read may read so many times the bytes that it
writes.
"""

HELD_BYTES = 1 << 18
"""A value of fewer bytes moves to where it is added, whatever it is computed from."""

SUM_SHARE = 8
"""A tensor counts as much larger than what is added to it where it has so many times its bytes:
writing that to memory first then takes a small part of the time."""

KEPT_COST = 24
"""A value that costs so many additions or more takes longer to compute than to load from a cache:
logarithms and divisions, not a cosine alone. A softmax of four million scores, in the decoder of a
T5, took 42 us on an H200 where it computed the bias of each by the distance of two words.
"""

KEPT_SHARE = 4
"""Its readers have so many times its elements, at least: it is small beside what they read."""

LAUNCH_COST = 1 << 26
"""The additions that a GPU does in the time of a launch, or a few."""

VALUE_LIMIT = 256
"""A value does not grow past this many nodes by inlining."""


@record
class Uses:
    """The uses of one buffer."""

    loads: tuple[tuple[Nest, Piece, Load], ...]
    last: int
    """Position of the last reader."""

    is_needed: bool
    """Whether a library call, a copy, the caller or a scatter's base needs it in memory."""

    of_terms: bool = False
    """Whether it was a sum (`single_terms`), of a value for each of many points."""


def inline(
    steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis
) -> list[Step | None]:
    """Steps with values inlined; None where nothing is left. Expects one piece a nest."""
    result = list(steps)
    uses = _uses(steps, kept, analysis)
    overwritten = _overwritten(steps, analysis)
    products = {n for s in steps if isinstance(s, Nest) and s.is_product for n in s.written}
    inlined: dict[str, Nest] = {}
    for position, step in enumerate(steps):
        if not isinstance(step, Nest):
            continue
        added_up = _with_inlined(step, inlined)
        nest = without_single_terms(added_up)
        result[position] = nest
        (piece,) = nest.pieces
        if not piece.is_store:
            continue
        (write,) = piece.writes
        use = uses.get(write.buffer)
        if use is None:
            continue
        if nest is not added_up:  # Who reads such a sum reads the terms, mostly.
            use = replace(use, of_terms=True)
        if why_not_inline(nest, position, use, overwritten, products) is not None:
            continue
        inlined[write.buffer] = nest
        result[position] = None
    return remove_unread(result, kept, analysis)


def why_not_inline(
    nest: Nest,
    position: int,
    use: Uses,
    overwritten: Mapping[str, Sequence[int]],
    products: Collection[str],
) -> str | None:
    """The reason why a stored value stays where it is, or None. `products`: buffers that matrix
    products write.
    """
    (piece,) = nest.pieces
    analysis = nest.analysis
    if use.is_needed:
        return "it is needed in memory"
    if any(reader.device != nest.device for reader, _, _ in use.loads):
        return "another device is given its value"
    if piece.writes[0].buffer in analysis.stored_products:
        return "its matrix product stores it"
    into_products = any(reader.is_product for reader, _, _ in use.loads)
    if into_products:
        reason = _why_no_operand(nest, use, products)
        if reason is not None:
            return reason
    if len(analysis.nodes(piece.value)) > VALUE_LIMIT:
        return "its expression is large"
    if _would_hold_more(nest, piece, use):
        return "what it reads would be held beside a large sum"
    reason = None if into_products else _too_expensive(nest, piece, use)
    if reason is not None:
        return reason
    for name in nest.loaded:
        changes = overwritten.get(analysis.memory(name), ())
        if any(position < when <= use.last for when in changes):
            return f"{name} changes before it is read"
    if analysis.may_raise(piece.value) and not any(
        _reads_all(user, reader, load, piece.writes[0].buffer) for user, reader, load in use.loads
    ):
        return "what it raises for would not all be computed"
    reasons = (_why_not_at(nest, *place, into_products) for place in use.loads)
    return next((reason for reason in reasons if reason is not None), None)


def _why_not_at(nest: Nest, user: Nest, reader: Piece, load: Load, may_divide: bool) -> str | None:
    """The reason why a value cannot be computed where one load reads it, or None."""
    places = _loops_at(nest, load, _conditions(reader, load))
    if places is None:
        return "its loops cannot be told from an element"
    if not _checks_alike(nest, load, places):
        return "an index into it is checked, and picks nothing of what it is computed from"
    if _divides(places, load) and not may_divide and _split_for(nest, user, reader, load) is None:
        return f"reading at {load.index} would need divisions"
    return None


def _divides(places: Mapping[Symbol, Index], load: Load) -> bool:
    """Whether the loops of a value at an element are found by more divisions than the element."""
    return sum(map(compounds, places.values())) > 2 * compounds(load.index)


def _split_for(nest: Nest, user: Nest, reader: Piece, load: Load) -> Nest | None:
    """The nest that reads a value, its loops split as those that compute it, so that they are told
    from an element without divisions; None where they do not correspond.

        store t[1024*i0 + i1]: f(c[i0])                 inlined into  sum s[] over [r0<4096]: t[r0]
        gives  sum s[] over [r0<4, r1<1024]: f(c[r0])
    """
    if reader.kind in ORDERED_KINDS:
        return None
    (piece,) = nest.pieces
    access = Access(load.buffer, load.index, is_affine=not load.indirect)
    return split_alike(user, (reader, access), nest, (piece, piece.writes[0]))


def _why_no_operand(nest: Nest, use: Uses, products: Collection[str]) -> str | None:
    """The reason why a value that matrix products read is not computed in their kernels, or None:
    they do so where `Limits.product_form` says it, and nobody else needs the value.
    """
    if not all(reader.computes_operands for reader, _, _ in use.loads):
        return "a matrix product reads each element many times"
    value = nest.pieces[0].value
    if not is_operand(value):
        return "a matrix product is of what lies in memory, and looks no places up"
    if not symbols_of(value).issuperset(s for s in nest.outer if s.extent != 1):
        return "it is the same along a loop, and a matrix product is of matrices"
    if not nest.loaded.keys().isdisjoint(products):
        return "it is computed where the product is that it follows from"
    return None


def _would_hold_more(nest: Nest, piece: Piece, use: Uses) -> bool:
    """Whether a value is added to a much larger tensor, such as the gradient of an embedding, which
    is often the most that a program holds: then it is one tensor beside that, and not all those
    that it is computed from.
    """
    analysis = nest.analysis
    held = analysis.bytes(piece.writes[0].buffer)
    if held < HELD_BYTES or sum(2 * analysis.bytes(name) >= held for name in nest.loaded) < 2:
        return False
    return any(
        reader.mode == "add" and analysis.bytes(reader.base) >= SUM_SHARE * held
        for _, reader, _ in use.loads
        if reader.base
    )


def _reads_all(nest: Nest, reader: Piece, load: Load, buffer: str) -> bool:
    """Whether a load meets each element of a buffer, whatever is read elsewhere: its index has the
    loops as digits.
    """
    if _conditions(reader, load) != ALWAYS:
        return False
    analysis = nest.analysis
    loops = [symbol for symbol in (*nest.outer, *reader.inner) if symbol in load.index.free()]
    steps = {analysis.stride(load.index, symbol): symbol for symbol in loops}
    reached = integer(1)
    for _ in loops:
        symbol = steps.get(reached)
        if symbol is None:
            return False
        reached = reached * symbol.extent
    size = analysis.product(analysis.buffers[buffer].layout.size)
    origin = analysis.substitute(load.index, {symbol: integer(0) for symbol in loops})
    return reached == size and origin == integer(0)


def _checks_alike(nest: Nest, load: Load, loops: Mapping[Symbol, Index]) -> bool:
    """Whether the indices that `load` checks are in the value that the nest has at these loops."""
    checked = {id(loaded) for loaded in load.indirect if loaded.check}
    if not checked:
        return True
    (piece,) = nest.pieces
    analysis = nest.analysis
    value = analysis.expressions.substitute(piece.value, loops)
    return checked.issubset(map(id, analysis.nodes(value)))


def _too_expensive(nest: Nest, piece: Piece, use: Uses) -> str | None:
    analysis = nest.analysis
    name = piece.writes[0].buffer
    cost = analysis.cost(piece.value)
    reads = sum(_points(reader, at) for reader, at, _ in use.loads)
    again = cost * (reads - analysis.elements(name))
    if cost >= KEPT_COST and again >= LAUNCH_COST and _is_small_and_read_along(name, use):
        return "computing it so often costs more than memory"
    if len(use.loads) == 1 and (
        reads <= REPEATS * analysis.elements(name) or analysis.may_raise(piece.value)
    ):
        return None
    limits = analysis.limits_of(nest.device)
    width = analysis.buffers[name].layout.dtype.bytes
    if cost > max(limits.cheap_cost, width * limits.operations_a_byte):
        return "computing it again costs more than memory"
    points = analysis.points(map(extent, nest.outer))
    sizes = {load.buffer: load.dtype.bytes for load in piece.loads(analysis)}
    read = sum(min(analysis.bytes(b), points * size) for b, size in sizes.items())
    if read > READ_SHARE * analysis.bytes(name) and not use.of_terms:
        return "it reads more bytes than it writes"
    return None


def _is_small_and_read_along(name: str, use: Uses) -> bool:
    """Whether each reader goes along the memory of a value in its innermost loop, several times:
    one in which it is the same computes it outside of that, and others would read little of each
    line.
    """
    for nest, piece, load in use.loads:
        loops = [symbol for symbol in (*nest.outer, *piece.inner) if symbol.extent != 1]
        if not loops or nest.analysis.stride(load.index, loops[-1]) != 1:
            return False
        if _points(nest, piece) < KEPT_SHARE * nest.analysis.elements(name):
            return False
    return True


def _points(nest: Nest, piece: Piece) -> int:
    """The number of times that the value of a piece is evaluated."""
    return nest.analysis.points(map(extent, (*nest.outer, *piece.inner)))


def _uses(
    steps: Iterable[Step | None], kept: frozenset[str], analysis: Analysis
) -> dict[str, Uses]:
    loads: dict[str, list[tuple[Nest, Piece, Load]]] = {}
    last: dict[str, int] = {}
    needed = set(kept)
    for position, step in enumerate(steps):
        if step is None:
            continue
        effect = step_effects(step, analysis)
        for name in (*effect.reads, *effect.overwrites):
            last[name] = position
        if not isinstance(step, Nest):
            needed.update(effect.reads)
            needed.update(effect.overwrites)
            continue
        needed.update(effect.overwrites)
        for piece in step.pieces:
            for load in piece.loads(analysis):
                loads.setdefault(load.buffer, []).append((step, piece, load))
    return {name: Uses(tuple(places), last[name], name in needed) for name, places in loads.items()}


def _overwritten(steps: Iterable[Step | None], analysis: Analysis) -> dict[str, list[int]]:
    """Positions of the steps that change memory, by the buffer that owns it."""
    positions: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        if step is not None:
            for name in step_effects(step, analysis).overwrites:
                positions.setdefault(analysis.memory(name), []).append(position)
    return positions


def _loops_at(nest: Nest, load: Load, conditions: Conditions) -> dict[Symbol, Index] | None:
    """The loops of `nest`, which stores one buffer, at the element that `load` reads."""
    (piece,) = nest.pieces
    write = piece.writes[0].index
    return loops_of_element(write, nest.outer, load.index, nest.analysis, conditions)


def _conditions(reader: Piece, load: Load) -> Conditions:
    """The conditions that the masks around a load prove wherever it happens."""
    return access_conditions(reader.roots).get(id(load), ALWAYS)


def _with_inlined(nest: Nest, inlined: Mapping[str, Nest]) -> Nest:
    """The nest with every load of a buffer that an inlined nest stored replaced by its value."""
    if not any(name in inlined for name in nest.loaded):
        return nest
    nest = _split_for_all(nest, inlined)
    (piece,) = nest.pieces
    conditions = access_conditions(piece.roots)

    def replaced(load: Load) -> Value | None:
        source = inlined.get(load.buffer)
        if source is None:
            return None
        places = _loops_at(source, load, conditions.get(id(load), ALWAYS))
        assert places is not None
        return nest.analysis.expressions.substitute(source.pieces[0].value, places)

    return simplify(nest.replace_loads(replaced))


def _split_for_all(nest: Nest, inlined: Mapping[str, Nest]) -> Nest:
    """The nest, its loops split for each load of an inlined value that would need divisions."""
    if nest.is_product:
        return nest
    (piece,) = nest.pieces
    conditions = access_conditions(piece.roots)
    for load in piece.loads(nest.analysis):
        source = inlined.get(load.buffer)
        if source is None:
            continue
        places = _loops_at(source, load, conditions.get(id(load), ALWAYS))
        if places is None or not _divides(places, load):
            continue
        split = _split_for(source, nest, piece, load)
        if split is not None:
            return _split_for_all(split, inlined)
    return nest
