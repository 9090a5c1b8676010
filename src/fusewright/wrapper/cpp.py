"""The C++ emitter: wrapper lines to readable C++ over libtorch's stable C functions, for who wants
source. It is written with `native/standalone/fusewright_module.h`, and linked with the kernels'
object code.

before                          after
------                          -----
y: f32[8] = allocate            Tensor y = empty({8}, {1}, float32_type);
launch k(x, y) units 8          launch("k", k, {&x, &y}, {}, 8, 64);
free x                          x.reset();
call aten.mm.out(a, b) into c   call("aten::mm", "out", 1, {given(a), given(b), given(c)});
return y                        return {y};

Lines of which C has no form (a library call that takes a number of either type, a launch on a GPU)
raise `NoCpp`, which says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from fusewright import torch_compat
from fusewright.ir.dtype import BY_TORCH_NAME
from fusewright.ir.forms import blocks_of, indices_in
from fusewright.ir.index import Atom, Index, RealSymbol, Symbol
from fusewright.ir.kernel import CpuFacts, Kernel
from fusewright.ir.lines import (
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
    OPAQUE,
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
)
from fusewright.operators import facts
from fusewright.records import record
from fusewright.runtime.debug_printer import HEADS, file_prefix, origin_of
from fusewright.wrapper.choices import expand
from fusewright.wrapper.cpp_text import (
    EXPORTS_HOST,
    dtype_name,
    identifier,
    integer_text,
    real_text,
    text_literal,
)
from fusewright.wrapper.dispatched import all_arguments, dispatched_operator, present_type
from fusewright.wrapper.line_emitter import LineEmitter
from fusewright.wrapper.names import user_place

INDENT: Final = "    "

_OPERATIONS: Final = {"//": "floor_divide", "%": "remainder", "min": "least", "max": "greatest"}
"""Functions of the header, by what `Compound` indices do."""

_NUMBER_OPERATORS: Final = {"add": "+", "sub": "-", "mul": "*"}


class NoCpp(Exception):
    """Lines of which C++ has no form; says why."""


@record(kw_only=True)
class CppModule:
    """A module of generated C++."""

    text: str
    """It exports `fusewright_run`, which takes the inputs of the lines in their order, and behind
    them the constants.
    """

    constants: tuple[str, ...]
    """The names of the constants, in order, with the prefixes of their blocks."""

    outputs: int


def emit_cpp(name: str, lines: Sequence[Line], inputs: Sequence[str] = ()) -> CppModule:
    """The C++ module `name`; `inputs` says of each input where the caller has it from. NoCpp:
    something in the lines has no form there.
    """
    emitter = _CppEmitter(_real_symbols(lines), {})
    emitter.sources = inputs
    for line in lines:
        emitter.write_line(line)
    return emitter.module(name)


def _real_symbols(lines: Iterable[Line]) -> frozenset[str]:
    """The names of symbols that stand for real numbers."""
    found: set[str] = set()
    for line in lines:
        for index in indices_in(line):
            found |= {symbol.name for symbol in index.free() if isinstance(symbol, RealSymbol)}
        for block in blocks_of(line):
            found |= _real_symbols(block.lines)
    return frozenset(found)


class _CppEmitter(LineEmitter):
    """Collects the statements; one method a line type."""

    def __init__(self, reals: frozenset[str], kernels: dict[str, Kernel], prefix: str = "") -> None:
        self.body: list[str] = []
        self.functions: list[str] = []
        """The texts of blocks."""

        self.constants: dict[str, int] = {}
        """The place of each among the constants, by name."""

        self.sources: Sequence[str] = ()
        """Where the caller has the inputs from."""

        self.debugs = False
        """Whether lines print or check values."""

        self._reals = reals
        self._kernels = kernels
        self._choices: dict[str, DefineChoice] = {}
        self._prefix = prefix
        """The prefix of the names of constants and blocks."""

        self._comments: list[str] = []
        """Comments that describe the inputs."""

        self._outputs = 0
        self._input_count = 0
        self._owned: set[str] = set()
        """Buffers whose memory this module allocated."""

        self._fixed: set[str] = set()
        """Buffers that stay: constants."""

        self._layouts: dict[str, Layout] = {}
        self._places: dict[str, Place] = {}
        """By buffer in an arena, where."""

    def module(self, name: str) -> CppModule:
        """Put the parts together."""
        kernels = self._kernels.values()
        debugging = ['#include "fusewright_debugging.h"'] if self.debugs else []
        takes_constants = [
            f"//   {self._input_count + place}: constant {constant}"
            for constant, place in self.constants.items()
        ]
        parts = [
            f"// {name}: generated by fusewright. Inputs:",
            *(self._comments or ["//   none"]),
            *takes_constants,
            '#include "fusewright_module.h"',
            *debugging,
            "",
            "using namespace fusewright;",
            "",
            *(f'extern "C" Kernel {identifier(kernel.name)};' for kernel in kernels),
            *([""] if self._kernels else []),
            *self.functions,
            self.function("module"),
            "",
            'extern "C" __attribute__((visibility("default"))) int',
            "fusewright_run(const FusewrightValue *inputs, size_t input_count, "
            "FusewrightValue *outputs,",
            "               size_t output_count, char *message, size_t room)",
            "{",
            f"{INDENT}return run_module(module, {self._input_count}, inputs, input_count, outputs, "
            "output_count, message, room);",
            "}",
            *(EXPORTS_HOST if self.debugs else []),
        ]
        return CppModule(
            text="\n".join(parts) + "\n", constants=tuple(self.constants), outputs=self._outputs
        )

    def function(self, name: str) -> str:
        """The text of a function of the body."""
        body = "\n".join(INDENT + line if line else line for line in self.body)
        head = f"static Values {identifier(name)}(Values inputs, const Values &constants)"
        return f"{head}\n{{\n{body}\n}}\n"

    def block(self, block: Block) -> str:
        """Add the function of a block; gives its name."""
        inner = _CppEmitter(self._reals, self._kernels, f"{block.name}_")
        inner.constants, inner.functions = self.constants, self.functions
        inner._choices = self._choices
        for line in block.lines:
            inner.write_line(line)
        self.functions.append(inner.function(block.name))
        self.debugs |= inner.debugs
        return identifier(block.name)

    def write(self, text: str) -> None:
        self.body.append(text)

    def tell(self, origins: Sequence[Origin]) -> None:
        """Say in comments what the next statement computes for the user."""
        for text in user_place(tuple(origins)).splitlines():
            self.write(f"// {text}".replace("\\", "/"))

    # Lines ----------------------------------------------------------------------------------------

    def define_device(self, line: DefineDevice) -> None:
        raise NoCpp(f"it works on {line.device}")

    def define_symbol(self, line: DefineSymbol) -> None:
        kind = ("double", "real") if line.name in self._reals else ("int64_t", "integer")
        self._note_input(line.position, f"number {line.name}")
        self.write(f"{kind[0]} {identifier(line.name)} = inputs.{kind[1]}({line.position});")

    def take_input(self, line: TakeInput) -> None:
        name, layout = line.buffer.name, line.buffer.layout
        _refuse_others(layout)
        self._layouts[name] = layout
        sizes = ", ".join(map(str, layout.size))
        self._note_input(line.position, f"tensor {name}: {layout.dtype}[{sizes}]")
        self.write(f"Tensor {identifier(name)} = inputs.tensor({line.position});")

    def _note_input(self, position: int, text: str) -> None:
        self._input_count = max(self._input_count, position + 1)
        source = f", {self.sources[position]}" if position < len(self.sources) else ""
        self._comments.append(f"//   {position}: {text}{source}")

    def take_constant(self, line: TakeConstant) -> None:
        name = line.buffer.name
        self._layouts[name] = line.buffer.layout
        place = self.constants.setdefault(self._prefix + name, len(self.constants))
        self._fixed.add(name)
        self.write(f"const Tensor {identifier(name)} = constants[{place}].tensor;")

    def view(self, line: View) -> None:
        name, layout = line.buffer.name, line.buffer.layout
        self.write(f"Tensor {identifier(name)} = "
                   f"{self._view(line.source, layout, line.is_read_only)};")  # fmt: skip
        self._layouts[name] = layout

    def _view(self, source: str, layout: Layout, is_read_only: bool = False) -> str:
        is_plain = is_read_only or source in self._owned
        function = "reinterpret" if is_plain else "view"
        return (
            f"{function}({identifier(source)}, {self._extents(layout)}, "
            f"{self._number(layout.offset)})"
        )

    def ensure_layout(self, line: EnsureLayout) -> None:
        name, layout = identifier(line.buffer.name), line.buffer.layout
        _refuse_others(layout)
        may_copy = "false" if line.is_strict else "true"
        arguments = f"{self._extents(layout)}, {dtype_name(layout.dtype)}, {may_copy}"
        self.write(f"{name} = with_layout(std::move({name}), {arguments});")
        self._layouts[line.buffer.name] = layout

    def allocate(self, line: Allocate | Arena) -> None:
        name, layout = line.buffer.name, line.buffer.layout
        _refuse_others(layout)
        self._owned.add(name)
        self._layouts[name] = layout
        extents = f"{self._extents(layout)}, {dtype_name(layout.dtype)}"
        self.write(f"Tensor {identifier(name)} = empty({extents});")

    allocate_arena = allocate

    def place_in_arena(self, line: Place) -> None:
        name, layout = line.buffer.name, line.buffer.layout
        self._owned.add(name)
        self._layouts[name] = layout
        self._places[name] = line
        arguments = f"{self._extents(layout)}, {dtype_name(layout.dtype)}"
        arena = identifier(line.arena)
        self.write(f"Tensor {identifier(name)} = place({arena}, {line.offset}, {arguments});")

    def reuse(self, line: Reuse) -> None:
        name, layout, source = line.buffer.name, line.buffer.layout, line.source
        before = self._layouts[source]
        is_same = (before.size, before.stride) == (layout.size, layout.stride)
        value = f"std::move({identifier(source)})" if is_same else self._view(source, layout)
        self.write(f"Tensor {identifier(name)} = {value};")
        if not is_same:
            self.write(f"{identifier(source)}.reset();")
        if source in self._owned:
            self._owned.add(name)
        self._layouts[name] = layout

    def free(self, line: Free | FreeIfNotReused) -> None:
        name = line.name
        if name not in self._fixed:
            self.write(f"{identifier(name)}.reset();")

    def define_kernel(self, line: DefineKernel) -> None:
        if not isinstance(line.kernel.facts, CpuFacts):
            raise NoCpp(f"its kernel {line.kernel.name} is for a GPU")
        self._kernels[line.kernel.name] = line.kernel

    def call_kernel(self, line: CallKernel) -> None:
        launch = line.launch
        kernel = self._kernels[launch.kernel]
        assert isinstance(kernel.facts, CpuFacts)
        tensors = ", ".join(f"&{identifier(name)}" for name in launch.buffers)
        sizes = ", ".join(self._word(size) for size in launch.sizes)
        self.tell(launch.origins)
        name = identifier(kernel.name)
        self.write(
            f'launch("{kernel.name}", {name}, {{{tensors}}}, {{{sizes}}}, '
            f"{self._number(launch.units)}, {kernel.facts.grain});"
        )

    def define_choice(self, line: DefineChoice) -> None:
        self._choices[line.name] = line

    def call_choice(self, line: CallChoice) -> None:
        """C++ measures nothing: the first alternative is what there is without measuring."""
        choice = self._choices[line.choice]
        for inner in expand(choice, choice.alternatives[0], line, self._layouts):
            self.write_line(inner)

    def call_extern(self, line: CallExtern) -> None:
        count, name, given = self._operator_call(line.operator, line.arguments, line.keywords)
        results = line.results
        if count != len(results) and any(results):
            raise NoCpp(f"{line.operator} returns a list")
        self.tell(line.origins)
        if count == 1 and results and results[0] is not None:
            self.write(f"Tensor {identifier(results[0])} = call_one({name}, {given});")
            self._new_result(results[0], line.operator)
            return
        self._unpack(f"call({name}, {count}, {given})", results)
        for result in results:
            if result is not None:
                self._new_result(result, line.operator)

    def _new_result(self, name: str, operator: str) -> None:
        if facts(operator).gives_new_memory:
            self._owned.add(name)
        self._layouts.setdefault(name, _UNKNOWN)

    def _unpack(self, call: str, results: Sequence[str | None], is_value: bool = False) -> None:
        """Write a call of several results; what is not used is dropped."""
        if not any(results):
            self.write(f"{call};")
            return
        self.body.append(f"auto results{len(self.body)} = {call};")
        source = f"results{len(self.body) - 1}"
        for place, name in enumerate(results):
            if name is not None:
                item = f"{source}.tensor({place})" if is_value else f"std::move({source}[{place}])"
                self.write(f"Tensor {identifier(name)} = {item};")
                self._layouts.setdefault(name, _UNKNOWN)

    def call_program(self, line: CallProgram) -> None:
        raise NoCpp(f"the call {line.name} runs as Python")

    def call_user_triton(self, line: CallUserTriton) -> None:
        raise NoCpp(f"the kernel {line.name} is launched by Triton")

    def conditional(self, line: Conditional) -> None:
        then, other = self.block(line.then), self.block(line.other)
        self.tell(line.origins)
        chosen = f"(truth({self._tensor(line.predicate)}) ? {then} : {other})"
        self._unpack(
            f"{chosen}({self._values(line.arguments)}, constants)", line.results, is_value=True
        )

    def while_loop(self, line: WhileLoop) -> None:
        if line.stacked:
            raise NoCpp("a loop keeps what its gradient needs")
        condition, body = self.block(line.condition), self.block(line.body)
        self.tell(line.origins)
        values = self._values(line.arguments)
        arguments = f"{condition}, {body}, constants, {values}, {line.carried}"
        self._unpack(f"while_loop({arguments})", line.results, is_value=True)

    def scan(self, line: ScanLoop) -> None:
        body = self.block(line.body)
        stacked = ", ".join(map(str, line.stacked))
        direction = "true" if line.is_reversed else "false"
        self.tell(line.origins)
        arguments = (
            f"{body}, constants, {self._values(line.arguments)}, {line.carried}, {line.sliced}, "
            f"{{{stacked}}}, {direction}"
        )
        self._unpack(f"scan({arguments})", line.results, is_value=True)

    def _values(self, operands: Sequence[Operand]) -> str:
        return f"{{{', '.join(map(self._value, operands))}}}"

    def compute_number(self, line: ComputeNumber) -> None:
        sign = _NUMBER_OPERATORS.get(line.function)
        parts = [self._real(operand) for operand in line.arguments]
        name = identifier(line.name)
        if line.name not in self._reals:
            raise NoCpp(f"it computes a number by {line.function}")
        if line.function == "float":
            self.write(f"double {name} = {parts[0]};")
        elif sign is not None:
            self.write(f"double {name} = {parts[0]} {sign} {parts[1]};")
        else:
            raise NoCpp(f"it computes a number by {line.function}")

    def read_size(self, line: ReadSize) -> None:
        name, buffer = identifier(line.name), identifier(line.buffer)
        self.write(f"int64_t {name} = {buffer}.size({line.dimension});")

    def read_item(self, line: ReadItem) -> None:
        source = line.source
        if not isinstance(source, BufferReference):
            raise NoCpp("it reads a number from what is no tensor")
        layout = self._layouts.get(source.name, _UNKNOWN)
        name, tensor = identifier(line.name), identifier(source.name)
        if line.name in self._reals:
            self.write(f"double {name} = item_of({tensor});")
        elif layout.dtype.is_integer:
            self.write(f"int64_t {name} = integer_in({tensor});")
        else:
            raise NoCpp("it reads a number of unknown type")

    def check_fact(self, line: CheckFact) -> None:
        self.write(f"check_fact({self._number(line.number)} >= 0, {text_literal(line.message)});")

    def call_extern_out(self, line: CallExternOut) -> None:
        is_real = self._layouts[line.out].dtype.is_float
        if line.operator == "aten.addmm.out" and is_real and not line.keywords:
            tensors = (BufferReference(line.out), *line.arguments)
            self.tell(line.origins)
            self.write(f"addmm({', '.join(map(self._tensor, tensors))});")
            return
        count, name, given = self._operator_call(line.operator, line.arguments, line.all_keywords)
        self.tell(line.origins)
        self.write(f"call({name}, {count}, {given});")

    def copy_into(self, line: CopyInto) -> None:
        self.write(f"copy({identifier(line.target)}, {self._tensor(line.source)});")

    def _tensor(self, operand: Operand) -> str:
        if not isinstance(operand, BufferReference):
            raise NoCpp(f"it takes {operand} for a tensor")
        return identifier(operand.name)

    def debug_print(self, line: DebugPrint) -> None:
        self.debugs = True
        place, values = text_literal(user_place(line.origins)), self._named(line.values)
        if line.level == "save":
            prefix = text_literal(file_prefix(line.when, line.kernel))
            self.write(f"debug_save({prefix}, {values}, {text_literal(line.folder)});")
        elif line.level == "print":
            heading = text_literal(HEADS[line.when].format(line.kernel))
            self.write(f"debug_print({heading}, {values}, {place});")
        elif line.when == "before":
            self.write(f"debug_name({text_literal(line.kernel)}, {place});")

    def check_nan(self, line: CheckNan) -> None:
        self.debugs = True
        values, place = self._named(line.values), text_literal(user_place(line.origins))
        self.write(f"check_nan({text_literal(origin_of(line.kernel))}, {values}, {place});")

    def assert_layout(self, line: AssertLayout) -> None:
        self.debugs = True
        name, layout = line.buffer.name, line.buffer.layout
        kind = f"{self._extents(layout)}, {dtype_name(layout.dtype)}"
        self.write(f"assert_layout({identifier(name)}, {kind}, {text_literal(name)});")

    def give_back(self, line: Return) -> None:
        self._outputs = len(line.outputs)
        self.write(f"return {self._values(line.outputs)};")

    def _named(self, values: Sequence[tuple[str, Operand]]) -> str:
        pairs = (f"{{{text_literal(name)}, {self._value(operand)}}}" for name, operand in values)
        return f"{{{', '.join(pairs)}}}"

    # Operators ------------------------------------------------------------------------------------

    def _operator_call(
        self, operator: str, arguments: Sequence[Operand], keywords: Sequence[tuple[str, Operand]]
    ) -> tuple[int, str, str]:
        """How many tensors an operator returns, its name and overload, and its arguments. NoCpp:
        it takes or returns what has no form in C.
        """
        op, name, overload = dispatched_operator(operator)
        if op is None:
            raise NoCpp(f"it calls {operator}")
        returns = torch_compat.operator_returns(op)
        if any(str(result.type) != "Tensor" for result in returns):
            raise NoCpp(f"{operator} returns what is no tensor")
        texts = [
            self._argument(operator, str(argument.type), operand)
            for argument, operand in all_arguments(op, arguments, keywords)
        ]
        return len(returns), f'"{name}", "{overload}"', f"{{{', '.join(texts)}}}"

    def _argument(self, operator: str, declared: str, operand: Operand) -> str:
        inner, is_optional = present_type(declared)
        if not is_optional:
            return self._present(operator, inner, operand)
        if operand == Literal(None):
            return "none()"
        return f"some({self._present(operator, inner, operand)})"

    def _present(self, operator: str, declared: str, operand: Operand) -> str:
        """An argument that is there, of a type as schemas have it."""
        match declared, operand:
            case "Tensor", BufferReference(name=name):
                return f"given({identifier(name)})"
            case "List[int]", ListOf(items=items):
                numbers = [self._whole(operator, item) for item in items]
                return f"integers({{{', '.join(numbers)}}})"
            case "List[Tensor]" | "List[bool]", ListOf(items=items):
                inner = declared.removeprefix("List[").removesuffix("]")
                texts = [self._present(operator, inner, item) for item in items]
                return f"list_of({{{', '.join(texts)}}})"
            case "List[int]", Literal(value=[*numbers]) | Literal(value=(*numbers,)):
                return f"integers({{{', '.join(map(str, numbers))}}})"
            case "int", Index() | Literal(value=int()):
                return f"integer({self._whole(operator, operand)})"
            case "bool", Literal(value=bool() as value):
                return f"boolean({'true' if value else 'false'})"
            case "float", Literal(value=bool() | int() | float() as value):
                return f"real({real_text(float(value))})"
            case "float", Index():
                return f"real({self._real(operand)})"
            case "int", Enumerated(kind="dtype", name=name) if name in BY_TORCH_NAME:
                return f"dtype({dtype_name(BY_TORCH_NAME[name])})"
            case "int", Enumerated(kind="layout", name="strided"):
                return "strided()"
            case "Device", Enumerated(kind="device", name="cpu"):
                return "on_cpu()"
        raise NoCpp(f"{operator} takes {operand} as {declared}")

    def _whole(self, operator: str, operand: Operand) -> str:
        """An integer argument of an operator."""
        match operand:
            case Index():
                return self._word(operand)
            case Literal(value=int() as value):
                return integer_text(int(value))
        raise NoCpp(f"{operator} takes {operand} as an integer")

    # Operands and numbers -------------------------------------------------------------------------

    def _value(self, operand: Operand) -> str:
        match operand:
            case BufferReference(name=name):
                return f"Value({identifier(name)})"
            case Index():
                return f"Value({self._typed(operand)})"
            case Literal(value=bool() as value):
                return f"Value({'true' if value else 'false'})"
            case Literal(value=int() as value):
                return f"Value(int64_t({integer_text(value)}))"
            case Literal(value=float() as value):
                return f"Value({real_text(value)})"
            case Literal(value=None):
                return "Value()"
        raise NoCpp(f"it hands on {operand}")

    def _typed(self, index: Index) -> str:
        name = self._real_name(index)
        return name if name is not None else f"int64_t({self._number(index)})"

    def _real_name(self, index: Index) -> str | None:
        """The variable of a real number, where the index is one."""
        (symbol, *others) = [*index.free(), None]
        if isinstance(symbol, RealSymbol) and others == [None]:
            return identifier(symbol.name)
        return None

    def _word(self, index: Any) -> str:
        """A number as 64 bits."""
        name = self._real_name(index)
        return f"bits({name})" if name is not None else self._number(index)

    def _real(self, operand: Operand) -> str:
        match operand:
            case Literal(value=bool() | int() | float() as value):
                return real_text(float(value))
            case Index():
                name = self._real_name(operand)
                return name if name is not None else f"double({self._number(operand)})"
        raise NoCpp(f"it computes with {operand}")

    def _extents(self, layout: Layout) -> str:
        rows = (", ".join(map(self._number, row)) for row in (layout.size, layout.stride))
        return ", ".join(f"{{{row}}}" for row in rows)

    def _number(self, index: Index) -> str:
        """An integer expression."""
        terms = [self._product(coefficient, atoms) for coefficient, atoms in index.terms]
        if index.constant or not terms:
            terms.append(integer_text(index.constant))
        text = terms[0] + "".join(
            f" - {term[1:]}" if term.startswith("-") else f" + {term}" for term in terms[1:]
        )
        return text if len(terms) == 1 else f"({text})"

    def _product(self, coefficient: int, atoms: Sequence[Atom]) -> str:
        factors = [integer_text(coefficient)] if coefficient != 1 else []
        return " * ".join([*factors, *map(self._atom, atoms)])

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, RealSymbol):
            raise NoCpp("it computes a size from a real number")
        if isinstance(atom, Symbol):
            return identifier(atom.name)
        left, right = self._number(atom.left), self._number(atom.right)
        return f"{_OPERATIONS[atom.operator]}({left}, {right})"


_UNKNOWN: Final = OPAQUE  # the layout of a result before it is looked at


def _refuse_others(layout: Layout) -> None:
    """NoCpp: a buffer is no tensor, or not on the CPU."""
    if layout.is_opaque:
        raise NoCpp("it hands on an object of Python")
    if layout.device != "cpu":
        raise NoCpp(f"it works on {layout.device}")
