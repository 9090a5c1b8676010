"""Functions written in C, run for real on stand-ins: objects that ask the interpreter.

`list.sort`, `deque.rotate`, `heapq.heappush`, `"%s" % …` move objects about and ask of them only
what their special methods answer. So a call of one needs no description of what it does: its
containers are built of the constants that they hold and of a stand-in for everything else, and the
function itself runs on them.

    values [3, a, 1] with `a` an object of class Rank      list.sort(values)
    real   [3, <Rank a>, 1]                                 compares: <Rank a> < 3, …

The class of a stand-in has the name of the value's class and those of the special methods that the
class has; each asks the interpreter, which inlines what the user wrote. Order and number of
comparisons, errors and their texts are thus those of the CPython that runs.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import torch

from fusewright.capture import reasons
from fusewright.capture.values.base import (
    IMMUTABLE_TYPE,
    MISSING,
    Machine,
    NotConstant,
    TracedError,
    Value,
)
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import function_name
from fusewright.capture.values.iterators import IteratorValue
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.objects import ExceptionValue, PrimitiveValue
from fusewright.capture.values.sequences import (
    DequeValue,
    ListValue,
    SequenceValue,
    SliceValue,
    TupleValue,
)
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.views import DictViewValue
from fusewright.errors import Unsupported

CONTAINERS: Final = (
    torch.Size, list, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict, dict,
    collections.deque,
)  # fmt: skip
"""Classes written in C that hold the objects given to them."""


class StandIn:
    """An object in place of a value that is not a constant. Subclasses have special methods."""

    __slots__ = ("machine", "value")

    def __init__(self, machine: Machine, value: Value) -> None:
        self.machine = machine
        self.value = value

    def __getattr__(self, name: str) -> Any:
        attribute = self.machine.attribute_or_none(self.value, name)
        if attribute is None:
            raise AttributeError(name)
        return element(self.machine, attribute)


# -- what stand-ins answer ------------------------------------------------------------------------


def _ask(name: str) -> Callable[..., Any]:
    """A special method that calls the value's own."""

    def method(self: StandIn, *arguments: Any) -> Any:
        values = [value_of(self.machine, argument) for argument in arguments]
        return element(self.machine, self.machine.call_special(self.value, name, values))

    return method


def _ask_constant(name: str) -> Callable[..., Any]:
    """A special method whose answer C needs as a real object."""

    def method(self: StandIn, *arguments: Any) -> Any:
        values = [value_of(self.machine, argument) for argument in arguments]
        answer = self.machine.call_special(self.value, name, values)
        try:
            return answer.constant()
        except NotConstant:
            raise self.machine.unsupported(
                reasons.TENSOR_TO_UNKNOWN, function=name, argument=self.value.describe()
            ) from None

    return method


def _compare(symbol: str) -> Callable[..., Any]:
    def method(self: StandIn, other: Any) -> Any:
        right = value_of(self.machine, other)
        if symbol == "==" and self.machine.identical(self.value, right):
            return True
        return element(self.machine, self.machine.compare(symbol, self.value, right))

    return method


def _binary(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    def method(self: StandIn, other: Any) -> Any:
        operands = [self.value, value_of(self.machine, other)]
        left, right = reversed(operands) if reflected else operands
        return element(self.machine, self.machine.binary(name, left, right))

    return method


def _text(function: Callable[..., str]) -> Callable[..., str]:
    def method(self: StandIn, *arguments: Any) -> str:
        values = [value_of(self.machine, argument) for argument in arguments]
        call = self.machine.call_object(function, None, [self.value, *values], {})
        return str(call.constant())

    return method


def _iterate(self: StandIn) -> Iterator[Any]:
    iterator = self.machine.iterate(self.value)
    while (item := self.machine.next(iterator)) is not None:
        yield element(self.machine, item)


def _call(self: StandIn, *arguments: Any, **keywords: Any) -> Any:
    machine = self.machine
    values = [value_of(machine, argument) for argument in arguments]
    named = {name: value_of(machine, argument) for name, argument in keywords.items()}
    return element(machine, machine.call(self.value, values, named))


def _truth(self: StandIn) -> bool:
    return self.machine.truth(self.value)


def _hash(self: StandIn) -> int:
    self.machine.keys.note(self.value)
    try:
        return hash(self.value.key())
    except NotImplementedError:
        return int(self.machine.call_special(self.value, "__hash__", []).constant())
    except TypeError as error:
        self.machine.raise_error(TypeError, *error.args)


def _length(self: StandIn) -> int:
    return self.machine.length(self.value)


_ARITHMETIC: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")

ANSWERS: Final[dict[str, Any]] = {
    "__eq__": _compare("=="),
    "__ne__": _compare("!="),
    "__lt__": _compare("<"),
    "__le__": _compare("<="),
    "__gt__": _compare(">"),
    "__ge__": _compare(">="),
    **{f"__{name}__": _binary(name) for name in _ARITHMETIC},
    **{f"__r{name}__": _binary(name, reflected=True) for name in _ARITHMETIC},
    **{f"__i{name}__": _binary(f"i{name}") for name in _ARITHMETIC},
    "__str__": _text(str),
    "__repr__": _text(repr),
    "__format__": _text(format),
    "__iter__": _iterate,
    "__call__": _call,
    "__bool__": _truth,
    "__hash__": _hash,
    "__len__": _length,
    **{name: _ask_constant(name) for name in ("__index__", "__int__", "__float__", "__complex__")},
    **{name: _ask(name) for name in ("__getitem__", "__contains__", "__abs__", "__neg__")},
    **{name: _ask(name) for name in ("__round__", "__trunc__", "__floor__", "__ceil__")},
    **{name: _ask(name) for name in ("__divmod__", "__rdivmod__", "__copy__")},
    "__next__": _ask("__next__"),
}
"""Methods of stand-ins, by the name of the special method that each answers."""


@functools.lru_cache(maxsize=512)
def _stand_in_class(name: str, special: frozenset[str]) -> type[StandIn]:
    methods = {special_name: ANSWERS[special_name] for special_name in special}
    if "__hash__" not in special:
        methods["__hash__"] = None
    return type(name, (StandIn,), {"__slots__": (), **methods})


def _special_methods(machine: Machine, cls: type) -> frozenset[str]:
    """The special methods among `ANSWERS` that a class has; guarded, since a function in C looks
    for some and does something else without them.
    """
    if cls.__flags__ & IMMUTABLE_TYPE:
        return frozenset(name for name in ANSWERS if getattr(cls, name, None) is not None)
    methods = {name: machine.class_attribute(cls, name)[0] for name in ANSWERS}
    return frozenset(
        name for name, raw in methods.items() if raw is not MISSING and raw is not None
    )


# -- from values to objects and back --------------------------------------------------------------


def element(machine: Machine, value: Value) -> Any:
    """A value as an item of a real container: the constant, or a stand-in."""
    match value:
        case ConstantValue() if not isinstance(value, SymbolicValue):
            return value.value
        case ClassValue(cls=cls) if cls.__flags__ & IMMUTABLE_TYPE:
            return cls
        case SliceValue():
            return slice(*[element(machine, part) for part in value.parts()])
        case PrimitiveValue():
            base = type(value.content)
            return base.__new__(_subclass(machine, value, base), value.content)
    cls = value.python_type()
    return _stand_in_class(cls.__name__, _special_methods(machine, cls))(machine, value)


def _subclass(machine: Machine, value: Value, base: type) -> type:
    """A subclass of a class written in C, with the special methods that a user overrode."""
    cls = value.python_type()
    own = {}
    for name, answer in ANSWERS.items():
        raw, _ = machine.class_attribute(cls, name)
        if raw is not machine.class_attribute(base, name)[0]:
            own[name] = None if raw is None else answer
    return type(cls.__name__, (base,), {**own, "machine": machine, "value": value})


def value_of(machine: Machine, object: Any) -> Value:
    """The value of an object that C made, took out of a container or was given."""
    if isinstance(object, StandIn):
        return object.value
    value = vars(type(object)).get("value")
    if isinstance(value, Value):
        return value
    convert = functools.partial(value_of, machine)
    match object:
        case list():
            return ListValue(list, [convert(item) for item in object])
        case tuple():
            return TupleValue(type(object), [convert(item) for item in object])
        case set() | frozenset():
            return SetValue.of(machine, type(object), [convert(item) for item in object], object)
        case collections.deque():
            return DequeValue(type(object), [convert(i) for i in object], maximum=object.maxlen)
        case dict():
            result = DictValue(type(object))
            for key, item in object.items():
                result.put(machine, convert(key), convert(item))
            return result
        case Iterator():
            return _iterator(object)
    return machine.new(object)


def _iterator(real: Iterator[Any]) -> Value:
    def advance(machine: Machine) -> Value | None:
        for item in real:
            return value_of(machine, item)
        return None

    return IteratorValue(advance, type(real))


SET_READERS = {set, frozenset} | {
    vars(cls)[name]
    for cls in (set, frozenset)
    for name, method in vars(frozenset).items()
    if callable(method) and callable(vars(set).get(name))
}
"""Functions that change no set: the methods that frozensets have as well, and the constructors."""


class Mirror:
    """The arguments of one call as real objects, containers copied one level deep. A copy of a set
    may iterate in another order, so that sets of constants are given themselves.
    """

    def __init__(self, machine: Machine, function: Callable[..., Any]) -> None:
        self.machine = machine
        self._only_reads_sets = function in SET_READERS
        self._containers: list[tuple[Any, Value, list[Any]]] = []
        """Real container, its value, and its items before the call."""
        self._deques: list[tuple[DequeValue, Iterator[Any]]] = []
        """Deques, and an iterator over each one's real container, begun before the call."""
        self._constants: list[ConstantValue] = []

    def argument(self, value: Value) -> Any:
        """A value as an argument."""
        if isinstance(value, ConstantValue) and not isinstance(value, SymbolicValue):
            self._constants.append(value)
        if isinstance(value, DictViewValue):
            return getattr(self.argument(value.mapping), value.kind)()
        content = self._content(value)
        if content is None:
            return element(self.machine, value)
        for real, container, _ in self._containers:
            if container is value:
                return real
        if isinstance(value, SetValue):
            real = value.real_constants(to_change=not self._only_reads_sets)
            if real is not None:
                self._containers.append((real, value, list(real)))
                return real
        cls = value.python_type()
        base = _container_base(cls)
        real_class = cls if cls in CONTAINERS else _subclass(self.machine, value, base)
        if isinstance(value, DequeValue):
            real = real_class(content, value.maximum)
            self._deques.append((value, collections.deque.__iter__(real)))
        elif isinstance(value, DictValue) and base is collections.defaultdict:
            factory = value.default_factory
            real = real_class(None if factory is None else self.argument(factory), content)
        else:
            real = base.__new__(real_class, content)
            if base not in (tuple, frozenset):
                base.__init__(real, content)
        self._containers.append((real, value, list(content)))
        return real

    def _content(self, value: Value) -> Iterable[Any] | None:
        convert = functools.partial(element, self.machine)
        match value:
            case SequenceValue():
                return [convert(item) for item in value.items(self.machine)]
            case SetValue():
                return [convert(item) for item in value.in_order()]
            case DictValue() | InstanceDictValue():
                pairs = value.entries(self.machine)
                return {convert(key): convert(item) for key, item in pairs}
        return None

    def value(self, result: Any) -> Value:
        """The value of the function's result: one of its arguments, or something new."""
        for real, value, _ in self._containers:
            if real is result:
                return value
        for constant in self._constants:
            if constant.value is result:
                return constant
        return value_of(self.machine, result)

    def write_back(self) -> None:
        """Give the containers that the function changed their new content."""
        for deque, iterator in self._deques:
            try:
                next(iterator, None)
            except RuntimeError:
                deque.times_changed += 1
        for real, value, before in self._containers:
            if not isinstance(value, ListValue | SetValue | DequeValue):
                continue
            # A class's own `__iter__` and `__len__` are the program's, which does not call them.
            after = list(_container_base(type(real)).__iter__(real))
            same = len(after) == len(before) and all(map(_is_same, after, before))
            if not same:
                content = [self._item(item) for item in after]
                if isinstance(value, SetValue):
                    value.replace(self.machine, content, real)
                else:
                    value.replace(self.machine, content)

    def _item(self, item: Any) -> Value:
        return self.value(item)


def _container_base(cls: type) -> Any:
    """The container of Python's own that a class is or derives from."""
    return next(base for base in cls.__mro__ if base in CONTAINERS)


def _is_same(left: Any, right: Any) -> bool:
    both = isinstance(left, StandIn) and isinstance(right, StandIn)
    return left.value is right.value if both else left is right


def run_for_real(
    machine: Machine,
    function: Callable[..., Any],
    arguments: Sequence[Value],
    keywords: dict[str, Value],
) -> Value:
    """Call a function written in C on stand-ins. What it raises is raised in the traced program."""
    mirror = Mirror(machine, function)
    real = [mirror.argument(argument) for argument in arguments]
    named = {name: mirror.argument(argument) for name, argument in keywords.items()}
    owner = getattr(function, "__objclass__", None)
    if owner and issubclass(arguments[0].python_type(), owner) and not isinstance(real[0], owner):
        raise machine.unsupported(
            reasons.TENSOR_TO_UNKNOWN,
            function=function_name(function),
            argument=arguments[0].describe(),
        )
    try:
        result = function(*real, **named)
    except (TracedError, Unsupported, NotConstant, RecursionError):
        raise
    except Exception as error:
        mirror.write_back()
        raise_real(machine, error)
    mirror.write_back()
    return mirror.value(result)


def raise_real(machine: Machine, error: Exception) -> NoReturn:
    """Raise in the traced program what a function that ran for real has raised."""
    raised = ExceptionValue(type(error), [value_of(machine, argument) for argument in error.args])
    for name, attribute in (vars(error) | _members(error)).items():
        raised.store(machine, name, value_of(machine, attribute))
    raise TracedError(raised)


def _members(error: Exception) -> dict[str, Any]:
    """The attributes that C holds of an exception: the name of a missing module, for example."""
    names = {
        name
        for cls in type(error).__mro__
        for name, member in vars(cls).items()
        if isinstance(member, types.MemberDescriptorType) and name != "__suppress_context__"
    }
    members = {name: getattr(error, name, None) for name in names}
    return {name: value for name, value in members.items() if value is not None}


def raise_as(
    machine: Machine, function: Callable[..., Any], /, *operands: Value, **keywords: Value
) -> NoReturn:
    """Raise what a function raises for operands without the special methods that it needs, or for
    arguments that it does not take, in the words of the CPython that runs.
    """
    try:
        function(*map(bare, operands), **{name: bare(value) for name, value in keywords.items()})
    except (TypeError, AttributeError) as error:
        machine.raise_error(type(error), *error.args)
    raise machine.unsupported(
        reasons.TENSOR_TO_UNKNOWN, function=function.__name__, argument=operands[0].describe()
    )


def bare(value: Value) -> Any:
    """An object of a class of the same name that has no methods, but for those of containers."""
    if isinstance(value, ConstantValue):
        return value.value
    if isinstance(value, ClassValue) and value.cls in CONTAINERS:
        return value.cls
    cls = value.python_type()
    bases = tuple(base for base in cls.__mro__ if base in CONTAINERS)[:1]
    return cls() if cls in CONTAINERS else type(cls.__name__, bases, {})()
