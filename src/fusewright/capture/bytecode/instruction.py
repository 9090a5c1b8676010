"""The data that this package reads and writes: instructions, exception regions and code units.

Everything that CPython stores by number is held here by what it means: a jump by the instruction it
goes to, a variable by its name, a constant by its value, an exception table row by the region
object that its instructions share. `EXTENDED_ARG` and inline caches exist only in the encoded form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fusewright.records import field, record


class Positions(NamedTuple):
    """The part of the source file that an instruction comes from; None is "not known"."""

    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    """Columns are UTF-8 bytes from the start of the line, as CPython counts them."""

    end_column: int | None = None


NO_POSITIONS = Positions()

SHOWN = 120
"""The length to which a listing shows an operand."""

LABEL = "LABEL"
"""Name of the pseudo-instruction that takes no space: a place in the code that can be jumped to."""


@record(frozen=False, eq=False)
class Instruction:
    """One operation, with its operand as a Python value.

    Compared and hashed by identity, because jumps refer to the instruction object itself; mutable,
    so that a jump can be pointed at an instruction made after it.
    """

    name: str
    """CPython's name, but for these, which are the same in every version, however it encodes them:

    - `JUMP`, `JUMP_NO_INTERRUPT`, `POP_JUMP_IF_TRUE`, … whichever way they go;
    - `LOAD_METHOD`, `LOAD_SUPER_METHOD`, `LOAD_ZERO_SUPER_ATTR`, `LOAD_ZERO_SUPER_METHOD` and
      `LOAD_GLOBAL_NULL` (a global and the NULL that a call wants beside it) where CPython packs a
      flag into the operand;
    - `COMPARE_OP_TO_BOOL`: a comparison whose result is then made a bool (3.13);
    - `LOAD_CLOSURE`: the cell itself, not what it holds.
    """

    argument: Any = None
    """The operand, by what the operation takes: a variable's name, a pair of names, a constant's
    value, the target `Instruction` of a jump, an operator such as `"+="`, a plain int, or None."""

    positions: Positions = NO_POSITIONS

    region: ExceptionRegion | None = None
    """The innermost region of the exception table that the instruction lies in."""

    def __repr__(self) -> str:
        """The instruction without what a jump's target refers to, since loops would not end."""
        if isinstance(self.argument, Instruction):
            return f"{self.name} -> {self.argument.name}"
        return self.name if self.argument is None else f"{self.name} {self.argument!r}"


@record(eq=False)
class ExceptionRegion:
    """The handler to which control goes when an instruction of the region raises."""

    handler: Instruction
    """First instruction of the handler. The stack is cut to `stack_depth`, then the offset of the
    raising instruction (only if `saves_offset`) and the exception are pushed."""

    stack_depth: int
    saves_offset: bool = False
    """Called lasti by `dis`: a `RERAISE` of the handler restores the place that raised first."""


@record(eq=False)
class OffsetOf:
    """An operand of `LOAD_CONST`: the place of `instruction` in the assembled code, an int as
    CPython saves it for a region with `saves_offset`, for a `RERAISE` to restore."""

    instruction: Instruction


@record(kw_only=True)
class CodeUnit:
    """One code object, taken apart: `assemble(disassemble(code)) == code`.

    Use `replace` to change a part, or `builder.with_body` for a new body under the
    same parameters.
    """

    name: str
    qualified_name: str
    filename: str
    first_line: int
    flags: int
    """The `inspect.CO_*` bits."""

    argument_count: int
    """Positional parameters, the positional-only ones among them."""

    positional_only_count: int = 0
    keyword_only_count: int = 0

    local_names: tuple[str, ...] = ()
    """The parameters, in CPython's order (positional, keyword-only, `*args`, `**kwargs`), then the
    other locals; locals that only instructions mention are added by `assemble`."""

    cell_names: tuple[str, ...] = ()
    """Variables of this function that inner functions use; a parameter may be among them."""

    free_names: tuple[str, ...] = ()
    """Variables of outer functions, in the order of the function's closure."""

    constants: tuple[Any, ...] = (None,)
    """Constants that keep their place at the front of `co_consts`; others follow in order of use.
    The first is the docstring, or None (3.11 and 3.12 take any leading str for one)."""

    names: tuple[str, ...] = ()
    """Global and attribute names that keep their place at the front of `co_names`."""

    instructions: Sequence[Instruction] = field(default_factory=tuple)

    @property
    def parameter_count(self) -> int:
        """The number of `local_names` that are parameters, `*args` and `**kwargs` included."""
        variable = bool(self.flags & CO_VARARGS) + bool(self.flags & CO_VARKEYWORDS)
        return self.argument_count + self.keyword_only_count + variable

    def __str__(self) -> str:
        """A listing with one instruction a line and a name at each place that is jumped to."""
        return "\n".join(listing(self))


CO_OPTIMIZED = 0x1
CO_NEWLOCALS = 0x2
CO_VARARGS = 0x4
CO_VARKEYWORDS = 0x8
CO_NESTED = 0x10
CO_GENERATOR = 0x20
CO_COROUTINE = 0x80
CO_ASYNC_GENERATOR = 0x200
CO_SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def listing(unit: CodeUnit) -> list[str]:
    """The lines of a unit's text form: header, then instructions with their line and region."""
    labels = _label_names(unit.instructions)
    lines = [f"{unit.qualified_name}({', '.join(unit.local_names[: unit.parameter_count])}):"]
    previous_line: int | None = None

    for instruction in unit.instructions:
        if instruction in labels:
            lines.append(f"  {labels[instruction]}:")
        if instruction.name == LABEL:
            continue

        line = instruction.positions.line
        shown_line = "" if line == previous_line or line is None else str(line)
        previous_line = line
        text = f"{instruction.name} {_argument_text(instruction, labels)}".rstrip()
        region = instruction.region
        handler = f"  [raises to {labels[region.handler]}]" if region else ""
        lines.append(f"{shown_line:>6}    {text}{handler}")
    return lines


def _label_names(instructions: Sequence[Instruction]) -> dict[Instruction, str]:
    """Names for every place that a jump or an exception goes to, numbered in order of the code."""
    targets = {i.argument for i in instructions if isinstance(i.argument, Instruction)}
    targets |= {i.region.handler for i in instructions if i.region}
    placed = [instruction for instruction in instructions if instruction in targets]
    return {instruction: f"L{number}" for number, instruction in enumerate(placed, start=1)}


def _argument_text(instruction: Instruction, labels: dict[Instruction, str]) -> str:
    """The operand as the listing shows it."""
    argument = instruction.argument
    if isinstance(argument, Instruction):
        return labels.get(argument, "(not in this code)")
    has_none = instruction.name in ("LOAD_CONST", "RETURN_CONST")
    return "" if argument is None and not has_none else _shortened(repr(argument))


def _shortened(text: str) -> str:
    """A text on one line, its end cut off where it is long."""
    line = " ".join(text.split("\n"))
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 2]} …"
