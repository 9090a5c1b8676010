"""Write new function bodies without knowing which CPython runs them.

    builder = Builder()
    builder.load_global("compiled")          # the callable …
    builder.prepare_call()                   # … is ready for its arguments
    builder.load_local("x")
    builder.call(1)
    builder.return_value()
    unit = new_unit("wrapper", builder.instructions, parameters=("x",))
    function = types.FunctionType(assemble(unit), globals())

Jumps go to labels: `end = builder.label()`, `builder.jump_if_none(end)`, …, `builder.place(end)`.
Whatever has no method here is written with `emit(name, argument)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fusewright.capture.bytecode.instruction import (
    CO_NESTED,
    CO_NEWLOCALS,
    CO_OPTIMIZED,
    CO_SUSPENDABLE,
    CO_VARARGS,
    CO_VARKEYWORDS,
    LABEL,
    NO_POSITIONS,
    CodeUnit,
    ExceptionRegion,
    Instruction,
    Positions,
)
from fusewright.capture.bytecode.versions import VERSION
from fusewright.records import field, record, replace

_PLAIN_LOADS = frozenset(
    {"LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_GLOBAL"}
)
"""Loads that pop nothing, so that something can be slipped below what they push."""


@record(frozen=False)
class Builder:
    """A growing list of instructions; each method appends what one step of a program needs.

    The words of the docstrings: the *top* is the value pushed last. Jump to labels only: an
    instruction may get a companion before it.
    """

    instructions: list[Instruction] = field(default_factory=list)

    positions: Positions = NO_POSITIONS
    """Source position given to every instruction appended from now on."""

    region: ExceptionRegion | None = None
    """Exception region of every instruction appended from now on; see `protected`."""

    # Any instruction, and places in the code.

    def emit(self, name: str, argument: Any = None) -> Instruction:
        """Append any instruction by the names of `Instruction.name`."""
        instruction = Instruction(name, argument, self.positions, self.region)
        self.instructions.append(instruction)
        return instruction

    def label(self) -> Instruction:
        """A place to jump to, still to be put into the code by `place`."""
        return Instruction(LABEL)

    def place(self, label: Instruction) -> None:
        """Let `label` stand for the instruction that is appended next."""
        self.instructions.append(label)

    @contextmanager
    def protected(self, handler: Instruction, stack_depth: int) -> Iterator[None]:
        """Instructions appended in this block go to `handler` when they raise.

        The handler finds the first `stack_depth` values of the stack and the exception above them.
        """
        outer = self.region
        self.enter_region(ExceptionRegion(handler, stack_depth))
        try:
            yield
        finally:
            self.region = outer

    def enter_region(self, region: ExceptionRegion) -> None:
        """Put the instructions appended from here on into `region`."""
        self.region = region
        if VERSION.raises_before_calls:
            self.emit("NOP")  # for a call that comes first

    # Variables, constants and attributes.

    def load_constant(self, value: Any) -> None:
        """Push `value`; any object may be a constant, and is kept alive by the code object."""
        self.emit("LOAD_CONST", value)

    def load_local(self, name: str) -> None:
        """Push a local that no inner function uses; unset, it raises UnboundLocalError."""
        self.emit(VERSION.checked_local_load, name)

    def store_local(self, name: str) -> None:
        """Pop the top into a local; a name not seen before becomes a new local."""
        self.emit("STORE_FAST", name)

    def delete_local(self, name: str) -> None:
        """Unset a local, which must be set."""
        self.emit("DELETE_FAST", name)

    def load_closure(self, name: str) -> None:
        """Push the cell itself, for `make_function`."""
        self.emit("LOAD_CLOSURE", name)

    def load_global(self, name: str) -> None:
        """Push a global, or else a builtin."""
        self.emit("LOAD_GLOBAL", name)

    def load_attribute(self, name: str) -> None:
        """Replace the top by its attribute."""
        self.emit("LOAD_ATTR", name)

    def store_attribute(self, name: str) -> None:
        """`top.name = second`; pops both."""
        self.emit("STORE_ATTR", name)

    def delete_attribute(self, name: str) -> None:
        """`del top.name`; pops it."""
        self.emit("DELETE_ATTR", name)

    def load_subscript(self) -> None:
        """`second[top]`; replaces both."""
        self.emit("BINARY_SUBSCR")

    def store_subscript(self) -> None:
        """`second[top] = third`; pops the three."""
        self.emit("STORE_SUBSCR")

    # Calls.

    def prepare_call(self) -> None:
        """The top is a callable: make it ready for the arguments that are pushed next."""
        if VERSION.null_above_callable:
            self.emit("PUSH_NULL")
        elif self.instructions and self.instructions[-1].name in _PLAIN_LOADS:
            callable_load = self.instructions.pop()
            self.emit("PUSH_NULL")
            self.instructions.append(callable_load)
        else:
            self.emit("PUSH_NULL")
            self.swap(2)

    def call(self, count: int, keywords: Sequence[str] = ()) -> None:
        """Replace callable and `count` arguments, the last named by `keywords`, by the result."""
        for name, argument in VERSION.call(count, tuple(keywords)):
            self.emit(name, argument)

    def make_function(self, code: Any, *, closure: bool = False) -> None:
        """Push a function of code object `code`; with `closure` the top is a tuple of cells in the
        order of the code's free names, which it replaces.
        """
        self.load_constant(code)
        for name, argument in VERSION.make_closure if closure else [("MAKE_FUNCTION", 0)]:
            self.emit(name, argument)

    # Collections and operators.

    def build_tuple(self, count: int) -> None:
        """Replace the `count` top values by a tuple of them."""
        self.emit("BUILD_TUPLE", count)

    def build_list(self, count: int) -> None:
        """Replace the `count` top values by a list of them."""
        self.emit("BUILD_LIST", count)

    def build_map(self, count: int) -> None:
        """Replace `count` pairs, each pushed key first, by a dict of them."""
        self.emit("BUILD_MAP", count)

    def unpack_sequence(self, count: int) -> None:
        """Replace the top, an iterable of `count` items, by them; the first becomes the top."""
        self.emit("UNPACK_SEQUENCE", count)

    def compare(self, operator: str) -> None:
        """`second operator top` for <, <=, ==, !=, >, >=; replaces both."""
        self.emit("COMPARE_OP", operator)

    # The stack.

    def pop(self) -> None:
        """Drop the top."""
        self.emit("POP_TOP")

    def duplicate(self, depth: int = 1) -> None:
        """Push once more the value at `depth`, the top being at 1."""
        self.emit("COPY", depth)

    def swap(self, depth: int) -> None:
        """Exchange the top with the value at `depth`, the top being at 1."""
        self.emit("SWAP", depth)

    # Control.

    def jump(self, target: Instruction) -> None:
        """Go to `target`, before or after this place."""
        self.emit("JUMP", target)

    def jump_if_none(self, target: Instruction) -> None:
        """Pop the top and go to `target`, a later place, if it is None."""
        self.emit("POP_JUMP_IF_NONE", target)

    def return_value(self) -> None:
        """Return the top."""
        self.emit("RETURN_VALUE")


def new_unit(
    name: str,
    body: Sequence[Instruction],
    *,
    parameters: Sequence[str] = (),
    positional_only_count: int = 0,
    keyword_only: Sequence[str] = (),
    variable_arguments: str | None = None,
    variable_keywords: str | None = None,
    cell_names: Sequence[str] = (),
    free_names: Sequence[str] = (),
    filename: str = "<fusewright>",
    first_line: int = 1,
) -> CodeUnit:
    """A function from scratch, with the instructions that open one put before `body`.

    `variable_arguments` and `variable_keywords` name `*args` and `**kwargs`.
    """
    variable = [part for part in (variable_arguments, variable_keywords) if part is not None]
    flags = CO_VARARGS * (variable_arguments is not None)
    flags |= CO_VARKEYWORDS * (variable_keywords is not None)
    shell = CodeUnit(
        name=name,
        qualified_name=name,
        filename=filename,
        first_line=first_line,
        flags=flags | CO_OPTIMIZED | CO_NEWLOCALS,
        argument_count=len(parameters),
        positional_only_count=positional_only_count,
        keyword_only_count=len(keyword_only),
        local_names=(*parameters, *keyword_only, *variable),
    )
    return with_body(shell, body, cell_names=cell_names, free_names=free_names)


def with_body(
    unit: CodeUnit,
    body: Sequence[Instruction],
    *,
    cell_names: Sequence[str],
    free_names: Sequence[str],
) -> CodeUnit:
    """An ordinary function with the name, place and parameters of `unit` that runs `body`.

    Constants, names and locals of the old body are dropped; the docstring stays out, since the
    function object carries it already.
    """
    nested = CO_NESTED if free_names else 0
    return replace(
        unit,
        flags=unit.flags & ~(CO_NESTED | CO_SUSPENDABLE) | nested,
        local_names=unit.local_names[: unit.parameter_count],
        cell_names=tuple(cell_names),
        free_names=tuple(free_names),
        constants=(None,),
        names=(),
        instructions=[*opening(cell_names, free_names), *body],
    )


def opening(
    cell_names: Sequence[str], free_names: Sequence[str], *, is_generator: bool = False
) -> list[Instruction]:
    """Take the closure's cells, make those of this function, give the caller its generator, and
    tell the interpreter to start.
    """
    copy_free = [Instruction("COPY_FREE_VARS")] if free_names else []
    make_cells = [Instruction("MAKE_CELL", name) for name in cell_names]
    generator = [Instruction("RETURN_GENERATOR"), Instruction("POP_TOP")] if is_generator else []
    return [*copy_free, *make_cells, *generator, Instruction("RESUME", 0)]
