"""Canonical names of a group, so that groups of equal structure print, and compile, as one kernel.

Buffers become `in0`, `in1`, … (read), `out0`, … (written) and `inout0`, … (both, or combined into),
numbered by first use; locals become `m0`, …; loops `i0`, … and `r0`, …; sizes `s0`, … by first use;
loaded indices `k0`, …:

```
group add_gelu [i0<768]              group [i0<768]
  read buf17: f32[2, 384]              read in0: f32
  write buf18: f32[2, 384]      →      write out0: f32
  stage                                stage
    t0 = load buf17[i0]                  t0 = load in0[i0]
    store buf18[i0] = t0                 store out0[i0] = t0
```

The group's name, its origins and the shapes of its buffers are left out: a kernel sees memory,
indexed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from fusewright.ir.group import (
    Accumulate,
    Action,
    Gather,
    Group,
    Local,
    Reduce,
    ScanStore,
    Stage,
    Store,
    action_roots,
)
from fusewright.ir.index import Index, LoopSymbol, Symbol
from fusewright.ir.kernel import KernelArgument
from fusewright.ir.program import Buffer, Layout
from fusewright.ir.text import value_indices, work_rows
from fusewright.ir.text_parts import Names, print_loops, print_symbol
from fusewright.ir.value import Expressions, Indirect, Load, Value, place_of, postorder
from fusewright.records import record


@record
class CanonicalNames:
    """How one group's names map to canonical ones."""

    names: Names
    """Canonical names of buffers and locals, and of sizes and outer loops where they change."""

    stages: tuple[Names, ...]
    """Canonical names in each stage, those of its inner loops included: loops of one name may stand
    in several stages, at another depth in each.
    """

    arguments: tuple[KernelArgument, ...]
    """The buffers in memory under canonical names: `in…`, then `inout…`, then `out…`."""

    buffers: tuple[str, ...]
    """Their own names, in the same order: what a launch passes."""

    sizes: tuple[tuple[Symbol, Symbol], ...]
    """Pairs (canonical, own) of the size symbols that the kernel computes with."""


def canonical_names(group: Group) -> CanonicalNames:
    """Name everything in a group by kind and first use."""
    buffers, arguments, real = _name_buffers(group)
    buffers |= {local.name: f"m{number}" for number, local in enumerate(group.locals)}
    symbols: dict[Symbol, Index] = {}
    sizes: list[tuple[Symbol, Symbol]] = []
    for own in _sizes(group):
        named = own.renamed(f"{own.letter}{len(sizes)}")
        sizes.append((named, own))
        _rename(own, named, symbols)
    _rename_loops(group.outer, "i", symbols)
    stages = []
    for stage in group.stages:
        inner = dict(symbols)
        _rename_loops(stage.inner, "r", inner)
        stages.append(Names(buffers, inner))
    return CanonicalNames(Names(buffers, symbols), tuple(stages), arguments, real, tuple(sizes))


def structural_text(group: Group, canonical: CanonicalNames) -> str:
    """The group under canonical names, without what does not change its kernel. Equal text: equal
    kernel.
    """
    names = canonical.names
    rows = [f"group {print_loops(group.outer, names)}"]
    rows += [f"  size {print_symbol(symbol)}" for symbol, _ in canonical.sizes]
    devices = {buffer.name: buffer.layout.device for buffer in (*group.reads, *group.writes)}
    for argument, real in zip(canonical.arguments, canonical.buffers, strict=True):
        access = "write" if argument.is_written else "read"
        kind = devices[real].partition(":")[0]
        rows.append(f"  {access} {argument.name}: {argument.dtype} on {kind}")
    for written, read in group.reuses:
        rows.append(f"  reuse {names.buffer(read)} for {names.buffer(written)}")
    rows += [f"  {row}" for row in work_rows(group, names, canonical.stages)]
    return "\n".join(rows) + "\n"


def structural_key(group: Group, canonical: CanonicalNames, target: str = "") -> str:
    """A hash of the structural text, in hexadecimal: equal for groups that one kernel can serve, on
    one `target`.
    """
    return hash_of(structural_text(group, canonical) + target)


def hash_of(*texts: str) -> str:
    """A hash of texts in order, in hexadecimal."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def canonical_group(group: Group, canonical: CanonicalNames) -> Group:
    """The group itself under canonical names, its values made in a table of its own.

    Its buffers have no shape (`size` is empty): only their element type and device mean something.
    """
    expressions = Expressions()
    names = canonical.names

    def renamed(load: Load) -> Value:
        return expressions.load(names.buffer(load.buffer), load.index, load.dtype)

    def rewrite(value: Value, symbols: Mapping[Symbol, Index]) -> Value:
        return expressions.rewrite(value, symbols, renamed)

    def rewrite_action(action: Action, symbols: Mapping[Symbol, Index]) -> Action:
        new_value = rewrite(action.value, symbols)
        match action:
            case Store(buffer=buffer, index=index):
                place = index.substitute(symbols)
                return Store(buffer=names.buffer(buffer), index=place, value=new_value)
            case ScanStore(buffer=buffer, index=index, kind=kind):
                place = index.substitute(symbols)
                own = names.buffer(buffer)
                return ScanStore(buffer=own, index=place, kind=kind, value=new_value)
            case Gather(buffer=buffer, index=index, kind=kind):
                place = index.substitute(symbols)
                own = names.buffer(buffer)
                return Gather(buffer=own, index=place, kind=kind, value=new_value)
            case Reduce(targets=targets, kind=kind):
                local = tuple(map(names.buffer, targets))
                return Reduce(targets=local, kind=kind, value=new_value)
            case Accumulate(buffer=buffer, index=index, mode=mode):
                loaded = {
                    behind.symbol: place_of(rewrite(behind, symbols))
                    for behind in action.indirect
                    if isinstance(behind, Indirect)
                }
                place = index.substitute({**symbols, **loaded})
                return Accumulate(
                    buffer=names.buffer(buffer),
                    index=place,
                    indirect=expressions.behind(place),
                    mode=mode,
                    value=new_value,
                )

    layouts = {buffer.name: buffer.layout for buffer in (*group.reads, *group.writes)}
    memory = [
        Buffer(name=argument.name, layout=_shapeless(layouts[real]))
        for argument, real in zip(canonical.arguments, canonical.buffers, strict=True)
    ]
    own_reads = {names.buffer(buffer.name) for buffer in group.reads}
    own_writes = {names.buffer(buffer.name) for buffer in group.writes}
    return Group(
        name="group",
        outer=_loops(group.outer, names),
        locals=tuple(
            Local(
                name=names.buffer(local.name),
                dtype=local.dtype,
                size=tuple(extent.substitute(names.symbols) for extent in local.size),
            )
            for local in group.locals
        ),
        stages=tuple(
            Stage(
                inner=_loops(stage.inner, own),
                actions=tuple(rewrite_action(action, own.symbols) for action in stage.actions),
            )
            for stage, own in zip(group.stages, canonical.stages, strict=True)
        ),
        reads=tuple(buffer for buffer in memory if buffer.name in own_reads),
        writes=tuple(buffer for buffer in memory if buffer.name in own_writes),
        reuses=tuple((names.buffer(w), names.buffer(r)) for w, r in group.reuses),
    )


# Naming -------------------------------------------------------------------------------------------


def _name_buffers(
    group: Group,
) -> tuple[dict[str, str], tuple[KernelArgument, ...], tuple[str, ...]]:
    types = {buffer.name: buffer.layout.dtype for buffer in (*group.reads, *group.writes)}
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for stage in group.stages:
        for value in postorder(action_roots(*stage.actions)):
            if isinstance(value, Load) and value.buffer in types:
                read[value.buffer] = None
        for action in stage.actions:
            if isinstance(action, Reduce) or action.buffer not in types:
                continue
            written[action.buffer] = None
            if isinstance(action, Accumulate):
                read[action.buffer] = None
    by_kind = {
        "in": [name for name in read if name not in written],
        "inout": [name for name in read if name in written],
        "out": [name for name in written if name not in read],
    }
    named = {
        name: f"{kind}{number}" for kind, own in by_kind.items() for number, name in enumerate(own)
    }
    arguments = tuple(
        KernelArgument(name=canonical, dtype=types[name], is_written=name in written)
        for name, canonical in named.items()
    )
    return named, arguments, tuple(named)


def _sizes(group: Group) -> list[Symbol]:
    """The size symbols that the loops and accesses mention, by first use; ties by name."""
    symbols: dict[Symbol, None] = {}
    seen: set[Symbol] = set()

    def visit(index: Index) -> None:
        for symbol in sorted(index.free() - seen, key=lambda s: (len(s.name), s.name)):
            seen.add(symbol)
            if isinstance(symbol, LoopSymbol):
                visit(symbol.extent)
            else:
                symbols[symbol] = None

    loaded: set[Symbol] = set()
    for index in _indices(group, loaded):
        visit(index)
    return [symbol for symbol in symbols if symbol not in loaded]


def _indices(group: Group, loaded: set[Symbol]) -> Iterator[Index]:
    """Every index expression that the kernel computes with, in order; loaded symbols met are added
    to `loaded`.
    """
    yield from (symbol.extent for symbol in group.outer)
    for local in group.locals:
        yield from local.size
    for stage in group.stages:
        yield from (symbol.extent for symbol in stage.inner)
        for value in postorder(action_roots(*stage.actions)):
            yield from value_indices(value)
            if isinstance(value, Indirect):
                loaded.add(value.symbol)
        yield from (action.index for action in stage.actions if not isinstance(action, Reduce))


def _rename(own: Symbol, named: Symbol, symbols: dict[Symbol, Index]) -> None:
    if own != named:
        symbols[own] = named.index


def _rename_loops(loops: tuple[LoopSymbol, ...], prefix: str, symbols: dict[Symbol, Index]) -> None:
    for number, own in enumerate(loops):
        _rename(own, LoopSymbol(f"{prefix}{number}", own.extent.substitute(symbols)), symbols)


def _loops(loops: tuple[LoopSymbol, ...], names: Names) -> tuple[LoopSymbol, ...]:
    new = [next(iter(names.symbols.get(own, own.index).free())) for own in loops]
    return tuple(symbol for symbol in new if isinstance(symbol, LoopSymbol))


def _shapeless(layout: Layout) -> Layout:
    device = layout.device.partition(":")[0]
    return Layout(dtype=layout.dtype, size=(), stride=(), device=device)
