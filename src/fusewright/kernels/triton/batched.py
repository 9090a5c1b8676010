"""One kernel for launches that differ in their tensors and sizes alone, such as the steps of an
optimiser for many parameters.

Each program finds the launch that it is a part of, by halves, and takes over its tensors and size:

```
@triton.jit
def kernel(in0_0, out0_0, in0_1, out0_1, XBLOCK: tl.constexpr):
    program = tl.program_id(0)
    if program < 4:
        first = 0
        s0 = 4096
        in0 = in0_0
        out0 = out0_0
    else:
        first = 4
        s0 = 70
        in0 = in0_1
        out0 = out0_1
    program = program - first
    if (program + 1) * XBLOCK <= s0:
        whole(program, in0, out0, XBLOCK)
    else:
        last(program, in0, out0, s0, XBLOCK)
```
A tile that lies within its tensors needs no masks: its memory is read and written in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from fusewright.ir.group import Action, Group, Stage, Store
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, integer
from fusewright.ir.kernel import KernelArgument
from fusewright.ir.program import Buffer
from fusewright.ir.value import Expressions, Indirect, Load, Random, Value, postorder
from fusewright.kernels.triton.configurations import configuration_of
from fusewright.kernels.triton.emit import KernelWriter, TritonKernel, imports
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
    group: Group, arguments: Sequence[KernelArgument], sizes: Sequence[int]
) -> TritonKernel:
    """One kernel for a group under canonical names, which `of_any_size` has made, on as many sets
    of its arguments as there are sizes: all of the first, then all of the second.
    """
    whole = of_any_size(group, TILES.index * TILE)
    assert whole is not None
    configuration = configuration_of(group)
    (axis,) = configuration.tiling.axes
    names = [argument.name for argument in arguments]
    writer = KernelWriter(group, configuration.tiling, "program")
    bodies = KernelWriter(whole, tile(whole), "program").write(), writer.write()
    counts = [-(-size // axis.block) for size in sizes]
    firsts = [0, *accumulate(counts)]
    own, block = ", ".join(names), f"{axis.block_name}: tl.constexpr"
    signature = [
        (f"{argument.name}_{place}", writer.kind(argument))
        for place in range(len(sizes))
        for argument in arguments
    ]
    rows = [
        *imports([row for body in bodies for row in body]),
        *("", "", "@triton.jit", f"def whole(program, {own}, {block}):", *bodies[0]),
        *("", "", "@triton.jit", f"def last(program, {own}, s0, {block}):", *bodies[1]),
        *("", "", "@triton.jit", f"def kernel({', '.join(n for n, _ in signature)}, {block}):"),
        "    program = tl.program_id(0)",
        *_choice(names, sizes, firsts, range(len(sizes)), 1),
        "    program = program - first",
        f"    if (program + 1) * {axis.block_name} <= s0:",
        f"        whole(program, {own}, {axis.block_name})",
        "    else:",
        f"        last(program, {own}, s0, {axis.block_name})",
    ]
    return TritonKernel(
        source="\n".join(rows) + "\n",
        signature=(*signature, (axis.block_name, "constexpr")),
        blocks=((axis.block_name, axis.block),),
        programs=integer(sum(counts)),
        warps=configuration.warps,
        stages=configuration.stages,
        checks_bounds=False,
    )


def _choice(
    names: Sequence[str], sizes: Sequence[int], firsts: Sequence[int], among: range, depth: int
) -> list[str]:
    """Rows that take over the arguments of the launch, one of those `among`, that a program is a
    part of; `firsts`: the first program of each.
    """
    indent = "    " * depth
    if len(among) == 1:
        (place,) = among
        own = [f"{indent}{name} = {name}_{place}" for name in names]
        return [f"{indent}first = {firsts[place]}", f"{indent}s0 = {sizes[place]}", *own]
    middle = len(among) // 2
    return [
        f"{indent}if program < {firsts[among[middle]]}:",
        *_choice(names, sizes, firsts, among[:middle], depth + 1),
        f"{indent}else:",
        *_choice(names, sizes, firsts, among[middle:], depth + 1),
    ]
