"""Evaluates Programs and Schedules element by element, to compare one with the other.

Memory starts out unwritten, and reading an unwritten element is an error, so a wrong order is found
as surely as a wrong value. Points of outer loops run in a shuffled order, as a kernel may run them.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate, Gather, Group, Reduce, ScanStore, Schedule, Store
from fusewright.ir.index import Symbol
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    ComputedBuffer,
    CopyBack,
    Operand,
    Pointwise,
    Program,
    Reduction,
    Scan,
    Scatter,
    ViewReference,
)
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
)
from fusewright.schedule.lifetimes import last_uses

Number = bool | int | float
Memory = dict[str, dict[int, Number]]
"""Elements of each buffer, by element index; what was never written is missing."""

OPERATIONS: dict[str, Callable[..., Number]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y if y else math.nan,
    "neg": lambda x: -x,
    "exp": lambda x: math.exp(min(x, 50.0)),
    "tanh": math.tanh,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else math.nan,
    "maximum": max,
    "minimum": min,
    "where": lambda c, x, y: x if c else y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "bitwise_and": lambda x, y: x & y,
}

COMBINE: dict[str, tuple[Number | None, Callable[[Number, Number], Number]]] = {
    "sum": (0.0, lambda x, y: x + y),
    "prod": (1.0, lambda x, y: x * y),
    "max": (None, max),
    "min": (None, min),
    "any": (False, lambda x, y: x or y),
    "all": (True, lambda x, y: x and y),
    "xor": (0, lambda x, y: int(x) ^ int(y)),
    "add": (0.0, lambda x, y: x + y),
    "store": (0.0, lambda x, y: y),
}


class Evaluator:
    """Memory, sizes, and what reads and writes them."""

    def __init__(
        self, program: Program, inputs: dict[str, Sequence[Number]], seed: int = 0
    ) -> None:
        self.sizes = {fact.symbol.name: fact.hint for fact in program.sizes}
        self.memory: Memory = {name: dict(enumerate(data)) for name, data in inputs.items()}
        self.random = random.Random(seed)
        self.loaded: dict[int, Number] | None = None
        """What the actions of a stage share at the current point: loads below no mask."""

        self.masks = 0
        """How many masks are around the value being evaluated."""

    # Statements -----------------------------------------------------------------------------------

    def run_program(self, program: Program) -> list[list[Number]]:
        for statement in program.statements:
            match statement:
                case ComputedBuffer():
                    self._compute(statement)
                case CopyBack():
                    self._copy_back(statement)
                case CallOperator():
                    self._extern(statement)
        return [self._result(operand) for operand in program.outputs]

    def run_schedule(self, schedule: Schedule, *, renamed: bool = False) -> list[list[Number]]:
        """Memory that dies is taken over wherever a group offers it, and dropped otherwise.

        That goes for graph inputs too, as if they were the plan's own, unless they are mutated.
        `renamed`: groups run under canonical names, as their kernels are written.
        """
        run_group = self._renamed_group if renamed else self._group
        works = schedule.works
        copied = {work.target for work in works if isinstance(work, CopyBack)}
        for work, dying in zip(works, last_uses(schedule.program, works), strict=True):
            match work:
                case Group():
                    run_group(work, set(dying) - copied)
                case CopyBack():
                    self._copy_back(work)
                case CallOperator():
                    self._extern(work)
            for name in set(dying) - copied:
                self.memory.pop(name, None)
        return [self._result(operand) for operand in schedule.program.outputs]

    def _result(self, operand: Operand) -> list[Number]:
        assert isinstance(operand, BufferReference)
        return self.elements(operand.name)

    def elements(self, name: str) -> list[Number]:
        """What is written of a buffer, in the order of memory."""
        elements = self.memory[name]
        return [elements[k] for k in sorted(elements)]

    def _copy_back(self, statement: CopyBack) -> None:
        assert isinstance(statement.source, BufferReference)
        self.memory[statement.target] = dict(self.memory[statement.source.name])

    def _extern(self, statement: CallOperator) -> None:
        """Stands for any library call: the mean of all elements it reads, plus the position,
        everywhere.
        """
        names = [
            o.name for o in statement.arguments if isinstance(o, (BufferReference, ViewReference))
        ]
        elements = [float(x) for name in names for x in self.memory[name].values()]
        mean = sum(elements) / max(len(elements), 1)
        for buffer in statement.outputs:
            count = math.prod(s.evaluate(self.sizes) for s in buffer.layout.size)
            self.memory[buffer.name] = {k: mean + k for k in range(count)}
        for name in statement.mutates:
            self.memory[name] = {k: x + 1.0 for k, x in self.memory[name].items()}

    # Program bodies -------------------------------------------------------------------------------

    def _compute(self, statement: ComputedBuffer) -> None:
        for buffer in statement.outputs:
            self.memory.setdefault(buffer.name, {})
        match statement.body:
            case Pointwise(loops=loops, value=value):
                for point in self.points(loops, {}):
                    self._put(statement.outputs[0], loops, point, self.value(value, point))
            case Reduction(loops=loops, reduction_loops=inner, kind=kind, value=value):
                for point in self.points(loops, {}):
                    values = [self.value(value, inside) for inside in self.points(inner, point)]
                    results = reduce_all(kind, values)
                    for buffer, result in zip(statement.outputs, results, strict=True):
                        self._put(buffer, loops, point, result)
            case Scan(loops=loops, along=along, kind=kind, value=value):
                for point in self.points([loop for loop in loops if loop != along], {}):
                    total = None
                    for inside in self.points([along], point):
                        total = self._scanned(kind, total, self.value(value, inside))
                        self._put(statement.outputs[0], loops, inside, total)
            case Scatter() as body:
                name = statement.outputs[0].name
                self.memory[name] = self.memory.pop(body.base)
                for point in self.points(body.loops, {}):
                    self._accumulate(name, body.mode, body.index, body.indirect, body.value, point)

    def _scanned(self, kind: str, total: Number | None, new: Number) -> Number:
        return new if total is None else COMBINE[kind][1](total, new)

    def _put(
        self, buffer: Buffer, loops: Sequence[Symbol], point: dict[str, int], value: Number
    ) -> None:
        index = buffer.layout.index(tuple(symbol.index for symbol in loops))
        self.memory[buffer.name][index.evaluate(point)] = value

    def _accumulate(self, name, mode, index, indirect, value, point) -> None:
        environment = dict(point)
        for behind in indirect:
            environment[behind.symbol.name] = int(self.value(behind, point))
        place = index.evaluate(environment)
        new = self.value(value, point)
        old = self.memory[name][place]
        self.memory[name][place] = COMBINE[mode][1](old, new)

    # Groups ---------------------------------------------------------------------------------------

    def _renamed_group(self, group: Group, free: set[str]) -> None:
        """`group` under canonical names, which see nothing but its own buffers and sizes."""
        canonical = canonical_names(group)
        name = canonical.names.buffer
        kernel = copy.copy(self)
        kernel.sizes = {new.name: self.sizes[own.name] for new, own in canonical.sizes}
        used = {buffer.name for buffer in group.reads} & set(self.memory)
        kernel.memory = {name(own): self.memory[own] for own in used}
        kernel._group(canonical_group(group, canonical), {name(own) for own in free & used})
        for buffer in group.writes:
            self.memory[buffer.name] = kernel.memory[name(buffer.name)]

    def _group(self, group: Group, free: set[str]) -> None:
        """Local storage is made anew for each point of the outer loops.

        What is written in the memory of a dying buffer is the same dictionary under two names.
        """
        for buffer in group.writes:
            offers = [read for written, read in group.reuses if written == buffer.name]
            source = next((read for read in offers if read in free), None)
            if source is not None:
                free = free - {source}
                self.memory[buffer.name] = self.memory[source]
            elif buffer.name in dict(group.taken_over):
                self.memory[buffer.name] = dict(self.memory[offers[0]])
            else:
                self.memory[buffer.name] = {}
        points = list(self.points(group.outer, {}))
        self.random.shuffle(points)
        declared = {buffer.name for buffer in (*group.reads, *group.writes)}
        local = {one.name for one in group.locals}
        for point in points:
            for name in local:
                self.memory[name] = {}
            for stage in group.stages:
                self._stage(stage, point, declared | local)
        for name in local:
            del self.memory[name]

    def _stage(self, stage, point: dict[str, int], declared: set[str]) -> None:
        gathered: dict[int, list[Number]] = {
            k: [] for k, action in enumerate(stage.actions) if isinstance(action, Reduce)
        }
        stored = {a.buffer for a in stage.actions if not isinstance(a, Reduce)}
        nodes = (node for a in stage.actions for node in postorder((a.value,)))
        loaded = {node.buffer for node in nodes if isinstance(node, Load)}
        shares = not gathered and loaded.isdisjoint(stored)
        totals: dict[int, Number] = {}
        for inside in self.points(stage.inner, point):
            self.loaded = {} if shares else None
            for k, action in enumerate(stage.actions):
                for node in postorder((action.value,)):
                    assert not isinstance(node, Load) or node.buffer in declared
                match action:
                    case Store(buffer=buffer, index=index, value=value):
                        self.memory[buffer][index.evaluate(inside)] = self.value(value, inside)
                    case ScanStore(buffer=buffer, index=index, kind=kind, value=value):
                        new = self.value(value, inside)
                        totals[k] = self._scanned(kind, totals.get(k), new)
                        self.memory[buffer][index.evaluate(inside)] = totals[k]
                    case Gather(buffer=buffer, index=index, kind=kind, value=value):
                        own, at = self.memory[buffer], index.evaluate(inside)
                        own[at] = self._scanned(kind, own.get(at), self.value(value, inside))
                    case Reduce(value=value):
                        gathered[k].append(self.value(value, inside))
                    case Accumulate():
                        self._accumulate(
                            action.buffer,
                            action.mode,
                            action.index,
                            action.indirect,
                            action.value,
                            inside,
                        )
        for k, values in gathered.items():
            action = stage.actions[k]
            results = reduce_all(action.kind, values)
            for target, result in zip(action.targets, results, strict=True):
                self.memory[target][0] = result

    # Values ---------------------------------------------------------------------------------------

    def points(self, loops: Sequence[Symbol], outside: dict[str, int]) -> Iterator[dict[str, int]]:
        """Every point of the loops, outermost slowest, with the sizes and the loops outside."""
        around = {**self.sizes, **outside}
        extents = [range(symbol.extent.evaluate(around)) for symbol in loops]
        for values in itertools.product(*extents):
            yield {**around, **{s.name: v for s, v in zip(loops, values, strict=True)}}

    def value(self, root: Value, point: dict[str, int]) -> Number:
        """Recursive, so that what a mask hides is not evaluated."""
        match root:
            case Load(buffer=buffer, index=index, indirect=indirect):
                shared = None if self.masks else self.loaded
                if shared is not None and id(root) in shared:
                    return shared[id(root)]
                found = self.memory[buffer][index.evaluate(self._inside(indirect, point))]
                if shared is not None:
                    shared[id(root)] = found
                return found
            case Constant(value=value):
                return value
            case IndexValue(index=index, indirect=indirect):
                return index.evaluate(self._inside(indirect, point))
            case Apply(operation=operation, arguments=arguments):
                return OPERATIONS[operation](*(self.value(a, point) for a in arguments))
            case Cast(argument=argument, dtype=dtype):
                return _cast(self.value(argument, point), dtype)
            case Masked(mask=mask, value=value, otherwise=otherwise):
                if not self.value(mask, point):
                    return otherwise.value
                self.masks += 1
                found = self.value(value, point)
                self.masks -= 1
                return found
            case Indirect(value=inner, size=size, wrap=wrap):
                found = int(self.value(inner, point))
                limit = size.evaluate(point)
                found = found + limit if wrap and found < 0 else found
                assert 0 <= found < limit
                return found
            case Random():
                raise NotImplementedError("random draws are not compared here")

    def _inside(self, indirect: Sequence[Indirect], point: dict[str, int]) -> dict[str, int]:
        if not indirect:
            return point
        return {**point, **{k.symbol.name: int(self.value(k, point)) for k in indirect}}


def reduce_all(kind: str, values: Sequence[Number]) -> tuple[Number, ...]:
    """The results of a reduction over all `values`, in order."""
    if kind in ("argmax", "argmin"):
        choose = max if kind == "argmax" else min
        return (values.index(choose(values)),)
    if kind == "welford":
        mean = math.fsum(values) / len(values) if values else 0.0
        return (mean, math.fsum((x - mean) ** 2 for x in values))
    start, combine = COMBINE[kind]
    total = start
    for value in values:
        total = value if total is None else combine(total, value)
    assert total is not None, f"{kind} of nothing"
    return (total,)


def _cast(value: Number, dtype: DType) -> Number:
    if dtype is DType.BOOL:
        return value != 0
    return float(value) if dtype.is_float else int(value)
