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
from fusewright.capture.interpreter.stand_ins import raise_as, raise_real, run_for_real
from fusewright.capture.sources import ConstantSource, StateSource
from fusewright.capture.values.base import (
    MISSING,
    Interpreter,
    NotConstant,
    Value,
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
    interpreter: Interpreter, owner: Value, name: Value, default: Value | None = None
) -> Value:
    if not isinstance(name.constant(), str):
        raise_as(interpreter, getattr, owner, name)
    if default is None:
        return interpreter.attribute(owner, name.constant())
    attribute = interpreter.attribute_or_none(owner, name.constant())
    return default if attribute is None else attribute


@handles(hasattr)
def has_attribute(interpreter: Interpreter, owner: Value, name: Value) -> Value:
    if not isinstance(name, ConstantValue) or not isinstance(name.value, str):
        raise_as(interpreter, hasattr, owner, name)
    return boolean(interpreter.attribute_or_none(owner, name.constant()) is not None)


@handles(setattr)
def set_attribute(interpreter: Interpreter, owner: Value, name: Value, value: Value) -> None:
    interpreter.set_attribute(owner, name.constant(), value)


@handles(delattr)
def delete_attribute(interpreter: Interpreter, owner: Value, name: Value) -> None:
    owner.delete_attribute(interpreter, name.constant())


@handles(object.__getattribute__)
def object_get_attribute(interpreter: Interpreter, owner: Value, name: Value) -> Value:
    if isinstance(owner, ObjectValue):
        return owner.generic_attribute(interpreter, name.constant())
    return owner.get_attribute(interpreter, name.constant())


@handles(object.__setattr__)
def object_set_attribute(interpreter: Interpreter, owner: Value, name: Value, value: Value) -> Any:
    if not isinstance(owner, ObjectValue):
        return DECLINED
    owner.generic_set(interpreter, name.constant(), value)
    return None


@handles(type.__setattr__)
def class_set_attribute(
    interpreter: Interpreter, owner: ClassValue, name: Value, value: Value
) -> None:
    owner.generic_set(interpreter, name.constant(), value)


@handles(object.__delattr__)
def object_delete_attribute(interpreter: Interpreter, owner: Value, name: Value) -> Any:
    if not isinstance(owner, ObjectValue):
        return DECLINED
    owner.generic_delete(interpreter, name.constant())
    return None


@handles(vars)
def variables(interpreter: Interpreter, owner: Value | None = None) -> Value:
    if owner is None:
        return local_variables(interpreter)
    dictionary = interpreter.attribute_or_none(owner, "__dict__")
    if dictionary is None:
        raise_as(interpreter, vars, owner)
    return dictionary


@handles(locals)
def local_variables(interpreter: Interpreter) -> Value:
    """A dict of the calling frame's variables as they are now."""
    frame = interpreter.frames[-1]
    cells = {name: cell.load(interpreter) for name, cell in frame.cells.items()}
    variables = {name: frame.locals.get(name) for name in frame.code.co_varnames} | cells
    return interpreter.new_dict({n: v for n, v in variables.items() if isinstance(v, Value)})


@handles(globals)
def global_variables(interpreter: Interpreter) -> Value:
    return GlobalsValue(interpreter.frames[-1].namespace)


@handles(dir)
def directory(interpreter: Interpreter, owner: Value) -> Value:
    """The names of a class or module, which are asked for real, or of an object whose class says
    nothing of its own about them.
    """
    real = owner.real() if isinstance(owner, ClassValue | PythonModuleValue) else MISSING
    names = set(dir(owner.python_type() if real is MISSING else real))
    if real is MISSING:
        if overrides_object(owner.python_type(), "__dir__"):
            return interpreter.call_object(
                sorted, None, [interpreter.call_special(owner, "__dir__", [])], {}
            )
        own = interpreter.attribute_or_none(owner, "__dict__")
        names |= {name.constant() for name in interpreter.items(own)} if own is not None else set()
    return interpreter.new(sorted(names))


@handles(callable)
def is_callable(interpreter: Interpreter, value: Value) -> Value:
    if isinstance(
        value, TensorMethodValue | FunctionValue | MethodValue | BuiltinValue | ClassValue
    ):
        return boolean(True)
    return boolean(interpreter.special(value, "__call__") is not None)


# -- classes --------------------------------------------------------------------------------------


@handles(type)
def type_of(interpreter: Interpreter, value: Value, *rest: Value, **keywords: Value) -> Value:
    if rest:
        return interpreter.call_object(
            type.__new__, None, [ClassValue(type), value, *rest], keywords
        )
    cls = value.python_type()
    if value.source is not None and isinstance(value, ObjectValue):
        return interpreter.wrap(cls, ConstantSource(cls))
    return ClassValue(cls, ConstantSource(cls))


@handles(type.__call__)
def construct(interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value) -> Value:
    return interpreter.construct(cls.constant(), list(arguments), keywords)


def _classes(interpreter: Interpreter, value: Value) -> Any:
    """What stands as the second argument of `isinstance`: classes, tuples of them, unions, and
    generic types, which are guarded to be these very objects. Raises NotConstant.
    """
    if isinstance(value, TupleValue):
        return tuple(_classes(interpreter, item) for item in value.items(interpreter))
    real = value.real()
    if real is MISSING:
        raise NotConstant(value)
    if isinstance(value, ObjectValue) and value.source is not None:
        interpreter.guard(GuardKind.IDENTITY, value.source, real)
    return real


@handles(type.__instancecheck__)
def is_plain_instance(interpreter: Interpreter, cls: Value, value: Value) -> Value:
    return boolean(issubclass(value.python_type(), cls.constant()))


@handles(isinstance)
def is_instance(interpreter: Interpreter, value: Value, classes: Value) -> Value:
    try:
        wanted = _classes(interpreter, classes)
    except NotConstant:
        raise_as(interpreter, isinstance, ConstantValue(None), classes)
    try:
        return boolean(any(_is_one(interpreter, value, kind) for kind in _flat(wanted)))
    except TypeError:
        _refuse(interpreter, isinstance, None, wanted)


@handles(issubclass)
def is_subclass(interpreter: Interpreter, cls: Value, classes: Value) -> Value:
    try:
        known, wanted = cls.constant(), _classes(interpreter, classes)
    except NotConstant:
        raise_as(interpreter, issubclass, cls, classes)
    try:
        return boolean(any(_is_below(interpreter, cls, kind) for kind in _flat(wanted)))
    except TypeError:
        _refuse(interpreter, issubclass, known, wanted)


def _refuse(interpreter: Interpreter, function: Any, known: Any, wanted: Any) -> NoReturn:
    """Raise what Python says of something that is no class. What a protocol with data says of an
    object is known of the object alone.
    """
    try:
        function(known, wanted)
    except TypeError as error:
        raise_real(interpreter, error)
    name = f"{function.__name__}(…, {wanted})"
    raise interpreter.unsupported(reasons.UNKNOWN_CALLABLE, function=name)


def _flat(classes: Any) -> Iterator[Any]:
    if isinstance(classes, tuple):
        for part in classes:
            yield from _flat(part)
    elif typing.get_origin(classes) in (types.UnionType, typing.Union):
        yield from typing.get_args(classes)
    else:
        yield classes


def _is_one(interpreter: Interpreter, value: Value, wanted: Any) -> bool:
    if _asks_user(interpreter, wanted, "__instancecheck__"):
        answer = interpreter.call_special(interpreter.new(wanted), "__instancecheck__", [value])
        return interpreter.truth(answer)
    _guard_registered(interpreter, value.python_type(), wanted)
    if isinstance(value, ConstantValue) and not isinstance(value, SymbolicValue):
        return isinstance(value.value, wanted)
    if isinstance(value, TensorValue):
        fake = value.fake  # of which the dtype decides, for `torch.FloatTensor`
        return isinstance(fake if value.object is MISSING else value.object, wanted)
    return issubclass(value.python_type(), wanted)


def _is_below(interpreter: Interpreter, cls: Value, wanted: Any) -> bool:
    if _asks_user(interpreter, wanted, "__subclasscheck__"):
        answer = interpreter.call_special(interpreter.new(wanted), "__subclasscheck__", [cls])
        return interpreter.truth(answer)
    _guard_registered(interpreter, cls.constant(), wanted)
    return issubclass(cls.constant(), wanted)


def _asks_user(interpreter: Interpreter, wanted: Any, name: str) -> bool:
    """Whether the answer is that of a method that the user wrote in a metaclass; guarded."""
    if type(wanted) is type or not isinstance(wanted, type):
        return False
    check, _ = interpreter.class_attribute(type(wanted), name)
    if not isinstance(check, types.FunctionType):
        return False
    return check.__module__.partition(".")[0] not in ("abc", "typing", "enum", "torch")


def _guard_registered(interpreter: Interpreter, cls: type, wanted: Any) -> None:
    """Guard which abstract class a class is counted to without deriving from it: `register` and
    new methods change that.
    """
    abstract = typing.get_origin(wanted) or wanted
    if not isinstance(abstract, abc.ABCMeta) or abstract in cls.__mro__:
        return
    if interpreter.classes.made(cls) is not None or interpreter.classes.made(abstract) is not None:
        return
    ask = _Registration(weakref.ref(cls), weakref.ref(abstract))
    try:
        answer = ask()
    except TypeError:
        return  # a protocol with data asks the object instead
    source = StateSource(f"issubclass({cls.__name__}, {abstract.__name__})", ask)
    interpreter.guard(GuardKind.EQUALS, source, answer)


@record(slots=False)
class _Registration:
    """Asks whether a class counts as a subclass of an abstract one. Keeps neither alive."""

    cls: weakref.ref[type]
    abstract: weakref.ref[abc.ABCMeta]

    def __call__(self) -> bool:
        cls, abstract = self.cls(), self.abstract()
        return cls is not None and abstract is not None and issubclass(cls, abstract)


@handles(super)
def super_of(
    interpreter: Interpreter, cls: Value | None = None, instance: Value | None = None
) -> Value:
    if cls is None or instance is None:
        frame = interpreter.frames[-1]
        cell = frame.cells.get("__class__")
        cls = cell.load(interpreter) if cell is not None else None
        first = frame.code.co_varnames[0]
        instance = frame.locals.get(first)
        if first in frame.code.co_cellvars:
            instance = frame.cells[first].load(interpreter)
        if cls is None or instance is None:
            interpreter.raise_error(RuntimeError, "super(): no arguments")
    return SuperValue(cls.constant(), instance)


@handles(object.__new__)
def new_object(interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value) -> Value:
    kind = cls.constant()
    if (arguments or keywords) and kind.__new__ is not object.__new__:
        text = "object.__new__() takes exactly one argument (the type to instantiate)"
        interpreter.raise_error(TypeError, text)
    if (arguments or keywords) and kind.__init__ is object.__init__:
        interpreter.raise_error(TypeError, f"{kind.__name__}() takes no arguments")
    if inspect.isabstract(kind):
        try:
            object.__new__(kind)
        except TypeError as error:
            raise_real(interpreter, error)
    return ObjectValue(kind)


def _new_primitive(base: type) -> Any:
    def make(interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value) -> Value:
        plain = run_for_real(interpreter, base, arguments, keywords)
        kind = cls.constant()
        return plain if kind is base else PrimitiveValue(kind, plain.constant())

    return make


for _class in (str, bytes, int, float, complex):
    handles(_class.__new__)(_new_primitive(_class))


@handles(types.FunctionType.__get__)
def bind_function(
    interpreter: Interpreter, function: Value, instance: Value, owner: Value | None = None
) -> Value:
    return function if is_none(instance) else MethodValue(function, instance)


@handles(property.__get__, classmethod.__get__, staticmethod.__get__)
def bind_descriptor(
    interpreter: Interpreter, descriptor: Value, instance: Value, owner: Value | None = None
) -> Value:
    cls = instance.python_type() if owner is None else owner.constant()
    return interpreter.bind(
        descriptor.real(), descriptor.source, None if is_none(instance) else instance, cls
    )


@handles(sys.exception)
def handled_exception(interpreter: Interpreter) -> Value:
    """The exception that the innermost frame which handles any is handling."""
    handling = (frame.handled for frame in reversed(interpreter.frames))
    innermost = next((exception for exception in handling if exception is not None), None)
    return handled_by_callers(interpreter) if innermost is None else innermost


@handles(sys.exc_info)
def exception_information(interpreter: Interpreter) -> Value:
    value = handled_exception(interpreter)
    if isinstance(value, ConstantValue):  # None
        return interpreter.new((None, None, None))
    cls = value.python_type()
    traceback = interpreter.attribute(value, "__traceback__")
    return interpreter.new_tuple([ClassValue(cls, ConstantSource(cls)), value, traceback])


@handles(object.__init__)
def init_object(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> None:
    return None


@handles(object.__init_subclass__)
def init_subclass(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> None:
    return None


@handles(*(getattr(object, name) for name in ("__lt__", "__le__", "__gt__", "__ge__")))
def object_order(interpreter: Interpreter, left: Value, right: Value) -> Value:
    return ConstantValue(NotImplemented)


@handles(object.__eq__)
def object_equal(interpreter: Interpreter, left: Value, right: Value) -> Value:
    return boolean(True) if interpreter.identical(left, right) else ConstantValue(NotImplemented)


@handles(object.__ne__)
def object_not_equal(interpreter: Interpreter, left: Value, right: Value) -> Value:
    equal = interpreter.call_special(left, "__eq__", [right])
    if type(equal) is ConstantValue and equal.value is NotImplemented:
        return equal
    return boolean(not interpreter.truth(equal))


@handles(BaseException.__new__)
def new_exception(
    interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value
) -> Value:
    return ExceptionValue(cls.constant(), arguments)


@handles(BaseException.__init__)
def init_exception(
    interpreter: Interpreter, instance: Value, *arguments: Value, **keywords: Value
) -> None:
    if isinstance(instance, ExceptionValue):
        instance.arguments = list(arguments)
        for name, value in keywords.items():
            instance.store(interpreter, name, value)


def _exception_text(owner: type[BaseException]) -> Any:
    """`__str__` of a built-in exception: asked of a real one with the same arguments."""

    def text(interpreter: Interpreter, instance: ExceptionValue) -> Value:
        function = lambda *arguments: owner.__str__(owner(*arguments))  # noqa: E731
        return run_for_real(interpreter, function, instance.arguments, {})

    return text


@handles(BaseException.with_traceback)
def with_traceback(interpreter: Interpreter, instance: Value, traceback: Value) -> Value:
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
    interpreter: Interpreter, value: Value | None = None, *rest: Value, **keywords: Value
) -> Any:
    if value is None or rest or keywords:
        return DECLINED
    return _text(interpreter, value, "__str__", str)


@handles(repr)
def representation(interpreter: Interpreter, value: Value) -> Any:
    return _text(interpreter, value, "__repr__", repr)


def _text(interpreter: Interpreter, value: Value, name: str, function: Any) -> Any:
    interpreter.read_all([value])
    try:
        return ConstantValue(function(value.to_python()))
    except NotConstant:
        pass
    method, _ = interpreter.class_attribute(value.python_type(), name)
    meaning = meaning_of(method)
    if isinstance(method, types.FunctionType) or meaning.handler or meaning.polyfill:
        return interpreter.call_special(value, name, [])
    if name == "__str__":
        return _text(interpreter, value, "__repr__", repr)
    raise interpreter.unsupported(
        reasons.TENSOR_TO_UNKNOWN, function=function.__name__, argument=value.describe()
    )


@handles(format)
def format_value(interpreter: Interpreter, value: Value, specification: Value | None = None) -> Any:
    text = "" if specification is None else specification.constant()
    if isinstance(value, TensorValue):
        if value.fake.dim() == 0 and getattr(value.fake, "constant", None) is not None:
            number = interpreter.call_tensor_method(value, "item", [], {})
            return ConstantValue(format(number.constant(), text))
        return interpreter.call_tensor_method(value, "__format__", [ConstantValue(text)], {})
    if isinstance(value, ConstantValue):
        return DECLINED
    method, _ = interpreter.class_attribute(value.python_type(), "__format__")
    if method is object.__format__ and not text:
        return to_string(interpreter, value)
    return interpreter.call_special(value, "__format__", [ConstantValue(text)])


# -- sizes, iteration -----------------------------------------------------------------------------


@handles(len)
def length(interpreter: Interpreter, value: Value) -> Value:
    if isinstance(value, TensorValue) and value.fake.dim():
        return interpreter.new(value.fake.shape[0])
    return ConstantValue(interpreter.length(value))


@handles(bool)
def to_bool(interpreter: Interpreter, value: Value | None = None) -> Value:
    return boolean(value is not None and interpreter.truth(value))


def _to_number(cls: type) -> Callable[..., Any]:
    def to_number(
        interpreter: Interpreter, value: Value | None = None, *rest: Value, **keywords: Value
    ) -> Any:
        if not isinstance(value, TensorValue):
            return DECLINED
        number = interpreter.call_tensor_method(value, "item", [], {})
        return interpreter.call(interpreter.new(cls), [number, *rest], keywords)

    return to_number


for _class in (int, float, complex):
    handles(_class)(_to_number(_class))


@handles(abs)
def absolute(interpreter: Interpreter, value: Value) -> Value:
    return interpreter.unary("abs", value)


@handles(hash)
def hash_of(interpreter: Interpreter, value: Value) -> Any:
    if isinstance(value, ObjectValue) and isinstance(value.cls.__hash__, types.FunctionType):
        return interpreter.call_special(value, "__hash__", [])
    interpreter.hash_key(value)
    return DECLINED


@handles(types.MethodType)
def bind_method(interpreter: Interpreter, function: Value, instance: Value) -> Value:
    return MethodValue(function, instance)


@handles(slice)
def new_slice(interpreter: Interpreter, *parts: Value) -> Value:
    none = ConstantValue(None)
    match parts:
        case (stop,):
            return SliceValue(none, stop, none)
        case (start, stop):
            return SliceValue(start, stop, none)
        case (start, stop, step):
            return SliceValue(start, stop, step)
    interpreter.raise_error(TypeError, f"slice expected 1 to 3 arguments, got {len(parts)}")


@handles(id)
def identity(interpreter: Interpreter, value: Value) -> Value:
    return IdentityValue(value)
