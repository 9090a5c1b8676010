"""The Python emitter: wrapper lines to the text of a readable module that needs only
`fusewright.runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from keyword import iskeyword

from fusewright.ir.index import Index
from fusewright.ir.kernel import STAGES, CpuFacts, TritonFacts
from fusewright.ir.lines import (
    CALLER,
    Allocate,
    Arena,
    AssertLayout,
    Block,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CheckNan,
    Conditional,
    CopyInto,
    DebugPrint,
    DefineChoice,
    DefineDevice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Return,
    Reuse,
    ScanLoop,
    TakeConstant,
    TakeInput,
    View,
    WhileLoop,
)
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    BufferReference,
    CheckFact,
    ComputeNumber,
    Enumerated,
    Layout,
    ListOf,
    Literal,
    Operand,
    ReadItem,
    ReadSize,
    ViewReference,
)
from fusewright.records import record
from fusewright.wrapper.devices import UNNUMBERED
from fusewright.wrapper.line_emitter import LineEmitter
from fusewright.wrapper.names import (
    constant_path,
    layout_check,
    literal_text,
    names_of,
    number_path,
    operator_path,
    shown_values,
    user_kernel_path,
    user_place,
)

INDENT = "    "


@record(kw_only=True)
class PythonModule:
    """A module of generated Python."""

    text: str
    """Operators, kernels, `call(inputs)`, and a `__main__` that measures it. `call` takes one list,
    size symbols first, and clears it, so that inputs nobody else holds can die early.
    """

    places: tuple[int, ...]
    """By wrapper line, the line of the text that does what it says; for a definition, the first
    line of `call`.
    """

    places_of_blocks: Mapping[str, tuple[int, ...]]
    """The same by block, whose lines are a function of its name."""


def emit_python(name: str, lines: tuple[Line, ...]) -> str:
    """The text of the module `name`."""
    return emit_module(name, lines).text


def emit_module(name: str, lines: tuple[Line, ...]) -> PythonModule:
    """The module `name`."""
    emitter = _PythonEmitter()
    statements = [emitter.emit(line) for line in lines]
    text = emitter.module(name)
    return PythonModule(
        text=text,
        places=_places(text, "call", statements),
        places_of_blocks={
            block: _places(text, block, own) for block, own in emitter.statements.items()
        },
    )


def _places(text: str, function: str, statements: Sequence[int]) -> tuple[int, ...]:
    """The lines of the text where statements of a function stand, which are counted from 0."""
    head = _head(function)
    first = text[: text.index(head)].count("\n") + head.count("\n") + 1
    return tuple(first + statement for statement in statements)


def _head(function: str) -> str:
    return f"\n\ndef {function}(inputs):\n"


class _PythonEmitter(LineEmitter):
    """Collects the module's parts; one method a line type."""

    def __init__(self) -> None:
        self.operators: dict[str, str] = {}
        self.kernels: list[str] = []
        self.kernel_names: list[str] = []
        self.trailing: dict[str, list[str]] = {}
        """By kernel, the arguments that all its launches have behind the units of work."""

        self.arguments: dict[str, str] = {}
        """By kernel, the names of its tensor arguments."""

        self.functions: list[str] = []
        """The texts of blocks."""

        self.statements: dict[str, list[int]] = {}
        """By block and line, the number of the line's statement in it."""

        self.prefix = ""
        """The prefix of the names of constants in the module."""

        self.inputs: dict[int, str] = {}
        self.input_specifications: list[str] = []
        self.constants: dict[str, str] = {}
        """Expressions that find them and make views of them, by name."""

        self.body: list[str] = ["inputs.clear()"]
        """The statements of `call` behind the first, which unpacks the inputs."""

        self.allocates = False
        self.allocates_nothing = False
        """Whether there are buffers without memory, on the device `meta`."""

        self.places = False
        """Whether buffers lie in an arena."""

        self.devices: list[str] = []
        """Variables that hold devices, by name; the CPU's is called so."""

        self.owned: set[str] = set()
        """Buffers whose memory starts at storage offset 0, because this module allocated it."""

        self.layouts: dict[str, tuple[tuple[Index, ...], tuple[Index, ...]]] = {}
        """Sizes and strides of inputs, owned buffers and results of calls: memory reused in the
        same shape needs no new view.
        """

    def module(self, name: str) -> str:
        """Put the parts together."""
        parts = [
            f'"""{name}: generated by fusewright; run this file to measure it."""\n',
            "import torch\n",
            "from fusewright.runtime import generated as runtime\n",
            *(
                ["empty_strided = runtime.allocator()", 'cpu = torch.device("cpu")']
                if self.allocates
                else []
            ),
            *(['meta = torch.device("meta")'] if self.allocates_nothing else []),
            *(["place = runtime.placer()"] if self.places else []),
            *self.devices,
            *(f"{local} = {path}" for path, local in sorted(self.operators.items())),
            *(f"{name} = {text}" for name, text in self.constants.items()),
            "\nKERNELS = {",
            *self.kernels,
            "}",
            *(
                [f"{_tuple(self.kernel_names)} = runtime.load_kernels(KERNELS)"]
                if self.kernels
                else []
            ),
            *self.functions,
            self.function("call", len(self.inputs)),
            "\n\nINPUTS = [",
            *(f"{INDENT}{text}," for text in self.input_specifications),
            "]\n",
            'if __name__ == "__main__":',
            f"{INDENT}kernels = {{{'' if self.arguments else '}'}",
            *(f"{INDENT}{INDENT}{name!r}: {names!r}," for name, names in self.arguments.items()),
            *([f"{INDENT}}}"] if self.arguments else []),
            f"{INDENT}calls = {sorted(self.operators.values())}",
            f"{INDENT}runtime.measure(globals(), INPUTS, kernels, calls)\n",
        ]
        return "\n".join(parts)

    def function(self, name: str, count: int) -> str:
        """The text of a function of the body, which takes a list of so many values."""
        names = [self.inputs.get(position, "_") for position in range(count)]
        body = [f"{_tuple(names)} = inputs" if names else "assert not inputs", *self.body]
        return _head(name) + "\n".join(INDENT + line for line in body)

    def block(self, block: Block) -> str:
        """Add the function of a block to the module; gives its name."""
        inner = self._inside()
        inner.body.append("inputs.clear()")
        inner.prefix = f"{block.name}_"
        self.statements[block.name] = [inner.emit(line) for line in block.lines]
        self.functions.append(inner.function(_identifier(block.name), block.count))
        self._take_over(inner)
        return block.name

    def _inside(self) -> _PythonEmitter:
        """An emitter for another function of the same module."""
        inner = _PythonEmitter()
        inner.body = []
        inner.operators, inner.constants = self.operators, self.constants
        inner.functions, inner.statements = self.functions, self.statements
        inner.trailing = self.trailing
        return inner

    def _take_over(self, inner: _PythonEmitter) -> None:
        self.allocates |= inner.allocates
        self.allocates_nothing |= inner.allocates_nothing
        self.places |= inner.places

    def emit(self, line: Line) -> int:
        """Write what `line` says; gives the number of its statement in `call`."""
        before = len(self.body)
        self.write_line(line)
        comments = sum(text.startswith("#") for text in self.body[before:])
        return 1 + before + comments if len(self.body) > before else 0

    def write(self, text: str) -> None:
        self.body.append(text)

    def tell(self, origins: tuple[Origin, ...]) -> None:
        """Say in comments what the next statement computes for the user."""
        for text in _origin_comments(origins):
            self.write(f"# {text}")

    # Lines ----------------------------------------------------------------------------------------

    def define_device(self, line: DefineDevice) -> None:
        self.devices.append(f"{_identifier(line.slot)} = torch.device({line.device!r})")

    def define_symbol(self, line: DefineSymbol) -> None:
        self.inputs[line.position] = _identifier(line.name)
        self.input_specifications.append(f"runtime.Size({line.name!r})")

    def take_input(self, line: TakeInput) -> None:
        buffer = line.buffer
        self.inputs[line.position] = _identifier(buffer.name)
        layout = buffer.layout
        self.layouts[buffer.name] = (layout.size, layout.stride)
        self.input_specifications.append(_specification(layout))

    def take_constant(self, line: TakeConstant) -> None:
        name = _identifier(line.buffer.name)
        kind = _specification(line.buffer.layout)
        own = self.prefix + name
        self.constants[own] = f"runtime.constant(globals(), {own!r}, {kind})"
        self._name_locally(name)

    def view(self, line: View) -> None:
        name, layout, source = _identifier(line.buffer.name), line.buffer.layout, line.source
        if line.is_read_only and self.prefix + source in self.constants:
            self.constants[self.prefix + name] = self._view(self.prefix + source, layout)
            self._name_locally(name)
        else:
            self.write(f"{name} = {self._view(source, layout)}")

    def _name_locally(self, name: str) -> None:
        """Let a constant of a block be known there by its own name."""
        if self.prefix:
            self.write(f"{name} = {self.prefix}{name}")

    def ensure_layout(self, line: EnsureLayout) -> None:
        layout = line.buffer.layout
        size, stride = _sizes(layout.size), _sizes(layout.stride)
        name = line.buffer.name
        dtype = f"torch.{layout.dtype.torch_name}"
        path = layout_check(line)
        self.write(f"{name} = {path}({name}, {size}, {stride}, {dtype}, {line.owner!r})")
        if layout.decides_strides:
            self.layouts[name] = (layout.size, layout.stride)

    def allocate(self, line: Allocate | Arena) -> None:
        layout = line.buffer.layout
        self.owned.add(line.buffer.name)
        self.layouts[line.buffer.name] = (layout.size, layout.stride)
        extents = f"{_sizes(layout.size)}, {_sizes(layout.stride)}"
        kind = f"dtype=torch.{layout.dtype.torch_name}, device={layout.device}"
        self.write(f"{_identifier(line.buffer.name)} = empty_strided({extents}, {kind})")
        self.allocates = True
        self.allocates_nothing |= layout.device == "meta"

    allocate_arena = allocate

    def place_in_arena(self, line: Place) -> None:
        layout, name = line.buffer.layout, _identifier(line.buffer.name)
        self.layouts[name] = (layout.size, layout.stride)
        extents = f"{_sizes(layout.size)}, {_sizes(layout.stride)}"
        dtype = f"torch.{layout.dtype.torch_name}"
        self.write(f"{name} = place({line.arena}, {line.offset}, {extents}, {dtype})")
        self.places = True

    def reuse(self, line: Reuse) -> None:
        layout = line.buffer.layout
        name = _identifier(line.buffer.name)
        if line.source in self.owned:
            self.owned.add(name)
        same = self.layouts.get(line.source) == (layout.size, layout.stride)
        self.layouts[name] = (layout.size, layout.stride)
        view = line.source if same else self._view(line.source, layout)
        self.write(f"{name} = {view}; del {line.source}")

    def free(self, line: Free | FreeIfNotReused) -> None:
        self.write(f"del {line.name}")

    def define_kernel(self, line: DefineKernel) -> None:
        kernel = line.kernel
        self.kernel_names.append(_identifier(kernel.name))
        self.arguments[kernel.name] = " ".join(argument.name for argument in kernel.arguments)
        match kernel.facts:
            case CpuFacts(grain=grain):
                kind, own, trailing = "KernelSource", f"sizes={len(kernel.sizes)}", [str(grain)]
            case TritonFacts(types=types, blocks=blocks, warps=warps) as facts:
                names = (*(argument.name for argument in kernel.arguments), *kernel.sizes)
                signature = dict(zip(names, types, strict=True))
                own = (
                    f"signature={signature}, blocks={dict(blocks)}, warps={warps}, "
                    f"checks_bounds={facts.checks_bounds}"
                )
                own += "" if facts.stages == STAGES else f", stages={facts.stages}"
                own += f", launches={facts.launches}" if facts.launches else ""
                kind, trailing = "TritonSource", []
        self.trailing[kernel.name] = trailing
        self.kernels.append(
            f'{INDENT}"{kernel.name}": runtime.{kind}(language={kernel.language!r}, '
            f'key="{kernel.key}", tensors={len(kernel.arguments)}, {own}, '
            f'text=r"""\n{kernel.source}"""),'
        )

    def call_kernel(self, line: CallKernel) -> None:
        launch = line.launch
        arguments = [*launch.buffers, *map(str, launch.sizes), str(launch.units)]
        arguments += self.trailing[launch.kernel]
        self.tell(launch.origins)
        self.write(f"{launch.kernel}({', '.join(arguments)})")

    def define_choice(self, line: DefineChoice) -> None:
        names = [argument.name for argument in line.arguments]
        functions: dict[str, str] = {}
        for alternative in line.alternatives:
            inner = self._inside()
            functions[alternative.name] = function = f"{line.name}_{alternative.name}"
            if any(isinstance(own, Allocate) for own in alternative.lines):
                inner.body.append(f"{CALLER} = {names[0]}.device")
            for own in alternative.lines:
                inner.emit(own)
            self._take_over(inner)
            parameters = ", ".join([*names, *map(str, line.sizes)])
            body = "".join(f"\n{INDENT}{row}" for row in inner.body)
            self.functions.append(f"\n\ndef {function}({parameters}):{body}")
            for own in alternative.lines:
                if isinstance(own, CallKernel):
                    self.arguments.pop(own.launch.kernel, None)
        self.arguments[line.name] = " ".join(names)
        rows = "".join(f"{INDENT}{name!r}: {function},\n" for name, function in functions.items())
        written = tuple(n for n, argument in enumerate(line.arguments) if argument.is_written)
        in_place = tuple(n for n, argument in enumerate(line.arguments) if argument.is_in_place)
        self.functions.append(
            f"\n\n{_identifier(line.name)} = runtime.Choice(globals(), {line.name!r}, "
            f"{line.key!r}, {len(names)}, {written}, {in_place}, {{\n{rows}}})"
        )

    def call_choice(self, line: CallChoice) -> None:
        self.tell(line.origins)
        self.write(f"{line.choice}({', '.join([*line.buffers, *map(str, line.sizes)])})")

    def call_extern(self, line: CallExtern) -> None:
        call = self._call(line.operator, line.arguments, line.keywords)
        self.tell(line.origins)
        if not line.is_tuple:
            (name,) = line.results or (None,)
            self.write(f"{_identifier(name)} = {call}" if name else call)
            return
        self._assign(line.results, call)

    def call_program(self, line: CallProgram) -> None:
        name = self.prefix + line.name
        local = self._local(constant_path(name), f"subprogram_{name}")
        self.tell(line.origins)
        self._assign(line.results, f"{local}{self._given(line.arguments)}")

    def call_user_triton(self, line: CallUserTriton) -> None:
        name = self.prefix + line.name
        local = self._local(user_kernel_path(name, line), f"user_kernel_{name}")
        self.tell(line.origins)
        self.write(f"{local}{self._given(line.arguments)}")

    def conditional(self, line: Conditional) -> None:
        then, other = self.block(line.then), self.block(line.other)
        function = f"({then} if {self._operand(line.predicate)} else {other})"
        self.tell(line.origins)
        self._assign(line.results, f"{function}({self._operand(ListOf(line.arguments))})")

    def while_loop(self, line: WhileLoop) -> None:
        blocks = self.block(line.condition), self.block(line.body)
        arguments = self._operand(ListOf(line.arguments))
        texts = [*blocks, arguments, *map(repr, (line.carried, line.stacked))]
        self.tell(line.origins)
        self._assign(line.results, f"runtime.while_loop({', '.join(texts)})")

    def scan(self, line: ScanLoop) -> None:
        shape = line.carried, line.sliced, line.stacked, line.is_reversed
        texts = [self.block(line.body), self._operand(ListOf(line.arguments)), *map(repr, shape)]
        self.tell(line.origins)
        self._assign(line.results, f"runtime.scan({', '.join(texts)})")

    def compute_number(self, line: ComputeNumber) -> None:
        local = self._local(number_path(line.function), f"number_{line.function}")
        self.write(f"{_identifier(line.name)} = {local}{self._given(line.arguments)}")

    def read_size(self, line: ReadSize) -> None:
        self.write(f"{_identifier(line.name)} = {line.buffer}.size({line.dimension})")

    def read_item(self, line: ReadItem) -> None:
        self.write(f"{_identifier(line.name)} = {self._operand(line.source)}.item()")

    def check_fact(self, line: CheckFact) -> None:
        self.write(f"runtime.check_fact({line.number}, {line.message!r})")

    def _assign(self, results: tuple[str | None, ...], call: str) -> None:
        """Write a call that returns a tuple; what is not used is dropped."""
        names = ["_" if name is None else _identifier(name) for name in results]
        self.write(f"{_tuple(names)} = {call}")
        if "_" in names:
            self.write("del _")

    def call_extern_out(self, line: CallExternOut) -> None:
        self.tell(line.origins)
        self.write(self._call(line.operator, line.arguments, line.all_keywords))

    def copy_into(self, line: CopyInto) -> None:
        self.write(f"{line.target}.copy_({self._operand(line.source)})")

    def debug_print(self, line: DebugPrint) -> None:
        values = self._operand(shown_values(line.values))
        labels = (line.level, line.when, line.kernel, names_of(line.values))
        texts = ", ".join(map(repr, labels))
        place = user_place(line.origins)
        self.write(f"runtime.debug_print({texts}, {values}, {place!r}, {line.folder!r})")

    def check_nan(self, line: CheckNan) -> None:
        values = self._operand(shown_values(line.values))
        texts = f"{line.kernel!r}, {names_of(line.values)!r}"
        self.write(f"runtime.check_nan({texts}, {values}, {user_place(line.origins)!r})")

    def assert_layout(self, line: AssertLayout) -> None:
        layout, name = line.buffer.layout, line.buffer.name
        size, stride = _sizes(layout.size), _sizes(layout.stride)
        dtype = f"torch.{layout.dtype.torch_name}"
        self.write(f"runtime.assert_layout({name}, {size}, {stride}, {dtype}, {name!r})")

    def give_back(self, line: Return) -> None:
        self.write(f"return {_tuple([self._operand(operand) for operand in line.outputs])}")

    # Operands -------------------------------------------------------------------------------------

    def _call(
        self,
        operator: str,
        arguments: tuple[Operand, ...],
        keywords: tuple[tuple[str, Operand], ...] = (),
    ) -> str:
        local = self._local(operator_path(operator), operator.replace(".", "_").replace("::", "_"))
        return f"{local}{self._given(arguments, keywords)}"

    def _local(self, path: str, name: str) -> str:
        """The module's variable that holds what `path` says."""
        return self.operators.setdefault(path, name)

    def _given(
        self, arguments: tuple[Operand, ...], keywords: tuple[tuple[str, Operand], ...] = ()
    ) -> str:
        texts = [self._operand(argument) for argument in arguments]
        texts += [f"{name}={self._operand(value)}" for name, value in keywords]
        return f"({', '.join(texts)})"

    def _operand(self, operand: Operand) -> str:
        match operand:
            case BufferReference(name=name):
                return name
            case ViewReference():
                raise TypeError(f"{operand} has no line of its own")
            case Literal() | Enumerated():
                return literal_text(operand)
            case ListOf(items=items):
                return f"[{', '.join(self._operand(item) for item in items)}]"
            case Index():
                return operand.text

    def _view(self, source: str, layout: Layout) -> str:
        arguments = f"{source}, {_sizes(layout.size)}, {_sizes(layout.stride)}, {layout.offset}"
        if source in self.owned:
            return f"torch.as_strided({arguments})"
        return f"runtime.reinterpret({arguments})"


def _specification(layout: Layout) -> str:
    """The description of a layout by which a benchmark makes random tensors of it."""
    if layout.is_opaque:
        return "runtime.OpaqueInput()"
    return (
        f"runtime.Input({_texts(layout.size)}, {_texts(layout.stride)}, "
        f"torch.{layout.dtype.torch_name}, {_device(layout)})"
    )


def _origin_comments(origins: tuple[Origin, ...]) -> list[str]:
    shown = [str(origin).replace("\n", " ") for origin in origins[:6]]
    return [*shown, f"… and {len(origins) - 6} more"] if len(origins) > 6 else shown


def _device(layout: Layout) -> str:
    """A device in the list of inputs: that of the CPU is a variable only where memory is asked for
    there.
    """
    return repr(layout.device) if layout.device in UNNUMBERED else layout.device


def _identifier(name: str | None) -> str:
    if name is None or not name.isidentifier() or iskeyword(name):
        raise ValueError(f"{name!r} cannot be a variable in generated Python")
    return name


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _sizes(indices: tuple[Index, ...]) -> str:
    return _tuple([index.text for index in indices])


def _texts(indices: tuple[Index, ...]) -> str:
    """Sizes as text, so that a module's input list can be read without the values of its
    symbols.
    """
    return _tuple([repr(index.text) if index.terms else index.text for index in indices])
