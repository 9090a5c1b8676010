"""One kernel for launches that differ in their tensors and sizes alone, such as the steps of an
optimiser for many parameters.

The tensors and sizes of a few launches are the kernel's parameters; of `in0_0`, `s0_0`, `in0_1`,
`s0_1` and so on, each program takes over those of the launch that it is a part of. For many
launches, it finds them by halves in a table in memory, which has the first program, the size and
the tensors of each (`runtime.argument_tables`). The source is the same for any sizes, and with a
table for any number of launches:

```
@triton.jit
def kernel(table, launches, XBLOCK: tl.constexpr):
    program = tl.program_id(0)
    place = 0
    end = launches
    while end - place > 1:
        middle = (place + end) // 2
        if (tl.load(table + middle) >> 32) <= program:
            place = middle
        else:
            end = middle
    first = tl.load(table + place)
    program -= (first >> 32).to(tl.int32)
    s0 = first.to(tl.int32)
    arguments = table + launches + place * 2
    argument0 = tl.load(arguments)
    argument1 = tl.load(arguments + 1)
    if ((program + 1) * XBLOCK <= s0) & ((argument0 | argument1) % 16 == 0):
        in0 = tl.multiple_of(argument0.to(tl.pointer_type(tl.float32)), 16)
        out0 = tl.multiple_of(argument1.to(tl.pointer_type(tl.float32)), 16)
        whole(program, in0, out0, XBLOCK)
    else:
        in0 = argument0.to(tl.pointer_type(tl.float32))
        out0 = argument1.to(tl.pointer_type(tl.float32))
        last(program, in0, out0, s0, XBLOCK)
```
A tile that lies within its tensors needs no masks: its memory is read and written in vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fusewright.ir.group import Action, Group, Stage, Store
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, integer
from fusewright.ir.kernel import TABLE_PARAMETERS, KernelArgument
from fusewright.ir.program import Buffer
from fusewright.ir.value import Expressions, Indirect, Load, Random, Value, postorder
from fusewright.kernels.triton.configurations import configuration_of
from fusewright.kernels.triton.emit import KernelWriter, TritonKernel, imports
from fusewright.kernels.triton.operations import TYPES
from fusewright.kernels.triton.tiling import TILE, tile
from fusewright.records import replace

MOST_ELEMENTS = 1 << 30
"""Elements of a launch: 32 bits tell the place of each, with room for a tile."""

SIZE = SizeSymbol("s0", 1, MOST_ELEMENTS)
"""The elements of a launch."""

TILES = SizeSymbol("s0", 1, MOST_ELEMENTS // TILE)
"""Tiles that lie within the tensors of a launch."""


def of_any_size(
    group: Group, size: Index = SIZE.index, names: Mapping[str, str] | None = None
) -> Group | None:
    """A group that computes each element by itself, over `size` elements instead of its own number;
    None: it is another kind of group. `names`: other names of its buffers, of which two may be one
    where the group is launched with one for both.
    """
    names = names or {}
    actions = [action for stage in group.stages for action in stage.actions]
    if len(group.outer) != 1 or group.locals or any(stage.inner for stage in group.stages):
        return None
    values = postorder(tuple(action.value for action in actions))
    if any(isinstance(value, Indirect | Random) for value in values):
        return None
    loop = LoopSymbol("i0", size)
    symbols: dict[Symbol, Index] = {group.outer[0]: loop.index}
    make = Expressions()

    def renamed(load: Load) -> Value:
        return make.load(names.get(load.buffer, load.buffer), load.index, load.dtype)

    def buffers(own: Sequence[Buffer]) -> tuple[Buffer, ...]:
        return tuple(replace(buffer, name=names.get(buffer.name, buffer.name)) for buffer in own)

    stages: list[Stage] = []
    for stage in group.stages:
        stores: list[Action] = []
        for action in stage.actions:
            if not isinstance(action, Store):
                return None
            place = action.index.substitute(symbols)
            value = make.rewrite(action.value, symbols, renamed)
            target = names.get(action.buffer, action.buffer)
            stores.append(Store(buffer=target, index=place, value=value))
        stages.append(Stage(inner=(), actions=tuple(stores)))
    return replace(
        group,
        outer=(loop,),
        stages=tuple(stages),
        reads=buffers(group.reads),
        writes=buffers(group.writes),
        reuses=(),
    )


def write_batch(
    group: Group, arguments: Sequence[KernelArgument], sizes: Sequence[int], *, has_table: bool
) -> TritonKernel:
    """One kernel for a group under canonical names, which `of_any_size` has made, on as many sets
    of its arguments as there are sizes. Without a table, its parameters are all arguments of the
    first launch, then those of the second, and the sizes in the same order.
    """
    whole = of_any_size(group, TILES.index * TILE)
    assert whole is not None
    configuration = configuration_of(group)
    (axis,) = configuration.tiling.axes
    block = axis.block_name
    writer = KernelWriter(group, configuration.tiling, "program")
    bodies = KernelWriter(whole, tile(whole), "program").write(), writer.write()
    own = ", ".join(argument.name for argument in arguments)
    kinds = [writer.kind(argument) for argument in arguments]
    if has_table:
        parameters = dict(TABLE_PARAMETERS)
        choice = _from_table(arguments, kinds, block)
    else:
        numbers = range(len(sizes))
        own_kinds = {argument.name: kind for argument, kind in zip(arguments, kinds, strict=True)}
        parameters = {f"{name}_{n}": kind for n in numbers for name, kind in own_kinds.items()}
        parameters |= {f"s0_{n}": "i32" for n in numbers}
        choice = _from_parameters(list(own_kinds), len(sizes), block)
    rows = [
        *imports([row for body in bodies for row in body]),
        *("", "", "@triton.jit", f"def whole(program, {own}, {block}: tl.constexpr):", *bodies[0]),
        *("", "", "@triton.jit", f"def last(program, {own}, s0, {block}: tl.constexpr):"),
        *bodies[1],
        *("", "", "@triton.jit", f"def kernel({', '.join(parameters)}, {block}: tl.constexpr):"),
        "    program = tl.program_id(0)",
        *(f"    {row}" for row in choice),
    ]
    return TritonKernel(
        source="\n".join(rows) + "\n",
        signature=(*parameters.items(), (block, "constexpr")),
        blocks=((block, axis.block),),
        programs=integer(sum(-(-size // axis.block) for size in sizes)),
        warps=configuration.warps,
        stages=configuration.stages,
        checks_bounds=False,
    )


def _from_parameters(names: Sequence[str], launches: int, block: str) -> Iterator[str]:
    """Rows that compute the tile of a program, whose launch is found among the parameters. `names`:
    of the arguments of a launch.
    """
    yield "first = 0"
    yield "end = 0"
    for number in range(launches):
        indent = "    " if number else ""
        if number:
            yield "if program >= end:"
            yield "    first = end"
        yield f"{indent}s0 = s0_{number}"
        for name in names:
            yield f"{indent}{name} = {name}_{number}"
        if number < launches - 1:
            yield f"end += tl.cdiv(s0_{number}, {block})"
    own = ", ".join(names)
    yield "program -= first"
    yield f"if (program + 1) * {block} <= s0:"
    yield f"    whole(program, {own}, {block})"
    yield "else:"
    yield f"    last(program, {own}, s0, {block})"


def _from_table(
    arguments: Sequence[KernelArgument], kinds: Sequence[str], block: str
) -> Iterator[str]:
    """Rows that compute the tile of a program, whose launch is found in the table. `kinds`: the
    types of the arguments of a launch.
    """
    own = ", ".join(argument.name for argument in arguments)
    pointers = [place for place, kind in enumerate(kinds) if kind.startswith("*")]
    addresses = " | ".join(f"argument{place}" for place in pointers)
    yield from SEARCH
    yield f"arguments = table + launches + place * {len(arguments)}"
    for place in range(len(arguments)):
        yield f"argument{place} = tl.load(arguments + {place})"
    yield f"if ((program + 1) * {block} <= s0) & (({addresses}) % 16 == 0):"
    yield from _taken_over(arguments, kinds, "tl.multiple_of({}, 16)")
    yield f"    whole(program, {own}, {block})"
    yield "else:"
    yield from _taken_over(arguments, kinds, "{}")
    yield f"    last(program, {own}, s0, {block})"


SEARCH: Final = (
    "place = 0",
    "end = launches",
    "while end - place > 1:",
    "    middle = (place + end) // 2",
    "    if (tl.load(table + middle) >> 32) <= program:",
    "        place = middle",
    "    else:",
    "        end = middle",
    "first = tl.load(table + place)",
    "program -= (first >> 32).to(tl.int32)",
    "s0 = first.to(tl.int32)",
)
"""Rows that find the launch that a program is a part of, and its size."""

NUMBERS: Final = {
    "i64": "{}",
    "i32": "{}.to(tl.int32)",
    "fp64": "{}.to(tl.float64, bitcast=True)",
    "fp32": "{}.to(tl.int32).to(tl.float32, bitcast=True)",
}
"""Numbers of the CPU, of whose bits a table holds the lower ones, by type."""


def _taken_over(
    arguments: Sequence[KernelArgument], kinds: Sequence[str], pointer: str
) -> Iterator[str]:
    """Rows that give the arguments of a table their names; `pointer`: what stands around each that
    is one.
    """
    for place, (argument, kind) in enumerate(zip(arguments, kinds, strict=True)):
        value = f"argument{place}"
        if kind in NUMBERS:
            value = NUMBERS[kind].format(value)
        else:
            value = pointer.format(f"{value}.to(tl.pointer_type({TYPES[argument.dtype]}))")
        yield f"    {argument.name} = {value}"
