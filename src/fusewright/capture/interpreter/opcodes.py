"""What each bytecode instruction does: one row an instruction, by the names that all CPython
versions share.

A handler takes the frame and the instruction's operand. It changes the frame's stack and variables,
may set the frame's position (a jump), and returns a value only to leave the frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.interpreter.frame import (
    NULL,
    Frame,
    Handler,
    SavedException,
    Yielded,
)
from fusewright.capture.values.base import MISSING, TracedError, Value
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import NONE, ConstantValue, boolean
from fusewright.capture.values.functions import CellValue, FunctionValue
from fusewright.capture.values.iterators import GeneratorValue
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.sequences import ListValue, SliceValue, TupleValue
from fusewright.capture.values.sets import SetValue

OPCODES: Final[dict[str, Handler]] = {}
"""The handler of each instruction, by name."""


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Enter a handler in the table."""

    def enter(handler: Handler) -> Handler:
        for name in names:
            OPCODES[name] = handler
        return handler

    return enter


def unknown_opcode(frame: Frame, name: Any) -> Value | None:
    """Stands for every instruction that is not in the table; its operand is the instruction's
    name.
    """
    raise frame.machine.unsupported(reasons.UNKNOWN_OPCODE, opcode=name)


# -- nothing to do --------------------------------------------------------------------------------


@opcode("NOP", "RESUME", "PRECALL", "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "NOT_TAKEN")
def nothing(frame: Frame, operand: Any) -> None:
    """Instructions that matter to CPython's machinery only."""


# -- the stack ------------------------------------------------------------------------------------


@opcode("POP_TOP", "END_FOR")
def pop_top(frame: Frame, operand: Any) -> None:
    frame.stack.pop()


@opcode("PUSH_NULL")
def push_null(frame: Frame, operand: Any) -> None:
    frame.stack.append(NULL)


@opcode("COPY")
def copy(frame: Frame, depth: int) -> None:
    frame.stack.append(frame.stack[-depth])


@opcode("SWAP")
def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


# -- variables ------------------------------------------------------------------------------------


@opcode("LOAD_CONST")
def load_const(frame: Frame, value: ConstantValue) -> None:
    constant = value.value
    frame.stack.append(frame.machine.new(constant) if type(constant) is tuple else value)


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        frame.machine.raise_error(
            UnboundLocalError,
            f"cannot access local variable {name!r} where it is not associated with a value",
        )
    frame.stack.append(value)


@opcode("STORE_FAST")
def store_fast(frame: Frame, name: str) -> None:
    frame.locals[name] = frame.stack.pop()


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, name: str) -> None:
    frame.locals.pop(name, None)


@opcode("MAKE_CELL")
def make_cell(frame: Frame, name: str) -> None:
    frame.cells[name] = CellValue(frame.locals.get(name, MISSING))


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, name: str) -> None:
    frame.stack.append(frame.cells[name])


@opcode("LOAD_DEREF")
def load_deref(frame: Frame, name: str) -> None:
    value = frame.cells[name].load(frame.machine)
    if value is None:
        frame.machine.raise_error(
            NameError,
            f"cannot access free variable {name!r} where it is not associated with a value",
        )
    frame.stack.append(value)


@opcode("STORE_DEREF")
def store_deref(frame: Frame, name: str) -> None:
    frame.cells[name].store(frame.machine, frame.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(frame: Frame, name: str) -> None:
    frame.cells[name].store(frame.machine, MISSING)


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, name: str) -> None:
    value = frame.namespace.load(frame.machine, name)
    if value is None:
        frame.machine.raise_error(NameError, f"name {name!r} is not defined")
    frame.stack.append(value)


@opcode("LOAD_GLOBAL_NULL")
def load_global_null(frame: Frame, name: str) -> None:
    frame.stack.append(NULL)
    load_global(frame, name)


@opcode("STORE_GLOBAL")
def store_global(frame: Frame, name: str) -> None:
    frame.namespace.store(frame.machine, name, frame.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, name: str) -> None:
    frame.namespace.store(frame.machine, name, MISSING)


@opcode("LOAD_NAME")
def load_name(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        load_global(frame, name)
    else:
        frame.stack.append(value)


@opcode("STORE_NAME")
def store_name(frame: Frame, name: str) -> None:
    frame.locals[name] = frame.stack.pop()


@opcode("LOAD_CLASSDEREF")
def load_class_deref(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        load_deref(frame, name)
    else:
        frame.stack.append(value)


# -- attributes and items -------------------------------------------------------------------------


@opcode("LOAD_ATTR")
def load_attribute(frame: Frame, name: str) -> None:
    frame.stack[-1] = frame.machine.attribute(frame.stack[-1], name)


@opcode("LOAD_METHOD")
def load_method(frame: Frame, name: str) -> None:
    method = frame.machine.attribute(frame.stack.pop(), name)
    frame.stack += (NULL, method)


@opcode("STORE_ATTR")
def store_attribute(frame: Frame, name: str) -> None:
    owner = frame.stack.pop()
    frame.machine.set_attribute(owner, name, frame.stack.pop())


@opcode("DELETE_ATTR")
def delete_attribute(frame: Frame, name: str) -> None:
    frame.stack.pop().delete_attribute(frame.machine, name)


@opcode("BINARY_SUBSCR")
def binary_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    frame.stack[-1] = frame.machine.get_item(frame.stack[-1], key)


@opcode("STORE_SUBSCR")
def store_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    container = frame.stack.pop()
    frame.machine.call_special(container, "__setitem__", [key, frame.stack.pop()])


@opcode("DELETE_SUBSCR")
def delete_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    frame.machine.call_special(frame.stack.pop(), "__delitem__", [key])


@opcode("BINARY_SLICE")
def binary_slice(frame: Frame, operand: Any) -> None:
    stop, start = frame.stack.pop(), frame.stack.pop()
    frame.stack[-1] = frame.machine.get_item(frame.stack[-1], SliceValue(start, stop, NONE))


# -- operators ------------------------------------------------------------------------------------

BINARY_OPERATORS: Final = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and_",
    "|": "or_",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
"""Functions of module `operator` by symbol; `+=` is `iadd`."""

IN_PLACE_OPERATORS: Final = {
    f"{symbol}=": f"i{name.strip('_')}" for symbol, name in BINARY_OPERATORS.items()
}


@opcode("BINARY_OP")
def binary_operation(frame: Frame, symbol: str) -> None:
    right = frame.stack.pop()
    name = BINARY_OPERATORS.get(symbol) or IN_PLACE_OPERATORS[symbol]
    frame.stack[-1] = frame.machine.binary(name, frame.stack[-1], right)


@opcode("UNARY_NEGATIVE")
def negative(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("neg", frame.stack[-1])


@opcode("UNARY_POSITIVE")
def positive(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("pos", frame.stack[-1])


@opcode("UNARY_INVERT")
def invert(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("invert", frame.stack[-1])


@opcode("UNARY_NOT")
def logical_not(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = boolean(not frame.machine.truth(frame.stack[-1]))


@opcode("TO_BOOL")
def to_bool(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = boolean(frame.machine.truth(frame.stack[-1]))


@opcode("COMPARE_OP")
def compare(frame: Frame, symbol: str) -> None:
    right = frame.stack.pop()
    frame.stack[-1] = frame.machine.compare(symbol, frame.stack[-1], right)


@opcode("COMPARE_OP_TO_BOOL")
def compare_to_bool(frame: Frame, symbol: str) -> None:
    compare(frame, symbol)
    to_bool(frame, None)


@opcode("IS_OP")
def is_operation(frame: Frame, negated: int) -> None:
    right = frame.stack.pop()
    frame.stack[-1] = boolean(frame.machine.identical(frame.stack[-1], right) != bool(negated))


@opcode("CONTAINS_OP")
def contains_operation(frame: Frame, negated: int) -> None:
    container = frame.stack.pop()
    found = frame.machine.contains(container, frame.stack[-1])
    frame.stack[-1] = boolean(found != bool(negated))


# -- jumps ----------------------------------------------------------------------------------------


@opcode("JUMP", "JUMP_NO_INTERRUPT")
def jump(frame: Frame, target: int) -> None:
    frame.position = target


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, target: int) -> None:
    if frame.machine.truth(frame.stack.pop()):
        frame.position = target


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, target: int) -> None:
    if not frame.machine.truth(frame.stack.pop()):
        frame.position = target


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, target: int) -> None:
    if frame.machine.identical(frame.stack.pop(), NONE):
        frame.position = target


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, target: int) -> None:
    if not frame.machine.identical(frame.stack.pop(), NONE):
        frame.position = target


@opcode("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(frame: Frame, target: int) -> None:
    if frame.machine.truth(frame.stack[-1]):
        frame.position = target
    else:
        frame.stack.pop()


@opcode("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(frame: Frame, target: int) -> None:
    if frame.machine.truth(frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.position = target


# -- containers -----------------------------------------------------------------------------------


def _take(frame: Frame, count: int) -> list[Any]:
    """Pop the `count` top values, in the order in which they were pushed."""
    if not count:
        return []
    taken = frame.stack[-count:]
    del frame.stack[-count:]
    return taken


@opcode("BUILD_TUPLE")
def build_tuple(frame: Frame, count: int) -> None:
    frame.stack.append(TupleValue(tuple, _take(frame, count)))


@opcode("BUILD_LIST")
def build_list(frame: Frame, count: int) -> None:
    frame.stack.append(ListValue(list, _take(frame, count)))


@opcode("BUILD_SET")
def build_set(frame: Frame, count: int) -> None:
    members = _take(frame, count)
    result = SetValue(set)
    for member in members:
        result.add(frame.machine, member)
    frame.stack.append(result)


@opcode("BUILD_MAP")
def build_map(frame: Frame, count: int) -> None:
    items = _take(frame, 2 * count)
    result = DictValue(dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        result.put(frame.machine, key, value)
    frame.stack.append(result)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, count: int) -> None:
    keys = frame.machine.items(frame.stack.pop())
    result = DictValue(dict)
    for key, value in zip(keys, _take(frame, count), strict=True):
        result.put(frame.machine, key, value)
    frame.stack.append(result)


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, count: int) -> None:
    parts = _take(frame, count)
    frame.stack.append(SliceValue(*parts, *[NONE] * (3 - count)))


@opcode("BUILD_STRING")
def build_string(frame: Frame, count: int) -> None:
    parts = [part.constant() for part in _take(frame, count)]
    frame.stack.append(ConstantValue("".join(parts)))


@opcode("FORMAT_VALUE")
def format_value(frame: Frame, flags: int) -> None:
    specification = frame.stack.pop() if flags & 4 else ConstantValue("")
    conversion = {0: None, 1: str, 2: repr, 3: ascii}[flags & 3]
    value = frame.stack.pop()
    if conversion is not None:
        value = frame.machine.call_object(conversion, None, [value], {})
    frame.stack.append(frame.machine.call_object(format, None, [value, specification], {}))


@opcode("LIST_APPEND")
def list_append(frame: Frame, depth: int) -> None:
    item = frame.stack.pop()
    frame.stack[-depth].append(frame.machine, item)


@opcode("SET_ADD")
def set_add(frame: Frame, depth: int) -> None:
    member = frame.stack.pop()
    frame.stack[-depth].add(frame.machine, member)


@opcode("MAP_ADD")
def map_add(frame: Frame, depth: int) -> None:
    value = frame.stack.pop()
    key = frame.stack.pop()
    frame.stack[-depth].put(frame.machine, key, value)


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, depth: int) -> None:
    items = frame.machine.items(frame.stack.pop())
    target = frame.stack[-depth]
    for item in list(items):
        target.append(frame.machine, item)


@opcode("SET_UPDATE")
def set_update(frame: Frame, depth: int) -> None:
    for member in frame.machine.items(frame.stack.pop()):
        frame.stack[-depth].add(frame.machine, member)


@opcode("DICT_UPDATE")
def dict_update(frame: Frame, depth: int) -> None:
    for key, value in frame.machine.mapping_entries(frame.stack.pop()):
        frame.stack[-depth].put(frame.machine, key, value)


@opcode("DICT_MERGE")
def dict_merge(frame: Frame, depth: int) -> None:
    target = frame.stack[-depth - 1]
    for key, value in frame.machine.mapping_entries(frame.stack.pop()):
        if target.contains(frame.machine, key):
            frame.machine.raise_error(
                TypeError, f"got multiple values for keyword argument {key.constant()!r}"
            )
        target.put(frame.machine, key, value)


@opcode("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = TupleValue(tuple, frame.machine.items(frame.stack[-1]))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, count: int) -> None:
    items = frame.machine.items(frame.stack.pop())
    if len(items) != count:
        few = f"not enough values to unpack (expected {count}, got {len(items)})"
        many = f"too many values to unpack (expected {count})"
        frame.machine.raise_error(ValueError, few if len(items) < count else many)
    frame.stack.extend(reversed(items))


@opcode("UNPACK_EX")
def unpack_with_rest(frame: Frame, counts: int) -> None:
    before, after = counts & 0xFF, counts >> 8
    items = list(frame.machine.items(frame.stack.pop()))
    if len(items) < before + after:
        frame.machine.raise_error(
            ValueError,
            f"not enough values to unpack (expected at least {before + after}, got {len(items)})",
        )
    rest = ListValue(list, items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], rest, *items[len(items) - after :]]))


# -- iteration ------------------------------------------------------------------------------------


@opcode("GET_ITER")
def get_iterator(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.iterate(frame.stack[-1])


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iterator(frame: Frame, operand: Any) -> None:
    if not isinstance(frame.stack[-1], GeneratorValue):
        get_iterator(frame, operand)


@opcode("FOR_ITER")
def for_iterator(frame: Frame, target: int) -> None:
    item = frame.machine.next(frame.stack[-1])
    if item is None:
        frame.stack.pop()
        frame.position = target
    else:
        frame.stack.append(item)


@opcode("RETURN_GENERATOR")
def return_generator(frame: Frame, operand: Any) -> Value:
    if not frame.code.co_flags & inspect.CO_GENERATOR:
        raise frame.machine.unsupported(reasons.ASYNCHRONOUS)
    # The frame starts again, at the instruction after this one, when the generator is first
    # advanced: CPython pushes
    # a value for the POP_TOP found there.
    suspended = Frame(frame.machine, frame.function, frame.locals, frame.program, frame.module_path)
    suspended.cells = frame.cells
    suspended.position = frame.position
    suspended.stack.append(NONE)
    return GeneratorValue(suspended)


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, operand: Any) -> Value | None:
    raise Yielded(frame.stack.pop())


@opcode("SEND")
def send(frame: Frame, target: int) -> None:
    sent = frame.stack.pop()
    receiver = frame.stack[-1]
    item = frame.machine.send(receiver, sent)
    if item is None:
        frame.stack[-1] = frame.machine.generator_result or NONE
        frame.position = target
    else:
        frame.stack.append(item)


# -- calls ----------------------------------------------------------------------------------------


@opcode("KW_NAMES")
def keyword_names(frame: Frame, names: tuple[str, ...]) -> None:
    frame.keyword_names = names


@opcode("CALL")
def call(frame: Frame, count: int) -> None:
    names, frame.keyword_names = frame.keyword_names, ()
    taken = _take(frame, count)
    split = count - len(names)
    keywords = dict(zip(names, taken[split:], strict=True))
    frame.stack.append(frame.machine.call(*_callee(frame, taken[:split]), keywords))


def _callee(frame: Frame, arguments: list[Value]) -> tuple[Value, list[Value]]:
    """Pop the callable and its companion: NULL beside the callable, or an unbound method under its
    object.
    """
    second, first = frame.stack.pop(), frame.stack.pop()
    if first is NULL:
        return second, arguments
    return first, [second, *arguments]


@opcode("CALL_FUNCTION_EX")
def call_unpacked(frame: Frame, has_keywords: int) -> None:
    machine = frame.machine
    keywords = {}
    if has_keywords & 1:
        for key, value in machine.mapping_entries(frame.stack.pop()):
            keywords[key.constant()] = value
    arguments = list(machine.items(frame.stack.pop()))
    function = frame.stack.pop()
    frame.stack.pop()
    frame.stack.append(machine.call(function, arguments, keywords))


@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, flags: int) -> None:
    code = frame.stack.pop().constant()
    cells = frame.machine.items(frame.stack.pop()) if flags & 8 else []
    if flags & 4:
        frame.stack.pop()  # annotations: nothing that runs reads them
    keyword_defaults = (
        {key.constant(): value for key, value in frame.stack.pop().entries(frame.machine)}
        if flags & 2
        else {}
    )
    defaults = frame.machine.items(frame.stack.pop()) if flags & 1 else []
    frame.stack.append(
        FunctionValue(
            code,
            frame.namespace,
            cells=cells,  # type: ignore[arg-type]
            defaults=defaults,
            keyword_defaults=keyword_defaults,
        )
    )


@opcode("RETURN_VALUE")
def return_value(frame: Frame, operand: Any) -> Value:
    return frame.stack.pop()  # type: ignore[no-any-return]


@opcode("RETURN_CONST")
def return_const(frame: Frame, value: Any) -> Value:
    return frame.machine.new(value)


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, operand: Any) -> Value | None:
    raise frame.machine.unsupported(reasons.UNKNOWN_CALLABLE, function="a class statement")


# -- exceptions and `with` ------------------------------------------------------------------------


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, operand: Any) -> None:
    frame.stack.append(ClassValue(AssertionError))


@opcode("RAISE_VARARGS")
def raise_exception(frame: Frame, count: int) -> Value | None:
    machine = frame.machine
    cause = frame.stack.pop() if count == 2 else None
    if count == 0:
        if machine.handled is None:
            machine.raise_error(RuntimeError, "No active exception to reraise")
        raise TracedError(machine.handled)
    raised = frame.stack.pop()
    if isinstance(raised, ClassValue):
        raised = machine.call(raised, [])
    if cause is not None and hasattr(raised, "known"):
        raised.known["__cause__"] = cause
    raise TracedError(raised)


@opcode("RERAISE")
def reraise(frame: Frame, depth: int) -> Value | None:
    raise TracedError(frame.stack.pop())


@opcode("PUSH_EXC_INFO")
def push_exception_info(frame: Frame, operand: Any) -> None:
    raised = frame.stack.pop()
    frame.stack += (SavedException(frame.machine.handled, raised, frame.raised_at), raised)
    frame.machine.handled = raised


@opcode("POP_EXCEPT")
def pop_exception(frame: Frame, operand: Any) -> None:
    frame.machine.handled = frame.stack.pop().previous


@opcode("CHECK_EXC_MATCH")
def check_exception_match(frame: Frame, operand: Any) -> None:
    classes = frame.stack.pop().to_python()
    frame.stack.append(boolean(issubclass(frame.stack[-1].python_type(), classes)))


@opcode("BEFORE_WITH")
def before_with(frame: Frame, operand: Any) -> None:
    machine = frame.machine
    manager = frame.stack.pop()
    leave = machine.special(manager, "__exit__")
    enter = machine.special(manager, "__enter__")
    if enter is None or leave is None:
        machine.raise_error(
            TypeError,
            f"{manager.python_type().__name__!r} object is not a context manager",
        )
    frame.stack.append(leave)
    frame.stack.append(machine.call(enter, []))


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, operand: Any) -> None:
    # Stack: exit function, offset, previous exception, exception.
    raised = frame.stack[-1]
    arguments = [ClassValue(raised.python_type()), raised, NONE]
    frame.stack.append(frame.machine.call(frame.stack[-4], arguments))


@opcode("CLEANUP_THROW")
def cleanup_throw(frame: Frame, operand: Any) -> None:
    raised = frame.stack[-1]
    if not issubclass(raised.python_type(), StopIteration):
        raise TracedError(frame.stack.pop())
    del frame.stack[-3:]
    frame.stack += (NONE, frame.machine.attribute(raised, "value"))
