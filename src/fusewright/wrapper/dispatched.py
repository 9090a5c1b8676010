"""Library calls that a native plan makes through the C function that enters torch's dispatcher: all
arguments of the operator are tensors, numbers or None, and all results tensors. That takes 2 µs
less than a call from Python, and the results need no Python objects.

before                          after
------                          -----
attention(query, key, value)    operands (query, key, value, 0.0, False, None, None), "tttdbnn"
"""

from __future__ import annotations

from typing import Any, Final

from fusewright import torch_compat
from fusewright.ir.index import Index
from fusewright.ir.lines import CallExtern
from fusewright.ir.program import BufferReference, Literal, Operand
from fusewright.ir.raising import library_call_may_raise
from fusewright.records import record

KINDS: Final = {"Tensor": "t", "int": "i", "float": "d", "bool": "b"}
"""The letters of arguments that have to be there, by their types in schemas. Where one may be None
and is not, the letter is a capital; for None it is n.
"""


@record
class DispatchedCall:
    """A call of an operator with all arguments of its schema."""

    name: str
    """The dispatcher's name: `aten::mm`."""

    overload: str
    operands: tuple[Operand, ...]
    kinds: str
    """A letter for each operand."""

    names: tuple[str, ...]
    """Names of the last arguments, where Python passes them by name."""


def dispatched_call(line: CallExtern) -> DispatchedCall | None:
    """The call of `aten.name.overload`, if it can be made so. An operator that writes, draws random
    numbers or may raise because of what tensors hold cannot: where the C function fails, Python
    calls the operator once more, for its exception.
    """
    namespace, _, rest = line.operator.partition(".")
    name, _, overload = rest.partition(".")
    op = torch_compat.overload_by_name(namespace, name, overload) if namespace == "aten" else None
    if op is None or library_call_may_raise(line.operator) or torch_compat.has_effect(op):
        return None
    if torch_compat.written_arguments(op) or torch_compat.is_view_operator(op):
        return None
    types = [str(result.type) for result in torch_compat.operator_returns(op)]
    if types != ["Tensor"] * len(line.results):
        return None
    arguments, keywords = line.arguments, line.keywords
    declared = torch_compat.operator_arguments(op)
    by_name = dict(keywords)
    operands, kinds = [], ""
    for position, argument in enumerate(declared):
        operand = by_name.get(argument.name, Literal(argument.default_value))
        if position < len(arguments):
            operand = arguments[position]
        kind = _kind(argument, operand)
        if kind is None:
            return None
        operands.append(operand)
        kinds += kind
    names = tuple(argument.name for argument in declared if argument.kwarg_only)
    written = "" if overload == "default" else overload
    return DispatchedCall(f"aten::{name}", written, tuple(operands), kinds, names)


def _kind(argument: Any, operand: Operand) -> str | None:
    """The letter of an operand for an argument; None where the C function does not take it."""
    text = str(argument.type)
    declared = text.removeprefix("Optional[").removesuffix("]")
    is_optional = declared != text
    if is_optional and operand == Literal(None):
        return "n"
    kind = KINDS.get(declared)
    match kind, operand:
        case ("t", BufferReference()) | ("i", Index()):
            pass
        case ("i", Literal(value=int() as value)) if not isinstance(value, bool):
            pass
        case ("d", Literal(value=float())) | ("b", Literal(value=bool())):
            pass
        case _:
            return None
    assert kind is not None
    return kind.upper() if is_optional else kind
