"""The builder of lowering: the program so far, and reading, computing, realising and passing on
boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from fusewright.context import CompileContext
from fusewright.errors import Unsupported
from fusewright.ir.dtype import DType
from fusewright.ir.index import (
    Index,
    IndexLike,
    LoopSymbol,
    RealSymbol,
    SizeSymbol,
    Symbol,
    as_index,
    contiguous_strides,
    integer,
)
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    Body,
    Buffer,
    BufferReference,
    CallOperator,
    CheckFact,
    ComputedBuffer,
    ComputeNumber,
    Enumerated,
    Layout,
    Literal,
    NumberStatement,
    Pointwise,
    ReadItem,
    ReadSize,
    Reduction,
    Scan,
    Statement,
    UnfilledMemory,
    ViewReference,
)
from fusewright.ir.value import Expressions, Load, Number, Value, postorder
from fusewright.lower.boxes import (
    Box,
    CostTable,
    Position,
    Storage,
    channels_last,
    memory_strides,
    strided_layout,
)
from fusewright.lower.scalar import Scalar
from fusewright.lower.symbols import SizeTable, hint, real_input
from fusewright.records import field, record, replace
from fusewright.symbolic.real import Operand as RealOperand
from fusewright.symbolic.real import Real

Element = Callable[[Position], Scalar]
"""The element at a position of a result."""

Remembered = TypeVar("Remembered")


@record(frozen=False, eq=False)
class ProgramBuilder:
    """The state of one lowering."""

    context: CompileContext
    expressions: Expressions = field(default_factory=Expressions)
    sizes: SizeTable = field(default_factory=SizeTable)
    costs: CostTable = field(default_factory=CostTable)
    prologue: list[Statement] = field(default_factory=list)
    """Statements that compute real numbers from the program's symbols."""

    statements: list[Statement] = field(default_factory=list)
    origins: dict[str, tuple[Origin, ...]] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    """Names of the buffers that loops write."""

    layouts_are_free: bool = False
    """Whether only the results have to lie in memory as eager's do."""

    free_layouts: dict[str, Layout] = field(default_factory=dict)
    """Layouts by buffer, other than eager's, that what is computed from them takes over."""

    lazy: list[Storage] = field(default_factory=list)
    """Storages that were made lazily, in order; some are realised by now."""

    _loops: dict[tuple[str, tuple[Index, ...]], tuple[tuple[LoopSymbol, ...], Position]] = field(
        default_factory=dict
    )
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Index arithmetic done before: layers of one model ask for the same again and again."""

    def remember(self, key: tuple[Any, ...], make: Callable[[], Remembered]) -> Remembered:
        """The result of `make()` when `key` was first seen; the key starts with what it is
        about.
        """
        remembered: Remembered
        try:
            remembered = self._known[key]
        except KeyError:
            remembered = self._known[key] = make()
        return remembered

    # Loops ---------------------------------------------------------------------------------------

    def loops(self, size: tuple[Index, ...], prefix: str = "i") -> tuple[LoopSymbol, ...]:
        """The loops i0, i1, … (or r0, r1, …) over `size`."""
        return self._loops_and_position(size, prefix)[0]

    def position(self, size: tuple[Index, ...], prefix: str = "i") -> Position:
        """The point of `loops(size)`, with 0 in place of a loop that has one iteration."""
        return self._loops_and_position(size, prefix)[1]

    def _loops_and_position(
        self, size: tuple[Index, ...], prefix: str
    ) -> tuple[tuple[LoopSymbol, ...], Position]:
        loops_and_position = self._loops.get((prefix, size))
        if loops_and_position is None:
            loops = tuple(LoopSymbol(f"{prefix}{k}", extent) for k, extent in enumerate(size))
            position = tuple(
                integer(0) if extent == 1 else symbol.index
                for symbol, extent in zip(loops, size, strict=True)
            )
            loops_and_position = self._loops[prefix, size] = loops, position
        return loops_and_position

    def hint(self, size: Index) -> int:
        """A size's value for the sizes seen when compiling; for profitability only."""
        return hint(size, self.sizes.facts)

    # Boxes ---------------------------------------------------------------------------------------

    def input(self, buffer: Buffer, layout: Layout | None = None) -> Box:
        """The box of a tensor that is in memory already, in the buffer's own layout or in another
        one of the same memory.
        """
        layout = layout or buffer.layout
        storage = Storage(
            size=layout.size,
            dtype=layout.dtype,
            device=layout.device,
            stride=layout.stride,
            value=None,
            buffer=buffer,
            layout=layout,
        )
        return Box(storage, layout.size)

    def view(self, box: Box, size: tuple[Index, ...], position: Position) -> Box:
        """The box that at its own `position(size)` is `box` at `position`."""
        return Box(box.storage, size, self.storage_position(box, position))

    def storage_position(self, box: Box, at: Position) -> Position:
        """The place in its storage of the element of `box` at `at`."""
        if box.position is None:
            return at
        own = box.position
        replacements = self._replacements(box.size, at)
        if not replacements:
            return own
        return self.remember(
            ("position", own, box.size, at),
            lambda: tuple(index.substitute(replacements) for index in own),
        )

    def value(self, box: Box, at: Position) -> Value:
        """The element of `box` at `at`, as it is stored, or as computed and not rounded yet."""
        storage = box.storage
        position = self.storage_position(box, at)
        if storage.value is None:
            buffer, layout = storage.buffer, storage.layout
            assert buffer is not None and layout is not None
            element = self.remember(("element", layout, position), lambda: layout.index(position))
            return self.expressions.load(buffer.name, element, storage.dtype)
        replacements = self._replacements(storage.size, position)
        if not replacements:
            return storage.value
        return self.expressions.substitute(storage.value, replacements)

    def leaves_unchecked(self, value: Value, at: Position) -> bool:
        """Whether an index in `at` that is checked does not occur in `value`, the element there."""
        behind = (loaded for index in at for loaded in self.expressions.behind(index))
        checked = {id(loaded) for loaded in behind if loaded.check}
        return bool(checked) and not checked.issubset(map(id, postorder((value,))))

    def _replacements(self, size: tuple[Index, ...], at: Position) -> dict[Symbol, Index]:
        loops, position = self._loops_and_position(size, "i")
        if at is position:
            return {}
        return {
            symbol: index
            for symbol, own, index in zip(loops, position, at, strict=True)
            if index is not own and index != own
        }

    def realise(self, box: Box, wanted: tuple[Index, ...] | None = None) -> Buffer:
        """Put the storage of `box` into memory, for every box on it. `wanted`: strides other than
        eager's that suit its readers.
        """
        storage = box.storage
        if storage.buffer is None:
            assert storage.value is not None
            strides = self._strides_to_take_over(storage) or (None if storage.is_fixed else wanted)
            layout = storage.layout_in_memory(strides)
            value = self.expressions.cast(storage.value, storage.dtype)
            body = Pointwise(loops=self.loops(storage.size), value=value)
            storage.buffer = self.compute(layout, body, storage.origins)
            if strides is not None:
                self.free_layouts[storage.buffer.name] = layout
            storage.layout = layout
            storage.value = None
        return storage.buffer

    def _strides_to_take_over(self, storage: Storage) -> tuple[Index, ...] | None:
        """Strides other than eager's of the first tensor that a lazy storage reads at its own
        position; or such as have channels last, where it reads another image channel by channel.
        """
        if not self.free_layouts or storage.is_fixed or storage.value is None:
            return None
        loops, position = self._loops_and_position(storage.size, "i")
        for value in postorder((storage.value,)):
            if not isinstance(value, Load) or value.buffer not in self.free_layouts:
                continue
            layout = self.free_layouts[value.buffer]
            if layout.size == storage.size and layout.index(position) == value.index:
                return layout.stride
            is_image = len(storage.size) == 4 and layout.size[:2] == storage.size[:2]
            if (
                is_image
                and layout.stride == channels_last(layout.size)
                and value.index.stride(loops[1]) == 1
            ):
                return channels_last(storage.size)
        return None

    def layout(self, box: Box) -> Layout | None:
        """The layout of a realised box in its buffer; None when no sizes and strides express it."""
        layout = box.storage.layout
        assert layout is not None
        position, size = box.position, box.size
        if position is None:
            return layout

        def make() -> Layout | None:
            element = layout.index(position)
            return strided_layout(element, self.loops(size), size, layout.dtype, layout.device)

        return self.remember(("layout", layout, position, size), make)

    def operand(self, box: Box) -> BufferReference | ViewReference:
        """`box` in memory, for a library call: its buffer, a view of it, or a copy where no view
        expresses it.
        """
        buffer = self.realise(box)
        layout = self.layout(box)
        if layout is None:
            return self.operand(self.copy(box))
        return (
            BufferReference(buffer.name)
            if layout == buffer.layout
            else ViewReference(buffer.name, layout)
        )

    def copy(self, box: Box, stride: tuple[Index, ...] | None = None) -> Box:
        """A lazy copy of `box`, row-major unless `stride` says otherwise."""
        has_gaps = (
            stride is not None and 0 not in stride and memory_strides(box.size, stride) != stride
        )
        if not box.dtype.is_computed or has_gaps:
            return self._eager_copy(box, stride)
        storage = Storage(
            size=box.size,
            dtype=box.dtype,
            device=box.device,
            stride=contiguous_strides(box.size) if stride is None else stride,
            is_fixed=True,
            value=self.value(box, self.position(box.size)),
            origins=box.storage.origins,
        )
        self.lazy.append(storage)
        return Box(storage, box.size)

    def realise_readers(self, name: str) -> None:
        """Compute every lazy tensor that loads from buffer `name`, because its memory will be
        overwritten.
        """
        for storage in self.lazy:
            if storage.value is not None and any(
                isinstance(value, Load) and value.buffer == name
                for value in postorder((storage.value,))
            ):
                self.realise(Box(storage, storage.size))

    def _eager_copy(self, box: Box, stride: tuple[Index, ...] | None) -> Box:
        """A copy by eager, where loops cannot make it: they hold real numbers and leave no gaps.

        Raises: Unsupported, where loops cannot copy `box`, and not even its storage in row-major
        order lets sizes and strides express it.
        """
        self.realise(box)
        form = ("memory_format", "contiguous_format")
        if self.layout(box) is None and box.dtype.is_computed:
            box = self.copy(box)
            self.realise(box)
        if self.layout(box) is None:
            whole = Box(box.storage, box.storage.size)
            plain = self._library_copy(whole, box.device, "aten.clone.default", form)
            box = Box(plain.storage, box.size, box.position)
        if self.layout(box) is None:
            raise Unsupported("a view of a tensor that sizes and strides do not express")
        return self._library_copy(box, box.device, "aten.clone.default", form, stride)

    def on_device(self, box: Box, device: str) -> Box:
        """`box` where a kernel of `device` can read it: eager allows single numbers from elsewhere.

        An expression that reads no memory can be computed anywhere, and most single numbers of the
        CPU are given by value.
        """
        value = box.storage.value
        if value is not None and not self.costs.cost(value).loads:
            return box
        buffer = self.realise(box)
        if buffer.layout.is_number_for(device) and self.layout(box) == buffer.layout:
            return box
        operand = self.operand(box)
        return self.remember(
            ("on device", operand, device),
            lambda: self._library_copy(box, device, "aten._to_copy.default", ("device", device)),
        )

    def _library_copy(
        self,
        box: Box,
        device: str,
        operator: str,
        keyword: tuple[str, str],
        stride: tuple[Index, ...] | None = None,
    ) -> Box:
        """A copy of `box` by an eager operator, row-major unless `stride` says otherwise."""
        operand = self.operand(box)
        stride = contiguous_strides(box.size) if stride is None else stride
        buffer = self.buffer(Layout(dtype=box.dtype, size=box.size, stride=stride, device=device))
        name, value = keyword
        call = CallOperator(
            outputs=(buffer,),
            operator=operator,
            arguments=(operand,),
            keywords=((name, Enumerated(name, value)),),
        )
        self.statements.append(call)
        self.origins[buffer.name] = box.storage.origins
        return self.input(buffer)

    def real_symbol(self, number: Real) -> RealSymbol:
        """The symbol that stands for a real number. One that has to be computed is by the wrapper:
        before everything else, unless it takes a size that is found out on the way.
        """
        match number:
            case Real("float", (RealSymbol() as symbol,)):
                return self.sizes.new_real(symbol, symbol)
        return self.remember(("real", number), lambda: self._compute_real(number))

    def _compute_real(self, number: Real) -> RealSymbol:
        operands = tuple([self._number_operand(operand) for operand in number.operands])
        found_out = {s.name for s in self.statements if isinstance(s, NumberStatement)}
        free = {s.name for index in operands if isinstance(index, Index) for s in index.free()}
        symbol = self.sizes.new_real(number)
        call = ComputeNumber(name=symbol.name, function=number.operator, arguments=operands)
        (self.prologue if found_out.isdisjoint(free) else self.statements).append(call)
        return symbol

    def _number_operand(self, number: RealOperand) -> Literal | Index:
        match number:
            case float():
                return Literal(number)
            case Index():
                return self.sizes.use(number)
            case RealSymbol():
                return self.sizes.new_real(number, number).index
        return self.real_symbol(number).index

    def real_input(self, number: torch.SymFloat, position: int) -> Real | float:
        """A real number that the program is given."""
        real = self.sizes.real(number)
        if isinstance(real, Real):
            symbol = self.sizes.new_real(real, real_input(number, position))
            self.remember(("real", real), lambda: symbol)
        return real

    def find_out(self, read: ReadSize | ReadItem) -> None:
        """Let a number that data decides be a size, and check what the program promised of it."""
        self.sizes.unknown.pop(read.name, None)
        self.statements.append(read)
        symbol = self.sizes.facts[read.name].symbol
        of_kind = 0 if isinstance(read, ReadSize) else None
        if symbol.lower not in (of_kind, None):
            self._check(symbol.index - symbol.lower, f"below {symbol.lower}")
        if symbol.upper is not None:
            self._check(symbol.upper - symbol.index, f"above {symbol.upper}")
        if isinstance(symbol, SizeSymbol) and symbol.multiple != 1:
            of_any_size = SizeSymbol(symbol.name, symbol.lower, symbol.upper).index
            self._check(-(of_any_size % symbol.multiple), f"no multiple of {symbol.multiple}")

    def _check(self, number: Index, excluded: str) -> None:
        message = f"a number found in data is {excluded}: the program promised that it is not"
        self.statements.append(CheckFact(number=number, message=message))

    def find_out_sizes(self, buffer: Buffer) -> None:
        """Read the sizes of a library call's result that were not known before."""
        for dim, size in enumerate(buffer.layout.size):
            if size.text in self.sizes.unknown:
                self.find_out(ReadSize(name=size.text, buffer=buffer.name, dimension=dim))

    # Statements ----------------------------------------------------------------------------------

    def is_computed(self, buffer: Buffer) -> bool:
        """Whether loops write `buffer`, which then is no input and no library call's result."""
        return buffer.name in self.computed

    def is_owned(self, buffer: Buffer) -> bool:
        """Whether memory is allocated for `buffer` alone: not where it is an input, the result of a
        library call that may hold it, or seen through the result of another.
        """
        if self.is_aliased(buffer):
            return False
        owned = self.is_computed(buffer)
        for statement in self.statements:
            match statement:
                case UnfilledMemory(outputs=outputs):
                    owned |= buffer in outputs
                case CallOperator(outputs=outputs):
                    new = statement.gives_new_memory or bool(statement.out_operator)
                    owned |= buffer in outputs and new
        return owned

    def is_aliased(self, buffer: Buffer) -> bool:
        """Whether the result of a library call shows the memory of `buffer`, or `buffer` that of
        another.
        """
        return any(
            buffer.name in pair
            for statement in self.statements
            if isinstance(statement, CallOperator)
            for pair in statement.aliases
        )

    def buffer(self, layout: Layout) -> Buffer:
        """A new buffer."""
        return Buffer(name=self.context.fresh("buf"), layout=layout)

    def unfilled(self, layout: Layout) -> Buffer:
        """A new buffer whose memory holds anything."""
        buffer = self.buffer(layout)
        self.statements.append(UnfilledMemory(outputs=(buffer,)))
        return buffer

    def compute(self, layout: Layout, body: Body, origins: tuple[Origin, ...]) -> Buffer:
        """Append loops that write a new buffer."""
        buffer = self.buffer(layout)
        self.statements.append(ComputedBuffer(outputs=(buffer,), body=body))
        self.computed.add(buffer.name)
        self.origins[buffer.name] = origins
        return buffer


@record(frozen=False, eq=False)
class Call:
    """One node of the graph while its rule runs."""

    builder: ProgramBuilder
    operator: str
    results: tuple[Layout, ...]
    """Geometry and type of eager's results, in order; those that are no tensors are left out."""

    origin: Origin
    replaces_input: bool = False
    """Whether the result is the new value of the first argument, an input nobody else reads."""

    is_put_back: bool = False
    """Whether the first argument is a view of a tensor that nobody else reads, and the result is
    the new value of that whole tensor; only stores can do so.
    """

    origins: dict[Origin, None] = field(default_factory=dict)
    """Origins of the lazy boxes read so far, whose expressions become part of what the rule makes.
    """

    @property
    def result(self) -> Layout:
        """Geometry and type of the first result."""
        return self.results[0]

    @property
    def all_origins(self) -> tuple[Origin, ...]:
        return tuple({**self.origins, self.origin: None})

    # Reading -------------------------------------------------------------------------------------

    def raw(self, box: Box, at: Position) -> Scalar:
        """The element at the last dimensions of `at`, broadcast; of type `box.dtype` or of its
        compute type.
        """
        builder = self.builder
        if box.device != self.result.device:
            box = builder.on_device(box, self.result.device)
        if len(at) != box.rank:
            at = at[len(at) - box.rank :]
        if any(extent == 1 for extent in box.size):  # a loaded index is checked all the same
            behind = builder.expressions.behind
            at = tuple(
                integer(0) if extent == 1 and not behind(index) else index
                for extent, index in zip(box.size, at, strict=True)
            )
        if box.storage.is_lazy:
            self.origins.update(dict.fromkeys(box.storage.origins))
        value = builder.value(box, at)
        if builder.leaves_unchecked(value, at):  # all elements along a dimension are one in memory
            box = builder.copy(box)
            builder.realise(box)
            value = builder.value(box, at)
        return Scalar(value, builder.expressions)

    def read(self, box: Box, at: Position, dtype: DType | None = None) -> Scalar:
        """The element of `raw`, converted to `dtype`: by default to the type of arithmetic on the
        box's type.
        """
        return self.raw(box, at).cast(box.dtype.compute if dtype is None else dtype)

    def stored(self, box: Box, at: Position, dtype: DType | None = None) -> Scalar:
        """The element of `read` as eager has it in memory: one of a half type is rounded first.
        What jumps at a value asks for this, or a tensor that is computed twice, say for forward and
        for backward, may lie on both sides of it.
        """
        rounded = self.raw(box, at).cast(box.dtype)
        return rounded.cast(box.dtype.compute if dtype is None else dtype)

    def number(self, value: Number, dtype: DType) -> Scalar:
        return Scalar(self.builder.expressions.constant(value, dtype), self.builder.expressions)

    def index(self, index: IndexLike, dtype: DType = DType.I64) -> Scalar:
        """An index as a value. Types other than integers are converted from i64."""
        integer_type = dtype if dtype.is_integer else DType.I64
        value = self.builder.expressions.index(as_index(index), integer_type)
        return Scalar(value, self.builder.expressions).cast(dtype)

    def real(self, number: Real | Index, dtype: DType) -> Scalar:
        """A number that varies, computed in f64 as Python does, as a value of type `dtype`."""
        match number:
            case Index():
                return self.index(number, DType.F64).cast(dtype)
            case Real("float", (Index() as index,)):
                return self.index(self.builder.sizes.use(index), DType.F64).cast(dtype)
        expressions = self.builder.expressions
        value = expressions.index(self.builder.real_symbol(number), DType.F64)
        return Scalar(value, expressions).cast(dtype)

    # Making --------------------------------------------------------------------------------------

    def lazy(
        self,
        size: tuple[Index, ...],
        dtype: DType,
        element: Element,
        stride: tuple[Index, ...] | None = None,
    ) -> Box:
        """A new tensor, not computed yet; row-major unless `stride` says otherwise."""
        scalar = element(self.builder.position(size))
        assert scalar.dtype in (dtype, dtype.compute), (
            f"{self.operator}: {scalar.dtype} for {dtype}"
        )
        storage = Storage(
            size=size,
            dtype=dtype,
            device=self.result.device,
            stride=contiguous_strides(size) if stride is None else stride,
            value=scalar.value,
            origins=self.all_origins,
        )
        self.builder.lazy.append(storage)
        return Box(storage, size)

    def elementwise(self, element: Element, which: int = 0) -> Box:
        """A new tensor with the geometry and type of eager's result number `which`, not computed
        yet.
        """
        layout = self.results[which]
        return self.lazy(layout.size, layout.dtype, element, layout.stride)

    def same(self, box: Box, which: int) -> Box:
        """A new tensor as eager's result number `which`, whose elements are those of `box`."""
        dtype = self.results[which].dtype.compute
        return self.elementwise(lambda at: self.read(box, at, dtype), which)

    def reduce(
        self, kind: str, size: tuple[Index, ...], dimensions: Sequence[int], element: Element
    ) -> Box:
        """Gather `element` over `dimensions` of `size`; the result keeps them with one element
        each.

        The result's type is that of the elements, or i64 for a position.
        """
        builder = self.builder
        kept = tuple(extent for d, extent in enumerate(size) if d not in dimensions)
        gathered = tuple(extent for d, extent in enumerate(size) if d in dimensions)
        outer, inner = iter(builder.position(kept)), iter(builder.position(gathered, "r"))
        scalar = element(tuple(next(inner if d in dimensions else outer) for d in range(len(size))))
        if kind == "sum" and scalar.dtype.is_float and all(extent == 1 for extent in gathered):
            scalar = scalar + 0.0  # as sums begin: eager has no sum of -0.0
        dtype = DType.I64 if kind in ("argmax", "argmin") else scalar.dtype
        layout = Layout(
            dtype=dtype, size=kept, stride=contiguous_strides(kept), device=self.result.device
        )
        body = Reduction(
            loops=builder.loops(kept),
            reduction_loops=builder.loops(gathered, "r"),
            kind=kind,
            value=scalar.value,
        )
        box = builder.input(builder.compute(layout, body, self.all_origins))
        return self._keep(box, size, dimensions)

    def scan(self, kind: str, dimension: int, element: Element, which: int = 0) -> Box:
        """Eager's result number `which`: along a dimension, what `element` gathers to so far, in
        its own type.
        """
        builder, layout = self.builder, self.results[which]
        loops, position = builder.loops(layout.size), builder.position(layout.size)
        value = element(position).value
        body = Scan(loops=loops, along=loops[dimension], kind=kind, value=value)
        layout = replace(layout, stride=memory_strides(layout.size, layout.stride))
        return builder.input(builder.compute(layout, body, self.all_origins))

    def _keep(self, box: Box, size: tuple[Index, ...], dimensions: Sequence[int]) -> Box:
        """`box` with dimensions of one element put back where `dimensions` were."""
        full = tuple(integer(1) if d in dimensions else e for d, e in enumerate(size))
        position = self.builder.position(full)
        kept = tuple(index for d, index in enumerate(position) if d not in dimensions)
        return self.builder.view(box, full, kept)

    # Realising -----------------------------------------------------------------------------------

    def realise_unless_free(self, box: Box) -> Box:
        """Realise `box`, which will be read more than once, unless it is as good as a load."""
        value = box.storage.value
        if value is not None and not self.builder.costs.cost(value).is_free:
            self.builder.realise(box)
        return box

    def realise_for_broadcast(self, box: Box, size: tuple[Index, ...]) -> None:
        """Realise `box` if computing it for each element of `size` would repeat a transcendental
        function.
        """
        value = box.storage.value
        if value is None or box.size == size:
            return
        if not self.builder.costs.cost(value).transcendental:
            return
        elements = 1
        for extent in size:
            elements *= self.builder.hint(extent)
        own = 1
        for extent in box.storage.size:
            own *= self.builder.hint(extent)
        if own < elements:
            self.builder.realise(box)
