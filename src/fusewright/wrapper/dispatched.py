"""Library calls that a native plan makes through the C function that enters torch's dispatcher: all
arguments of the operator are tensors, numbers or None, and all results tensors. That takes 2 µs
less than a call from Python, and the results need no Python objects.

before                          after
------                          -----
attention(query, key, value)    operands (query, key, value, 0.0, False, None, None), "tttdbnn"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    op, name, overload = dispatched_operator(line.operator)
    if op is None or library_call_may_raise(line.operator) or torch_compat.has_effect(op):
        return None
    if torch_compat.written_arguments(op) or torch_compat.is_view_operator(op):
        return None
    types = [str(result.type) for result in torch_compat.operator_returns(op)]
    if types != ["Tensor"] * len(line.results):
        return None
    operands, kinds = [], ""
    for argument, operand in all_arguments(op, line.arguments, line.keywords):
        kind = _kind(argument, operand)
        if kind is None:
            return None
        operands.append(operand)
        kinds += kind
    declared = torch_compat.operator_arguments(op)
    names = tuple(argument.name for argument in declared if argument.kwarg_only)
    return DispatchedCall(name, overload, tuple(operands), kinds, names)


def dispatched_operator(operator: str) -> tuple[torch_compat.OpOverload | None, str, str]:
    """`aten.name.overload`, and its name and overload as the dispatcher has them; None for an
    operator that is not torch's own.
    """
    namespace, _, rest = operator.partition(".")
    name, _, overload = rest.partition(".")
    op = torch_compat.overload_by_name(namespace, name, overload) if namespace == "aten" else None
    return op, f"{namespace}::{name}", "" if overload == "default" else overload


def all_arguments(
    op: torch_compat.OpOverload,
    arguments: Sequence[Operand],
    keywords: Sequence[tuple[str, Operand]],
) -> Iterator[tuple[Any, Operand]]:
    """Each argument of an operator's schema with its operand in a call, which is the default where
    the call has none.
    """
    by_name = dict(keywords)
    for position, argument in enumerate(torch_compat.operator_arguments(op)):
        if position < len(arguments):
            yield argument, arguments[position]
        else:
            yield argument, by_name.get(argument.name, Literal(argument.default_value))


def present_type(declared: str) -> tuple[str, bool]:
    """The type of an argument that is there, as schemas have it; and whether it may be absent."""
    inner = declared.removeprefix("Optional[")
    return (inner.removesuffix("]"), True) if inner != declared else (declared, False)


def _kind(argument: Any, operand: Operand) -> str | None:
    """The letter of an operand for an argument; None where the C function does not take it."""
    declared, is_optional = present_type(str(argument.type))
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
