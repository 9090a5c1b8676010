"""The meaning of programs, executable: evaluates any Program with plain torch operators, for
differential tests.

Each body is evaluated over the grid of all its loops at once, one tensor operation a value. Speed
does not matter here; every load is checked against the bounds of its buffer, except where a mask
says that it does not happen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from fusewright import philox
from fusewright.ir.dtype import DType
from fusewright.ir.index import Compound, Index, LoopSymbol, Symbol
from fusewright.ir.program import (
    Body,
    Buffer,
    BufferReference,
    CallOperator,
    CallSubprogram,
    CallUserKernel,
    CheckFact,
    ComputedBuffer,
    ComputeNumber,
    CopyBack,
    Enumerated,
    Layout,
    ListOf,
    Literal,
    Operand,
    Pointwise,
    Program,
    ReadItem,
    ReadSize,
    Reduction,
    RowStatement,
    Scan,
    Scatter,
    UnfilledMemory,
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
)
from fusewright.number_functions import NUMBER_FUNCTIONS
from fusewright.records import field, record

Tensor = torch.Tensor
Integer = int | Tensor


def evaluate(
    program: Program,
    inputs: Sequence[Tensor],
    *,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, Tensor] | None = None,
    float64: bool = False,
    programs: Mapping[str, Callable[..., Any]] | None = None,
) -> list[Any]:
    """The outputs of `program` for tensors in the order of `program.inputs`: tensors, or numbers.

    sizes: the value of each size symbol, by name. constants: the tensors of `program.constants`, by
    name. float64: take every floating type for f64, to measure rounding errors against. programs:
    what runs the subprograms, by name. Raises: IndexError, for a load outside its buffer;
    AssertionError, for a library call whose result does not have the layout that the program says,
    or a body that yields another type than its buffer's.
    """
    device = inputs[0].device if inputs else torch.device("cpu")
    evaluation = Evaluation(dict(sizes or {}), float64, device)
    for buffer, tensor in zip(program.inputs, inputs, strict=True):
        evaluation.adopt(buffer, tensor)
    for buffer in program.constants:
        evaluation.adopt(buffer, (constants or {})[buffer.name])
    for statement in program.statements:
        if isinstance(statement, ComputedBuffer):
            evaluation.compute(statement.outputs, statement.body)
        else:
            evaluation.execute(statement, programs or {})
    return [evaluation.operand(operand) for operand in program.outputs]


def evaluate_call(
    program: Program,
    arguments: Sequence[Any],
    constants: Mapping[str, Tensor],
    programs: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Any, ...]:
    """The outputs of `program` for what compiled code takes: the numbers that its size symbols
    stand for, then the tensors. Raises as `evaluate` does.
    """
    names = [fact.symbol.name for fact in program.input_sizes]
    sizes = dict(zip(names, arguments, strict=False))
    tensors = arguments[len(names) :]
    return tuple(evaluate(program, tensors, sizes=sizes, constants=constants, programs=programs))


@record(frozen=False)
class Evaluation:
    """Memory while a program is evaluated."""

    sizes: dict[str, Any]
    float64: bool
    device: torch.device
    memory: dict[str, Tensor] = field(default_factory=dict)
    """By buffer: all its elements in the order in which they lie, from where its data begins."""

    layouts: dict[str, Layout] = field(default_factory=dict)

    def adopt(self, buffer: Buffer, tensor: Tensor) -> None:
        """Let `buffer` be the memory of `tensor`; a copy of it in f64 where that is wanted. An
        opaque value is kept as it is.
        """
        if buffer.layout.is_opaque:
            self.memory[buffer.name], self.layouts[buffer.name] = tensor, buffer.layout
            return
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        left = max(elements - tensor.storage_offset(), 0)
        flat = torch.as_strided(tensor, (left,), (1,), tensor.storage_offset())
        self.memory[buffer.name] = flat.to(self.torch_type(buffer.layout.dtype))
        self.layouts[buffer.name] = buffer.layout

    def allocate(self, buffer: Buffer) -> Tensor:
        """New memory for `buffer`, as it is laid out."""
        layout = buffer.layout
        size, stride = self.numbers(layout.size), self.numbers(layout.stride)
        span = 1 + sum((s - 1) * t for s, t in zip(size, stride, strict=True)) if prod(size) else 0
        offset = self.number(layout.offset)
        dtype = self.torch_type(layout.dtype)
        self.memory[buffer.name] = torch.zeros(span + offset, dtype=dtype, device=self.device)
        self.layouts[buffer.name] = layout
        return self.view(buffer.name, layout)

    def view(self, name: str, layout: Layout) -> Tensor:
        """The memory of a buffer through a layout."""
        flat = self.memory[name]
        if layout.is_opaque:
            return flat
        offset = flat.storage_offset() + self.number(layout.offset)
        return flat.as_strided(self.numbers(layout.size), self.numbers(layout.stride), offset)

    def number(self, index: Index) -> int:
        return index.evaluate(self.sizes)

    def numbers(self, indices: Sequence[Index]) -> list[int]:
        return [self.number(index) for index in indices]

    def torch_type(self, dtype: DType) -> torch.dtype:
        if self.float64 and dtype.is_float:
            return torch.float64
        return getattr(torch, dtype.torch_name)  # type: ignore[no-any-return]

    # Bodies --------------------------------------------------------------------------------------

    def compute(self, outputs: tuple[Buffer, ...], body: Body) -> None:
        """Evaluate `body` and store its results."""
        loops = (*body.loops, *(body.reduction_loops if isinstance(body, Reduction) else ()))
        grid = Grid(self, loops)
        extents = grid.extents
        value = grid.spread(body.value)
        match body:
            case Pointwise():
                results: tuple[Tensor, ...] = (value,)
            case Reduction(kind=kind):
                outer = len(body.loops)
                results = reduce_values(
                    kind, value.reshape(*extents[:outer], prod(extents[outer:]))
                )
            case Scan(kind=kind, along=along):
                place = body.loops.index(along)
                scanned = scan_values(kind, value.movedim(place, -1)).movedim(-1, place)
                results = (scanned.to(self.torch_type(outputs[0].layout.dtype)),)
            case Scatter():
                self._scatter(outputs[0], body, grid, value)
                return
        for buffer, result in zip(outputs, results, strict=True):
            wanted = self.torch_type(buffer.layout.dtype)
            assert result.dtype == wanted, f"{buffer.name}: {result.dtype} stored as {wanted}"
            self.allocate(buffer).copy_(result)

    def extent(self, loop: LoopSymbol) -> int:
        """How many points a loop has."""
        return self.number(loop.extent)

    def _scatter(self, output: Buffer, body: Scatter, grid: Grid, value: Tensor) -> None:
        flat = self.memory[body.base].clone()
        self.memory[output.name], self.layouts[output.name] = flat, output.layout
        places = grid.places_of(output.name, body.index, body.indirect)
        combine(flat, body.mode, places, value.reshape(-1))

    # Library calls -------------------------------------------------------------------------------

    def execute(self, statement: RowStatement, programs: Mapping[str, Callable[..., Any]]) -> None:
        """Do what a statement without a body does. `programs`: what runs the subprograms."""
        match statement:
            case CopyBack(target=target, source=source):
                self.view(target, self.layouts[target]).copy_(self.operand(source))
            case ComputeNumber(name=name, function=function, arguments=arguments):
                self.sizes[name] = NUMBER_FUNCTIONS[function](*map(self.operand, arguments))
            case ReadSize():
                size = self.layouts[statement.buffer].size[statement.dimension]
                self.sizes[statement.name] = self.number(size)
            case ReadItem(name=name, source=source):
                self.sizes[name] = self.operand(source).item()
            case CheckFact(number=number, message=message):
                if self.number(number) < 0:
                    raise RuntimeError(message)
            case CallOperator():
                self.call(statement)
            case CallSubprogram(name=name) if name in programs:
                returned = programs[name](*map(self.operand, statement.arguments))
                for place, tensor in zip(statement.results, returned, strict=True):
                    if place is not None:
                        buffer = statement.outputs[place]
                        self.adopt(buffer, self._with_layout(name, buffer, tensor))
            case UnfilledMemory(outputs=outputs):
                for buffer in outputs:
                    self.allocate(buffer)
            case CallUserKernel(name=name, arguments=arguments):
                programs[name](*map(self.operand, arguments))
            case CallSubprogram(name=name):
                raise NotImplementedError(f"the reference does not run the subprogram {name}")

    def call(self, kernel: CallOperator) -> None:
        """Run the eager operator, by its out-variant where the program says so."""
        arguments = [self.operand(argument) for argument in kernel.arguments]
        keywords = {name: self.operand(value) for name, value in kernel.keywords}
        if kernel.out_operator:
            (buffer,) = kernel.outputs
            out = self.allocate(buffer)
            returned = _operator(kernel.out_operator)(*arguments, **keywords, out=out)
            assert returned.data_ptr() == out.data_ptr(), f"{kernel.out_operator} left its out"
            return
        returned = _operator(kernel.operator)(*arguments, **keywords)
        results = kernel.results or ((0,) if kernel.outputs else ())
        returned = returned if kernel.results else (returned,)
        for place, tensor in zip(results, returned, strict=True) if results else ():
            if place is not None:
                buffer = kernel.outputs[place]
                self.adopt(buffer, self._with_layout(kernel.operator, buffer, tensor))

    def _with_layout(self, operator: str, buffer: Buffer, tensor: Tensor) -> Tensor:
        """The tensor that `operator` returned, laid out as planned for `buffer`; sizes that are not
        known yet are as found.
        """
        layout = buffer.layout
        if layout.is_opaque:
            return tensor
        for extent, actual in zip(layout.size, tensor.shape, strict=True):
            if extent.terms:
                self.sizes.setdefault(str(extent), actual)
        size, stride = self.numbers(layout.size), self.numbers(layout.stride)
        assert list(tensor.shape) == size, f"{operator} gave {tuple(tensor.shape)}, not {size}"
        assert tensor.dtype == self.torch_type(layout.dtype), f"{operator} gave {tensor.dtype}"
        pairs = zip(size, tensor.stride(), stride, strict=True)
        if tensor.numel() == 0 or all(extent == 1 or a == b for extent, a, b in pairs):
            return tensor
        planned = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
        return planned.copy_(tensor)

    def operand(self, operand: Operand) -> Any:
        match operand:
            case BufferReference(name=name):
                return self.view(name, self.layouts[name])
            case ViewReference(name=name, layout=layout):
                return self.view(name, layout)
            case Literal(value=value):
                return value
            case ListOf(items=items):
                return [self.operand(item) for item in items]
            case Enumerated(kind="device", name=name):
                return torch.device(name)
            case Enumerated(name=name):
                constant = getattr(torch, name)
                is_float = isinstance(constant, torch.dtype) and constant.is_floating_point
                return torch.float64 if self.float64 and is_float else constant
            case Index():
                return self.number(operand)


def _operator(name: str) -> Callable[..., Any]:
    namespace, operator, overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator)
    function: Callable[..., Any] = getattr(packet, overload)
    return function


# Values -------------------------------------------------------------------------------------------


@record(frozen=False)
class Grid:
    """Values of one body at all points of its loops: tensors that broadcast to `extents`."""

    evaluation: Evaluation
    loops: tuple[LoopSymbol, ...]
    extents: tuple[int, ...] = ()
    known: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    """By identity of the value and of the mask under which it is evaluated."""

    places: dict[str, Integer] = field(default_factory=dict)
    masks: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.extents = tuple(map(self.evaluation.extent, self.loops))
        rank = len(self.loops)
        for d, (loop, extent) in enumerate(zip(self.loops, self.extents, strict=True)):
            shape = [extent if k == d else 1 for k in range(rank)]
            along = torch.arange(extent, device=self.evaluation.device)
            self.places[loop.name] = along.reshape(shape)
        self.places.update(self.evaluation.sizes)

    def spread(self, value: Value) -> Tensor:
        """`value` at every point."""
        return self.value(value).expand(self.extents)

    def places_of(self, buffer: str, index: Index, indirect: Sequence[Value] = ()) -> Tensor:
        """The element of a buffer that each point writes to, in one dimension. `indirect`: loaded
        indices.
        """
        self._define(indirect, None)
        place = self.tensor(self.index(index) + self.start(buffer))
        return place.expand(self.extents).reshape(-1)

    def tensor(self, number: Integer | float) -> Tensor:
        """A number, or what has one at each point, as a tensor where the memory is."""
        return torch.as_tensor(number, device=self.evaluation.device)

    def start(self, buffer: str) -> Integer:
        """Where the elements of a buffer begin in its memory, at every point."""
        return 0

    def value(self, value: Value, mask: Tensor | None = None) -> Tensor:
        """`value`, whose loads happen where `mask` holds."""
        key = (id(value), 0 if mask is None else id(mask))
        tensor = self.known.get(key)
        if tensor is None:
            tensor = self.known[key] = self._evaluate(value, mask)
        if isinstance(value, Indirect):
            self.places[value.symbol.name] = tensor
        return tensor

    def _evaluate(self, value: Value, mask: Tensor | None) -> Tensor:
        dtype = self.evaluation.torch_type(value.dtype)
        match value:
            case Constant(value=number):
                return torch.tensor(number, dtype=dtype, device=self.evaluation.device)
            case IndexValue(index=index):
                self._define(value.indirect, mask)
                return self.tensor(self.index(index)).to(dtype)
            case Apply(operation=operation, arguments=arguments):
                result = OPERATIONS[operation](*(self.value(a, mask) for a in arguments))
                assert result.dtype == dtype, f"{operation} gave {result.dtype}, not {dtype}"
                return result
            case Cast(argument=argument):
                return self.value(argument, mask).to(dtype)
            case Masked(mask=condition, value=inner, otherwise=otherwise):
                holds = self.value(condition, mask)
                both = holds if mask is None else holds & mask
                self.masks.append(both)
                return torch.where(holds, self.value(inner, both), self.value(otherwise))
            case Indirect():
                return self._indirect(value, mask)
            case Load(buffer=buffer, index=index):
                self._define(value.indirect, mask)
                return self._load(buffer, index, mask)
            case Random(seed=seed, position=position):
                self._define(value.indirect, mask)
                place = self.tensor(self.index(position))
                return philox.uniform(self.value(seed, mask), place).to(dtype)

    def _define(self, indirect: Sequence[Value], mask: Tensor | None) -> None:
        """Give the loaded symbols their places under `mask`."""
        for value in indirect:
            self.value(value, mask)

    def _indirect(self, value: Indirect, mask: Tensor | None) -> Tensor:
        index = self.value(value.value, mask)
        size = self.evaluation.number(value.size)
        if value.wrap:
            index = torch.where(index < 0, index + size, index)
        return self._inside(index, size, mask, f"index {value.symbol.name}")

    def _load(self, buffer: str, index: Index, mask: Tensor | None) -> Tensor:
        flat = self.evaluation.memory[buffer]
        place = self.tensor(self.index(index) + self.start(buffer))
        place = self._inside(place, flat.numel(), mask, f"{buffer}[{index}]")
        if flat.numel() == 0:
            return torch.zeros(place.shape, dtype=flat.dtype, device=flat.device)
        return flat[place]

    def _inside(self, place: Tensor, size: int, mask: Tensor | None, what: str) -> Tensor:
        """`place`, checked to be in `[0, size)` where the mask holds, and moved there elsewhere."""
        outside = (place < 0) | (place >= size)
        if 0 not in self.extents and bool((outside if mask is None else outside & mask).any()):
            raise IndexError(f"{what} leaves [0, {size})")
        return torch.where(outside, 0, place)

    def index(self, index: Index) -> Integer:
        """An index expression at every point."""
        total: Integer = index.constant
        for coefficient, atoms in index.terms:
            product: Integer = coefficient
            for atom in atoms:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, atom: Symbol | Compound) -> Integer:
        if isinstance(atom, Symbol):
            return self.places[atom.name]
        left, right = self.tensor(self.index(atom.left)), self.tensor(self.index(atom.right))
        return _COMPOUNDS[atom.operator](left, right)


_COMPOUNDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "//": lambda left, right: torch.div(left, right, rounding_mode="floor"),
    "%": torch.remainder,
    "min": torch.minimum,
    "max": torch.maximum,
}

_SAME_NAME = """
sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil trunc
round neg abs sign maximum minimum remainder fmod pow atan2 hypot copysign nextafter eq
ne lt le gt ge isnan isinf signbit bitwise_and bitwise_or bitwise_xor bitwise_not where
"""
"""Operations that torch has by the same name, with the same meaning."""

OPERATIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in _SAME_NAME.split()},
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
}
"""The function of each operation of `ops.OPERATIONS`; a test checks that none is missing."""


def combine(flat: Tensor, mode: str, places: Tensor, values: Tensor) -> None:
    """Scatter values into memory: store them, or add, or keep the least or the largest."""
    if mode == "store":
        flat[places] = values
    else:
        flat.scatter_reduce_(0, places, values, _SCATTERED[mode])


_SCATTERED = {"add": "sum", "min": "amin", "max": "amax"}
"""The modes of a scatter in torch's words."""


# Gathering ----------------------------------------------------------------------------------------


def reduce_values(kind: str, values: Tensor) -> tuple[Tensor, ...]:
    """Gather the last dimension of `values`; two results for welford."""
    if kind == "welford":
        mean = values.mean(-1)
        return mean, (values - mean[..., None]).square().sum(-1)
    return (_REDUCTIONS[kind](values),)


def _exclusive_or(values: Tensor) -> Tensor:
    columns = values.unbind(-1)
    zero = torch.zeros(values.shape[:-1], dtype=values.dtype, device=values.device)
    return functools.reduce(torch.bitwise_xor, columns, zero)


_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda values: values.sum(-1, dtype=values.dtype),
    "dot": lambda values: values.sum(-1, dtype=values.dtype),
    "prod": lambda values: values.prod(-1, dtype=values.dtype),
    "max": lambda values: values.amax(-1),
    "min": lambda values: values.amin(-1),
    "any": lambda values: values.any(-1),
    "all": lambda values: values.all(-1),
    "argmax": lambda values: (values.int() if values.dtype == torch.bool else values).argmax(-1),
    "argmin": lambda values: (values.int() if values.dtype == torch.bool else values).argmin(-1),
    "xor": _exclusive_or,
}


def scan_values(kind: str, values: Tensor) -> Tensor:
    """Along the last dimension, what each element and all before it gather to."""
    return _SCANS[kind](values)


_SCANS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda values: values.cumsum(-1, dtype=values.dtype),
    "prod": lambda values: values.cumprod(-1, dtype=values.dtype),
    "max": lambda values: values.cummax(-1).values,
    "min": lambda values: values.cummin(-1).values,
    "logsumexp": lambda values: values.logcumsumexp(-1),
}
