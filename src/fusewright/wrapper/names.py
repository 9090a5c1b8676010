"""Where generated Python finds operators, functions and constants: native plans call the same."""

from __future__ import annotations

from keyword import iskeyword

from fusewright.ir.lines import CallUserTriton, EnsureLayout
from fusewright.ir.origin import Origin
from fusewright.ir.program import Enumerated, ListOf, Literal, Operand
from fusewright.runtime.fast_names import FAST_NAMES


def operator_path(operator: str) -> str:
    """Where generated Python finds an operator; an overload may be called by a word of Python's."""
    packet, _, overload = operator.rpartition(".")
    if operator in FAST_NAMES:
        return FAST_NAMES[operator]
    if iskeyword(overload):
        return f"getattr(torch.ops.{packet}, {overload!r})"
    return f"torch.ops.{operator}"


def constant_path(name: str) -> str:
    """Where generated Python finds what was handed over with the module: a tensor, or a program
    which was compiled apart.
    """
    return f"runtime.constant(globals(), {name!r})"


def user_kernel_path(name: str, line: CallUserTriton) -> str:
    """Where generated Python finds what launches a kernel that the program wrote."""
    path = constant_path(name)
    return f"runtime.telling_of_writes({path})" if line.is_behind_writes else path


def number_path(function: str) -> str:
    """Where generated Python finds a function of numbers."""
    return f"runtime.NUMBER_FUNCTIONS[{function!r}]"


def literal_text(operand: Literal | Enumerated) -> str:
    """An operand that is the same in every call."""
    match operand:
        case Literal(value=value):
            return _literal(value)
        case Enumerated(kind="device", name=("cpu" | "meta") as name):
            return f"torch.device({name!r})"
        case Enumerated(kind="device", name=slot):
            return slot
        case Enumerated(name=name):
            return f"torch.{name}"


def _literal(value: bool | int | float | complex | str | None) -> str:
    """`repr`, with infinities and NaN as Python can read them back."""
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def names_of(values: tuple[tuple[str, Operand], ...]) -> tuple[str, ...]:
    """The names under which a debug print or check knows values."""
    return tuple(name for name, _ in values)


def shown_values(values: tuple[tuple[str, Operand], ...]) -> ListOf:
    """The values that a debug print or check is given, as one argument."""
    return ListOf(tuple(value for _, value in values))


def user_place(origins: tuple[Origin, ...]) -> str:
    """The user's lines that a kernel or call computes, as debug prints and checks show them."""
    lines = [f"{origin.file}:{origin.line}  {origin.text}" for origin in origins if origin.file]
    lines = list(dict.fromkeys(line.strip() for line in lines))
    more = [f"… and {len(lines) - 3} more"] if len(lines) > 3 else []
    return "\n".join([*lines[:3], *more])


def layout_check(line: EnsureLayout) -> str:
    """The function that sees to a layout."""
    return "runtime.exact_layout" if line.is_strict else "runtime.with_layout"
