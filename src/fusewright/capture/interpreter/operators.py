"""Operators, comparisons, truth, iteration and items, by the special methods that Python would
call.
"""

from __future__ import annotations

import collections
import operator
import types
from typing import Any, Final, TypeGuard

import torch

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.interpreter.stand_ins import raise_as, run_for_real
from fusewright.capture.interpreter.tensor_items import tensor_item
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import (
    MISSING,
    Machine,
    NotConstant,
    TracedError,
    Value,
    evaluate,
)
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import SCALAR_TYPES, ConstantValue, boolean
from fusewright.capture.values.iterators import (
    SEQUENCE_ITERATOR,
    GeneratorValue,
    IteratorValue,
    iterator_at,
)
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.numbers import FUNCTIONS, SymbolicValue, is_number, number_of
from fusewright.capture.values.objects import IdentityValue, ObjectValue, PrimitiveValue
from fusewright.capture.values.references import ReferenceValue
from fusewright.capture.values.sequences import (
    DequeValue,
    ListValue,
    SequenceValue,
    TupleValue,
)
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.capture.values.views import DictViewValue
from fusewright.errors import DataDependent
from fusewright.fake import known_value

_NAMES: Final = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
)

BINARY_METHODS: Final = {
    **{name: (f"__{name.strip('_')}__", f"__r{name.strip('_')}__") for name in _NAMES},
    "divmod": ("__divmod__", "__rdivmod__"),
}
"""The special method of each binary operator, and the reflected one."""

IN_PLACE: Final = {f"i{name.strip('_')}": name for name in _NAMES}
"""The plain operator of each in-place operator."""

SEQUENCES: Final[tuple[Any, ...]] = (list, tuple, str, bytes, bytearray, collections.deque)
"""Sequences written in C: their `+` and `*` are not what numbers have."""

COMPARISONS: Final = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
"""The function of each comparison, its special method, and the one tried on the other side."""

PLAIN_SEQUENCES: Final = (list, tuple, torch.Size)
"""Classes of sequences whose items are read as lists' and tuples' are."""

UNARY_METHODS: Final = {
    "neg": "__neg__",
    "pos": "__pos__",
    "invert": "__invert__",
    "abs": "__abs__",
}


def _call(function: Any, *arguments: Any) -> Any:
    return function()


def _enter(manager: Any, *arguments: Any) -> Any:
    with manager:
        pass


OPERATIONS: Final[dict[str, Any]] = {
    "__call__": _call,
    "__len__": len,
    "__enter__": _enter,
    "__next__": next,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__neg__": operator.neg,
    "__pos__": operator.pos,
    "__invert__": operator.invert,
    "__abs__": abs,
    "__iter__": iter,
    "__reversed__": reversed,
    "__round__": round,
    "__index__": operator.index,
}
"""The operation that a special method is for: what says, in Python's words, that it is missing."""


def fold(machine: Machine, function: Any, *operands: Any) -> Value:
    """Run a pure function for real. What it raises is raised in the traced program."""
    return machine.new(evaluate(machine, function, *operands))


def _constants(left: Value, right: Value) -> tuple[Any, Any] | None:
    if isinstance(left, ConstantValue) and isinstance(right, ConstantValue):
        return left.value, right.value
    return None


def _method_result(
    machine: Machine, owner: Value, name: str, arguments: list[Value]
) -> Value | None:
    """The result of a special method, or None when there is none or it returns NotImplemented."""
    method = machine.special(owner, name)
    if method is None:
        return None
    if isinstance(owner, ConstantValue) and not all(_is_plain(argument) for argument in arguments):
        return None
    result = machine.call(method, arguments)
    if type(result) is ConstantValue and result.value is NotImplemented:
        return None
    return result


def _is_plain(value: Value) -> bool:
    try:
        value.to_python()
    except NotConstant:
        return False
    return True


def binary(machine: Machine, name: str, left: Value, right: Value) -> Value:
    """`left operator right`, by the operator's name in module `operator`."""
    if _are_symbolic(left, right):
        return _compute(machine, getattr(operator, IN_PLACE.get(name, name), divmod), left, right)
    constants = _constants(left, right)
    if constants is not None:
        return fold(machine, getattr(operator, name, divmod), *constants)
    with_tensor = isinstance(left, TensorValue) or isinstance(right, TensorValue)
    if with_tensor and not (
        _takes_operator(machine, left, right, name) or _takes_operator(machine, right, left, name)
    ):
        left, right = _as_primitive(left), _as_primitive(right)
        plain = name if isinstance(left, TensorValue) else IN_PLACE.get(name, name)
        return machine.call_graph(getattr(operator, plain), [left, right], {})

    if name == "add" and _is_plain_tuple(left) and _is_plain_tuple(right):
        assert isinstance(left, TupleValue) and isinstance(right, TupleValue)
        items = [*left.items(machine), *right.items(machine)]
        return machine.new_tuple(items, type(left.cls() + right.cls()))
    if name in IN_PLACE:
        name, in_place = IN_PLACE[name], f"__{name}__"
        result = _method_result(machine, left, in_place, [right])
        if result is not None:
            return result
    method, reflected = BINARY_METHODS[name]
    left_type, right_type = left.python_type(), right.python_type()
    right_first = (
        left_type is not right_type
        and issubclass(right_type, left_type)
        and machine.class_attribute(right_type, reflected)[0]
        is not machine.class_attribute(left_type, reflected)[0]
    )
    attempts = [(left, method, right), (right, reflected, left)]
    if left_type is right_type:
        del attempts[1]
    if right_first:
        attempts.reverse()
    for owner, special, other in attempts:
        if name in ("add", "mul") and is_sequence(machine, owner):
            continue  # C tries `+` and `*` of sequences when nothing else took the operator
        result = _method_result(machine, owner, special, [other])
        if result is not None:
            return result
    if is_sequence(machine, left) or (is_sequence(machine, right) and name == "mul"):
        operands = [_as_known(left), _as_known(right)]  # how often: a length, which is no symbol
        return run_for_real(machine, getattr(operator, name), operands, {})
    raise_as(machine, getattr(operator, name, divmod), left, right)


def _is_plain_tuple(value: Value) -> bool:
    """Whether a value is a tuple or a torch.Size, whose `+` is known."""
    return isinstance(value, TupleValue) and value.cls in (tuple, torch.Size)


def _are_symbolic(left: Value, right: Value) -> bool:
    """Whether both are numbers, one of them symbolic."""
    if not isinstance(left, SymbolicValue) and not isinstance(right, SymbolicValue):
        return False
    return is_number(left) and is_number(right)


def _compute(machine: Machine, function: Any, *operands: Value) -> Value:
    """An operator on symbolic numbers; on the numbers as they are where it has no symbolic form."""
    numbers = [number_of(operand) for operand in operands]
    try:
        result = FUNCTIONS.get(function, function)(*numbers)
    except ZeroDivisionError as error:
        machine.raise_error(ZeroDivisionError, *error.args)
    except (TypeError, NotImplementedError, AttributeError, RuntimeError):
        return fold(machine, function, *(operand.constant() for operand in operands))
    return machine.new(result)


def _as_known(value: Value) -> Value:
    """A symbolic number as the one that it is; else the value."""
    return ConstantValue(value.constant()) if isinstance(value, SymbolicValue) else value


def _as_primitive(value: Value) -> Value:
    """A subclass's instance as the plain number that torch takes it for; else the value."""
    if isinstance(value, PrimitiveValue) and isinstance(value.content, int | float | complex):
        return ConstantValue(value.content)
    return value


def _takes_operator(machine: Machine, value: Value, other: Value, name: str) -> bool:
    """Whether an object of a user's class has an operator of its own, which wins over a tensor's.

    Torch's operators return NotImplemented for objects that they do not know.
    """
    if type(value) is not ObjectValue or not isinstance(other, TensorValue):
        return False
    methods = BINARY_METHODS[IN_PLACE.get(name, name)]
    raw_methods = [machine.class_attribute(value.cls, method)[0] for method in methods]
    return any(isinstance(raw, types.FunctionType) for raw in raw_methods)


def is_sequence(machine: Machine, value: Value) -> bool:
    """Whether a value is a sequence written in C, its `+` and `*` not overridden."""
    cls = value.python_type()
    base = next((base for base in SEQUENCES if issubclass(cls, base)), None)
    return base is not None and all(
        machine.class_attribute(cls, name)[0] is machine.class_attribute(base, name)[0]
        for name in ("__add__", "__mul__")
    )


def unary(machine: Machine, name: str, operand: Value) -> Value:
    """`operator operand`, by the operator's name in module `operator`."""
    if isinstance(operand, SymbolicValue):
        return _compute(machine, getattr(operator, name), operand)
    if isinstance(operand, ConstantValue):
        return fold(machine, getattr(operator, name), operand.value)
    if isinstance(operand, TensorValue):
        return machine.call_graph(getattr(operator, name), [operand], {})
    return machine.call_special(operand, UNARY_METHODS[name], [])


def compare(machine: Machine, symbol: str, left: Value, right: Value) -> Value:
    """`left symbol right`."""
    function, method, reflected = COMPARISONS[symbol]
    if _are_symbolic(left, right):
        return _compute(machine, function, left, right)
    constants = _constants(left, right)
    if constants is not None:
        return fold(machine, function, *constants)
    if isinstance(left, IdentityValue) and isinstance(right, IdentityValue):
        if symbol in ("==", "!="):
            return boolean((symbol == "==") == identical(machine, left.target, right.target))
        raise machine.unsupported(
            reasons.TENSOR_TO_UNKNOWN, function=symbol, argument=left.describe()
        )
    for operand, other in ((left, right), (right, left)):
        if isinstance(operand, TensorValue):
            if symbol in ("==", "!=") and not isinstance(other, TensorValue | ConstantValue):
                return boolean(symbol == "!=")
            return machine.call_graph(function, [left, right], {})

    if symbol in ("==", "!=") and _is_plain_sequence(left) and _is_plain_sequence(right):
        same = (left.cls is list) == (right.cls is list) and _equal_items(machine, left, right)
        return boolean(same == (symbol == "=="))
    for owner, special, other in ((left, method, right), (right, reflected, left)):
        if symbol == "!=" and not _defines(machine, owner, "__ne__"):
            result = _method_result(machine, owner, "__eq__", [other])
            if result is not None:
                return boolean(not machine.truth(result))
            continue
        result = _method_result(machine, owner, special, [other])
        if result is not None:
            return result
    if symbol in ("==", "!="):
        return boolean(identical(machine, left, right) == (symbol == "=="))
    raise_as(machine, function, left, right)


def _is_plain_sequence(value: Value) -> TypeGuard[SequenceValue]:
    """Whether a value is a list, a tuple or the sizes of a tensor."""
    return isinstance(value, SequenceValue) and value.cls in PLAIN_SEQUENCES


def _equal_items(machine: Machine, left: SequenceValue, right: SequenceValue) -> bool:
    """`==` of two lists or tuples, which compares items until two differ."""
    if left.size != right.size:
        return False
    pairs = zip(left.items(machine), right.items(machine), strict=True)
    return all(equal(machine, item, other) for item, other in pairs)


def _defines(machine: Machine, value: Value, name: str) -> bool:
    """Whether the class has a method of its own, not the one of `object`."""
    raw, _ = machine.class_attribute(value.python_type(), name)
    return raw is not MISSING and raw is not getattr(object, name, None)


def _guard_different(machine: Machine, left: Value, right: Value) -> None:
    """Guard that two existing objects stay different ones, if they are."""
    sources = left.source, right.source
    if left.real() is right.real() or None in sources:
        return
    if not any(isinstance(source, ConstantSource) for source in sources):
        machine.guard(GuardKind.DISTINCT, None, sources)
    elif left.python_type() is right.python_type():
        for value in (left, right):
            if not isinstance(value.source, ConstantSource):
                machine.guard(GuardKind.IDENTITY, value.source, value.real())


def identical(machine: Machine, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if isinstance(left, SymbolicValue) or isinstance(right, SymbolicValue):
        comparable = _are_symbolic(left, right) and left.python_type() is right.python_type()
        return comparable and truth(machine, compare(machine, "==", left, right))
    if (
        isinstance(left, ReferenceValue)
        and isinstance(right, ReferenceValue)
        and (left.is_new or right.is_new)
    ):
        return left.is_made_again_as(machine, right)
    if not isinstance(left, ConstantValue) and not isinstance(right, ConstantValue):
        _guard_different(machine, left, right)
    if isinstance(left, ConstantValue) and isinstance(right, ConstantValue):
        return left.value is right.value or (
            type(left.value) in SCALAR_TYPES
            and type(left.value) is type(right.value)
            and left.value == right.value
        )
    real, other = left.real(), right.real()
    return real is not MISSING and real is other


def equal(machine: Machine, left: Value, right: Value) -> bool:
    """`left is right or left == right`."""
    return identical(machine, left, right) or machine.truth(compare(machine, "==", left, right))


def truth(machine: Machine, value: Value) -> bool:
    """`bool(value)`."""
    match value:
        case SymbolicValue():
            try:
                return bool(value.number != 0) if value.python_type() is not bool else value.value
            except DataDependent:
                raise machine.unsupported(reasons.BRANCH_ON_TENSOR) from None
        case ConstantValue():
            return bool(value.value)
        case TensorValue():
            return _tensor_truth(machine, value)
        case SequenceValue() if value.cls in PLAIN_SEQUENCES:
            return value.size > 0
        case DictValue() | InstanceDictValue() if value.python_type() is dict:
            return value.size(machine) > 0
        case SetValue():
            return bool(value.members)
        case ClassValue() if type(value.cls) is type:
            return True
    for name in ("__bool__", "__len__"):
        method = machine.special(value, name)
        if method is not None:
            return bool(machine.call(method, []).constant())
    return True


def _value_of(machine: Machine, value: TensorValue) -> torch.Tensor | None:
    return known_value(value.fake, machine.builder.readers)


def _tensor_truth(machine: Machine, value: TensorValue) -> bool:
    tensor = _value_of(machine, value)
    if tensor is not None:
        return bool(fold(machine, bool, tensor).constant())
    if value.fake.numel() > 1:
        machine.raise_error(
            RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"
        )
    raise machine.unsupported(reasons.BRANCH_ON_TENSOR)


def iterate(machine: Machine, value: Value) -> Value:
    """`iter(value)`."""
    match value:
        case IteratorValue() | GeneratorValue():
            return value
        case SequenceValue() if value.cls in PLAIN_SEQUENCES:
            return IteratorValue.over_sequence(value)
        case ConstantValue():
            iterator = evaluate(machine, iter, value.value)
            return IteratorValue.of_container(
                value,
                lambda machine, position: _next_constant(machine, iterator),
                type(iterator),
                iterator_at,
            )
        case TensorValue():
            if value.fake.dim() == 0:
                machine.raise_error(TypeError, "iteration over a 0-d tensor")
            rows = machine.call_tensor_method(value, "unbind", [machine.new(0)], {})
            return iterate(machine, rows)
    method = machine.special(value, "__iter__")
    if method is not None:
        return machine.call(method, [])
    if machine.special(value, "__getitem__") is not None:

        def item(machine: Machine, position: int) -> Value | None:
            try:
                return get_item(machine, value, machine.new(position))
            except TracedError as error:
                if error.is_caught_as(IndexError | StopIteration):
                    return None
                raise

        return IteratorValue.of_container(value, item, SEQUENCE_ITERATOR, iterator_at)
    raise_as(machine, iter, value)


def _next_constant(machine: Any, iterator: Any) -> Value | None:
    item = next(iterator, MISSING)
    return None if item is MISSING else machine.new(item)


def next_item(machine: Machine, iterator: Value) -> Value | None:
    """`next(iterator)`; None at its end."""
    if isinstance(iterator, IteratorValue | GeneratorValue):
        return iterator.advance(machine)
    try:
        return machine.call_special(iterator, "__next__", [])
    except TracedError as error:
        if error.is_caught_as(StopIteration):
            return None
        raise


def items(machine: Machine, value: Value) -> list[Value]:
    """`list(value)`. May be the value's own list: not to be changed."""
    if isinstance(value, SequenceValue) and _has_builtin_iteration(value.cls):
        return value.items(machine)
    if isinstance(value, DictViewValue):
        return value.items(machine)
    iterator = iterate(machine, value)
    items = []
    while (item := next_item(machine, iterator)) is not None:
        items.append(item)
    return items


def _has_builtin_iteration(cls: type) -> bool:
    return getattr(cls, "__iter__", None) in (list.__iter__, tuple.__iter__)


def length(machine: Machine, value: Value) -> int:
    """`len(value)`."""
    match value:
        case SequenceValue() if value.cls in PLAIN_SEQUENCES:
            return value.size
        case TensorValue():
            if value.fake.dim() == 0:
                machine.raise_error(TypeError, "len() of a 0-d tensor")
            return int(value.fake.shape[0])
        case ConstantValue():
            return int(fold(machine, len, value.value).constant())
        case _:
            size = machine.call_special(value, "__len__", []).constant()
            return int(size)


def get_item(machine: Machine, value: Value, key: Value) -> Value:
    """`value[key]`."""
    match value:
        case TensorValue():
            return tensor_item(machine, value, key)
        case ListValue(cls=cls) | TupleValue(cls=cls) if cls in PLAIN_SEQUENCES:
            return sequence_item(machine, value, key)
        case DequeValue():
            return run_for_real(machine, operator.getitem, [value, key], {})
        case ConstantValue() if isinstance(key, ConstantValue) or _is_plain(key):
            return fold(machine, operator.getitem, value.value, key.to_python())
        case ClassValue() if machine.special(value, "__getitem__") is None:
            return fold(machine, operator.getitem, value.cls, key.to_python())
        case _:
            return machine.call_special(value, "__getitem__", [key])


def sequence_item(machine: Machine, value: SequenceValue, key: Value) -> Value:
    """An item or a slice of a list or tuple."""
    if isinstance(key, ConstantValue) and key.python_type() is not slice:
        index = key.value
        if not hasattr(type(index), "__index__"):
            machine.raise_error(
                TypeError,
                f"{value.cls.__name__} indices must be integers or slices, "
                f"not {type(index).__name__}",
            )
        index = operator.index(index)
        if index < 0:
            index += value.size
        if not 0 <= index < value.size:
            base = "list" if isinstance(value, ListValue) else "tuple"
            machine.raise_error(IndexError, f"{base} index out of range")
        return value.item(machine, index)
    if isinstance(key, TensorValue) and _value_of(machine, key) is None:
        raise machine.unsupported(reasons.TENSOR_VALUE, operation="list[tensor]")
    if key.python_type() is slice:
        chosen = evaluate(machine, operator.getitem, value.items(machine), key.constant())
        if isinstance(value, ListValue):
            return machine.new_list(chosen)
        return machine.new_tuple(chosen, torch.Size if value.cls is torch.Size else tuple)
    index_method = machine.special(key, "__index__")
    if index_method is None:
        machine.raise_error(TypeError, f"{value.cls.__name__} indices must be integers or slices")
    return sequence_item(machine, value, machine.call(index_method, []))


def contains(machine: Machine, container: Value, item: Value) -> bool:
    """`item in container`."""
    constants = _constants(container, item)
    if constants is not None:
        return bool(fold(machine, operator.contains, *constants).constant())
    if isinstance(container, TensorValue):
        raise machine.unsupported(reasons.TENSOR_VALUE, operation="in tensor")
    method = machine.special(container, "__contains__")
    if method is not None and not isinstance(container, ConstantValue):
        return truth(machine, machine.call(method, [item]))
    iterator = iterate(machine, container)
    while (candidate := next_item(machine, iterator)) is not None:
        if equal(machine, candidate, item):
            return True
    return False
