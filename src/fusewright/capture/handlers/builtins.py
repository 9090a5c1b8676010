"""Handlers of the functions of module `builtins`."""

from __future__ import annotations

import abc
import builtins
import inspect
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import DECLINED, handles, meaning_of, pure
from fusewright.capture.interpreter.stand_ins import bare, raise_as, raise_real, run_for_real
from fusewright.capture.sources import ConstantSource, StateSource
from fusewright.capture.values.base import (
    MISSING,
    Machine,
    NotConstant,
    Value,
    evaluate,
    overrides_object,
)
from fusewright.capture.values.classes import ClassValue, PythonModuleValue, SuperValue
from fusewright.capture.values.constant import ConstantValue, boolean, is_none
from fusewright.capture.values.functions import BuiltinValue, FunctionValue, MethodValue
from fusewright.capture.values.mappings import GlobalsValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.objects import (
    ExceptionValue,
    IdentityValue,
    ObjectValue,
    PrimitiveValue,
    handled_by_callers,
)
from fusewright.capture.values.sequences import SliceValue, TupleValue
from fusewright.capture.values.tensors import TensorMethodValue, TensorValue
from fusewright.fake import known_value
from fusewright.records import record

pure(
    type.__or__, type.__ror__, str.maketrans, bytes.maketrans, bytearray.maketrans,
    abs, ascii, bin, bool, bytes, chr, complex, divmod, float, format, hash, hex, int, len, max,
    min, oct, ord, pow,
    range, repr, round, sorted, str, sum, frozenset,
)  # fmt: skip


# -- attributes -----------------------------------------------------------------------------------


@handles(getattr)
def get_attribute(
    machine: Machine, owner: Value, name: Value, default: Value | None = None
) -> Value:
    if not isinstance(name.constant(), str):
        raise_as(machine, getattr, owner, name)
    if default is None:
        return machine.attribute(owner, name.constant())
    attribute = machine.attribute_or_none(owner, name.constant())
    return default if attribute is None else attribute


@handles(hasattr)
def has_attribute(machine: Machine, owner: Value, name: Value) -> Value:
    if not isinstance(name, ConstantValue) or not isinstance(name.value, str):
        raise_as(machine, hasattr, owner, name)
    return boolean(machine.attribute_or_none(owner, name.constant()) is not None)


@handles(setattr)
def set_attribute(machine: Machine, owner: Value, name: Value, value: Value) -> None:
    machine.set_attribute(owner, name.constant(), value)


@handles(delattr)
def delete_attribute(machine: Machine, owner: Value, name: Value) -> None:
    owner.delete_attribute(machine, name.constant())


@handles(object.__getattribute__)
def object_get_attribute(machine: Machine, owner: Value, name: Value) -> Value:
    if isinstance(owner, ObjectValue):
        return owner.generic_attribute(machine, name.constant())
    return owner.get_attribute(machine, name.constant())


@handles(object.__setattr__)
def object_set_attribute(machine: Machine, owner: Value, name: Value, value: Value) -> Any:
    if not isinstance(owner, ObjectValue):
        return DECLINED
    owner.generic_set(machine, name.constant(), value)
    return None


@handles(type.__setattr__)
def class_set_attribute(machine: Machine, owner: ClassValue, name: Value, value: Value) -> None:
    owner.generic_set(machine, name.constant(), value)


@handles(object.__delattr__)
def object_delete_attribute(machine: Machine, owner: Value, name: Value) -> Any:
    if not isinstance(owner, ObjectValue):
        return DECLINED
    owner.generic_delete(machine, name.constant())
    return None


@handles(vars)
def variables(machine: Machine, owner: Value | None = None) -> Value:
    if owner is None:
        return local_variables(machine)
    dictionary = machine.attribute_or_none(owner, "__dict__")
    if dictionary is None:
        raise_as(machine, vars, owner)
    return dictionary


@handles(locals)
def local_variables(machine: Machine) -> Value:
    """A dict of the calling frame's variables as they are now."""
    frame = machine.frames[-1]
    cells = {name: cell.load(machine) for name, cell in frame.cells.items()}
    variables = {name: frame.locals.get(name) for name in frame.code.co_varnames} | cells
    return machine.new_dict({n: v for n, v in variables.items() if isinstance(v, Value)})


@handles(globals)
def global_variables(machine: Machine) -> Value:
    return GlobalsValue(machine.frames[-1].namespace)


@handles(dir)
def directory(machine: Machine, owner: Value) -> Value:
    """The names of a class or module, which are asked for real, or of an object whose class says
    nothing of its own about them.
    """
    real = owner.real() if isinstance(owner, ClassValue | PythonModuleValue) else MISSING
    names = set(dir(owner.python_type() if real is MISSING else real))
    if real is MISSING:
        if overrides_object(owner.python_type(), "__dir__"):
            return machine.call_object(
                sorted, None, [machine.call_special(owner, "__dir__", [])], {}
            )
        own = machine.attribute_or_none(owner, "__dict__")
        names |= {name.constant() for name in machine.items(own)} if own is not None else set()
    return machine.new(sorted(names))


@handles(callable)
def is_callable(machine: Machine, value: Value) -> Value:
    if isinstance(
        value, TensorMethodValue | FunctionValue | MethodValue | BuiltinValue | ClassValue
    ):
        return boolean(True)
    return boolean(machine.special(value, "__call__") is not None)


# -- classes --------------------------------------------------------------------------------------


@handles(type)
def type_of(machine: Machine, value: Value, /, *rest: Value, **keywords: Value) -> Value:
    if rest:
        return machine.call_object(type.__new__, None, [ClassValue(type), value, *rest], keywords)
    cls = value.python_type()
    if value.source is not None and isinstance(value, ObjectValue):
        return machine.wrap(cls, ConstantSource(cls))
    return ClassValue(cls, ConstantSource(cls))


@handles(type.__call__)
def construct(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    return machine.construct(cls.constant(), list(arguments), keywords)


def _classes(machine: Machine, value: Value) -> Any:
    """The second argument of `isinstance`: classes, tuples of them, unions, and generic types,
    which are guarded to be these very objects. Raises NotConstant.
    """
    if isinstance(value, TupleValue):
        return tuple(_classes(machine, item) for item in value.items(machine))
    real = value.real()
    if real is MISSING:
        raise NotConstant(value)
    if isinstance(value, ObjectValue) and value.source is not None:
        machine.guard(GuardKind.IDENTITY, value.source, real)
    return real


@handles(type.__instancecheck__)
def is_plain_instance(machine: Machine, cls: Value, value: Value) -> Value:
    return boolean(issubclass(value.python_type(), cls.constant()))


@handles(isinstance)
def is_instance(machine: Machine, value: Value, classes: Value) -> Value:
    try:
        kinds = _classes(machine, classes)
    except NotConstant:
        raise_as(machine, isinstance, ConstantValue(None), classes)
    try:
        return boolean(any(_is_one(machine, value, kind) for kind in _flat(kinds)))
    except TypeError:
        _refuse(machine, isinstance, None, kinds)


@handles(issubclass)
def is_subclass(machine: Machine, cls: Value, classes: Value) -> Value:
    try:
        subclass, kinds = cls.constant(), _classes(machine, classes)
    except NotConstant:
        raise_as(machine, issubclass, cls, classes)
    try:
        return boolean(any(_is_below(machine, cls, kind) for kind in _flat(kinds)))
    except TypeError:
        _refuse(machine, issubclass, subclass, kinds)


def _refuse(machine: Machine, function: Any, operand: Any, kinds: Any) -> NoReturn:
    """Raise Python's error for an operand that is not a class. Whether an object fits a protocol
    with data members depends on the object, not on its class: that breaks the graph.
    """
    try:
        function(operand, kinds)
    except TypeError as error:
        raise_real(machine, error)
    name = f"{function.__name__}(…, {kinds})"
    raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function=name)


def _flat(classes: Any) -> Iterator[Any]:
    if isinstance(classes, tuple):
        for part in classes:
            yield from _flat(part)
    elif typing.get_origin(classes) in (types.UnionType, typing.Union):
        yield from typing.get_args(classes)
    else:
        yield classes


def _is_one(machine: Machine, value: Value, kind: Any) -> bool:
    if _asks_user(machine, kind, "__instancecheck__"):
        answer = machine.call_special(machine.new(kind), "__instancecheck__", [value])
        return machine.truth(answer)
    _guard_registered(machine, value.python_type(), kind)
    if isinstance(value, ConstantValue) and not isinstance(value, SymbolicValue):
        return isinstance(value.value, kind)
    if isinstance(value, TensorValue):
        fake = value.fake  # of which the dtype decides, for `torch.FloatTensor`
        return isinstance(fake if value.object is MISSING else value.object, kind)
    return issubclass(value.python_type(), kind)


def _is_below(machine: Machine, cls: Value, kind: Any) -> bool:
    if _asks_user(machine, kind, "__subclasscheck__"):
        answer = machine.call_special(machine.new(kind), "__subclasscheck__", [cls])
        return machine.truth(answer)
    _guard_registered(machine, cls.constant(), kind)
    return issubclass(cls.constant(), kind)


def _asks_user(machine: Machine, kind: Any, name: str) -> bool:
    """Whether the answer is that of a method that the user wrote in a metaclass; guarded."""
    if type(kind) is type or not isinstance(kind, type):
        return False
    check, _ = machine.class_attribute(type(kind), name)
    if not isinstance(check, types.FunctionType):
        return False
    return check.__module__.partition(".")[0] not in ("abc", "typing", "enum", "torch")


def _guard_registered(machine: Machine, cls: type, kind: Any) -> None:
    """Guard which abstract class a class is counted to without deriving from it: `register` and
    new methods change that.
    """
    abstract = typing.get_origin(kind) or kind
    if not isinstance(abstract, abc.ABCMeta) or abstract in cls.__mro__:
        return
    if machine.classes.made(cls) is not None or machine.classes.made(abstract) is not None:
        return
    ask = _Registration(weakref.ref(cls), weakref.ref(abstract))
    try:
        answer = ask()
    except TypeError:
        return  # a protocol with data asks the object instead
    source = StateSource(f"issubclass({cls.__name__}, {abstract.__name__})", ask)
    machine.guard(GuardKind.EQUALS, source, answer)


@record(slots=False)
class _Registration:
    """Asks whether a class counts as a subclass of an abstract one. Keeps neither alive."""

    cls: weakref.ref[type]
    abstract: weakref.ref[abc.ABCMeta]

    def __call__(self) -> bool:
        cls, abstract = self.cls(), self.abstract()
        return cls is not None and abstract is not None and issubclass(cls, abstract)


@handles(super)
def super_of(machine: Machine, cls: Value | None = None, instance: Value | None = None) -> Value:
    if cls is None or instance is None:
        cls, instance = _super_arguments(machine)
    after = cls.constant()
    is_class = isinstance(instance, ClassValue) and issubclass(instance.cls, after)
    if not is_class and not issubclass(instance.python_type(), after):
        evaluate(machine, super, after, bare(instance))
    return SuperValue(after, instance)


def _super_arguments(machine: Machine) -> tuple[Value, Value]:
    """The class that the running method is written in, and the method's first argument."""
    frame = machine.frames[-1]
    if not frame.code.co_argcount:
        machine.raise_error(RuntimeError, "super(): no arguments")
    first = frame.code.co_varnames[0]
    is_cell = first in frame.code.co_cellvars
    instance = frame.cells[first].load(machine) if is_cell else frame.locals.get(first)
    if instance is None:
        machine.raise_error(RuntimeError, "super(): arg[0] deleted")
    cell = frame.cells.get("__class__")
    if cell is None:
        machine.raise_error(RuntimeError, "super(): __class__ cell not found")
    cls = cell.load(machine)
    if cls is None:
        machine.raise_error(RuntimeError, "super(): empty __class__ cell")
    return cls, instance


@handles(object.__new__)
def new_object(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    kind = cls.constant()
    if (arguments or keywords) and kind.__new__ is not object.__new__:
        text = "object.__new__() takes exactly one argument (the type to instantiate)"
        machine.raise_error(TypeError, text)
    if (arguments or keywords) and kind.__init__ is object.__init__:
        machine.raise_error(TypeError, f"{kind.__name__}() takes no arguments")
    if inspect.isabstract(kind):
        try:
            object.__new__(kind)
        except TypeError as error:
            raise_real(machine, error)
    return ObjectValue(kind)


def _new_primitive(base: type) -> Any:
    def make(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
        plain = run_for_real(machine, base, arguments, keywords)
        kind = cls.constant()
        return plain if kind is base else PrimitiveValue(kind, plain.constant())

    return make


for _class in (str, bytes, int, float, complex):
    handles(_class.__new__)(_new_primitive(_class))


@handles(types.FunctionType.__get__)
def bind_function(
    machine: Machine, function: Value, instance: Value, owner: Value | None = None
) -> Value:
    return function if is_none(instance) else MethodValue(function, instance)


@handles(property.__get__, classmethod.__get__, staticmethod.__get__)
def bind_descriptor(
    machine: Machine, descriptor: Value, instance: Value, owner: Value | None = None
) -> Value:
    cls = instance.python_type() if owner is None else owner.constant()
    return machine.bind(
        descriptor.real(), descriptor.source, None if is_none(instance) else instance, cls
    )


@handles(sys.exception)
def handled_exception(machine: Machine) -> Value:
    """The exception that the innermost frame which handles any is handling."""
    handling = (frame.handled for frame in reversed(machine.frames))
    innermost = next((exception for exception in handling if exception is not None), None)
    return handled_by_callers(machine) if innermost is None else innermost


@handles(sys.exc_info)
def exception_information(machine: Machine) -> Value:
    value = handled_exception(machine)
    if isinstance(value, ConstantValue):  # None
        return machine.new((None, None, None))
    cls = value.python_type()
    traceback = machine.attribute(value, "__traceback__")
    return machine.new_tuple([ClassValue(cls, ConstantSource(cls)), value, traceback])


@handles(object.__init__)
def init_object(machine: Machine, /, *arguments: Value, **keywords: Value) -> None:
    return None


@handles(object.__init_subclass__)
def init_subclass(machine: Machine, /, *arguments: Value, **keywords: Value) -> None:
    return None


@handles(*(getattr(object, name) for name in ("__lt__", "__le__", "__gt__", "__ge__")))
def object_order(machine: Machine, left: Value, right: Value) -> Value:
    return ConstantValue(NotImplemented)


@handles(object.__eq__)
def object_equal(machine: Machine, left: Value, right: Value) -> Value:
    return boolean(True) if machine.identical(left, right) else ConstantValue(NotImplemented)


@handles(object.__ne__)
def object_not_equal(machine: Machine, left: Value, right: Value) -> Value:
    equal = machine.call_special(left, "__eq__", [right])
    if type(equal) is ConstantValue and equal.value is NotImplemented:
        return equal
    return boolean(not machine.truth(equal))


@handles(BaseException.__new__)
def new_exception(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    return ExceptionValue(cls.constant(), arguments)


@handles(BaseException.__init__)
def init_exception(
    machine: Machine, instance: Value, /, *arguments: Value, **keywords: Value
) -> None:
    if isinstance(instance, ExceptionValue):
        instance.arguments = list(arguments)
        for name, value in keywords.items():
            instance.store(machine, name, value)


def _exception_text(owner: type[BaseException]) -> Any:
    """`__str__` of a built-in exception: asked of a real one with the same arguments."""

    def text(machine: Machine, instance: ExceptionValue) -> Value:
        function = lambda *arguments: owner.__str__(owner(*arguments))  # noqa: E731
        return run_for_real(machine, function, instance.arguments, {})

    return text


@handles(BaseException.with_traceback)
def with_traceback(machine: Machine, instance: Value, traceback: Value) -> Value:
    return instance


for _exception in vars(builtins).values():
    if isinstance(_exception, type) and issubclass(_exception, BaseException):
        for _name, _handler in (("__new__", new_exception), ("__init__", init_exception)):
            if _name in vars(_exception):
                handles(getattr(_exception, _name))(_handler)
        if "__str__" in vars(_exception):
            handles(_exception.__str__)(_exception_text(_exception))


# -- text -----------------------------------------------------------------------------------------


@handles(str)
def to_string(
    machine: Machine, /, value: Value | None = None, *rest: Value, **keywords: Value
) -> Any:
    if value is None or rest or keywords:
        return DECLINED
    return _text(machine, value, "__str__", str)


@handles(repr)
def representation(machine: Machine, value: Value) -> Any:
    return _text(machine, value, "__repr__", repr)


def _text(machine: Machine, value: Value, name: str, function: Any) -> Any:
    machine.read_all([value])
    try:
        return ConstantValue(function(value.to_python()))
    except NotConstant:
        pass
    method, _ = machine.class_attribute(value.python_type(), name)
    meaning = meaning_of(method)
    if isinstance(method, types.FunctionType) or meaning.handler or meaning.polyfill:
        return machine.call_special(value, name, [])
    if name == "__str__":
        return _text(machine, value, "__repr__", repr)
    raise machine.unsupported(
        reasons.TENSOR_TO_UNKNOWN, function=function.__name__, argument=value.describe()
    )


@handles(format)
def format_value(machine: Machine, value: Value, specification: Value | None = None) -> Any:
    text = "" if specification is None else specification.constant()
    if isinstance(value, TensorValue):
        if value.fake.dim() == 0 and known_value(value.fake) is not None:
            number = machine.call_tensor_method(value, "item", [], {})
            return ConstantValue(format(number.constant(), text))
        return machine.call_tensor_method(value, "__format__", [ConstantValue(text)], {})
    if isinstance(value, ConstantValue):
        return DECLINED
    method, _ = machine.class_attribute(value.python_type(), "__format__")
    if method is object.__format__ and not text:
        return to_string(machine, value)
    return machine.call_special(value, "__format__", [ConstantValue(text)])


# -- sizes, iteration -----------------------------------------------------------------------------


@handles(len)
def length(machine: Machine, value: Value) -> Value:
    if isinstance(value, TensorValue) and value.fake.dim():
        return machine.new(value.fake.shape[0])
    return ConstantValue(machine.length(value))


@handles(bool)
def to_bool(machine: Machine, value: Value | None = None) -> Value:
    return boolean(value is not None and machine.truth(value))


def _to_number(cls: type) -> Callable[..., Any]:
    def to_number(
        machine: Machine, /, value: Value | None = None, *rest: Value, **keywords: Value
    ) -> Any:
        if not isinstance(value, TensorValue):
            return DECLINED
        number = machine.call_tensor_method(value, "item", [], {})
        return machine.call(machine.new(cls), [number, *rest], keywords)

    return to_number


for _class in (int, float, complex):
    handles(_class)(_to_number(_class))


@handles(abs)
def absolute(machine: Machine, value: Value) -> Value:
    return machine.unary("abs", value)


@handles(hash)
def hash_of(machine: Machine, value: Value) -> Any:
    if isinstance(value, ObjectValue) and isinstance(value.cls.__hash__, types.FunctionType):
        return machine.call_special(value, "__hash__", [])
    machine.hash_key(value)
    return DECLINED


@handles(types.MethodType)
def bind_method(machine: Machine, function: Value, instance: Value) -> Value:
    return MethodValue(function, instance)


@handles(slice)
def new_slice(machine: Machine, *parts: Value) -> Value:
    none = ConstantValue(None)
    match parts:
        case (stop,):
            return SliceValue(none, stop, none)
        case (start, stop):
            return SliceValue(start, stop, none)
        case (start, stop, step):
            return SliceValue(start, stop, step)
    machine.raise_error(TypeError, f"slice expected 1 to 3 arguments, got {len(parts)}")


@handles(id)
def identity(machine: Machine, value: Value) -> Value:
    return IdentityValue(value)
