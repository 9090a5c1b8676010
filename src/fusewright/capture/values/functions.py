"""Callables: Python functions with their cells and globals, bound methods, partial applications, C
functions.

A Python function is inlined where it is called. A function made while tracing holds values in its
cells; one that
exists is read through its source, cell by cell, so that only the cells used are guarded.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

from fusewright import torch_compat
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import (
    AttributeSource,
    BuiltinSource,
    CellContentsSource,
    ConstantSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    ModuleSource,
    Source,
)
from fusewright.capture.values.base import (
    MISSING,
    Machine,
    NotConstant,
    Rebuilder,
    Value,
    evaluate,
)
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.objects import ObjectValue


class Namespace:
    """The dictionary of global variables that functions share: reads guarded, writes kept until
    the graph ran.
    """

    __slots__ = ("dictionary", "is_root", "known", "module", "origin", "written")

    def __init__(
        self,
        dictionary: dict[str, Any],
        module: str | None,
        origin: Source | None = None,
        *,
        is_root: bool = False,
    ) -> None:
        self.dictionary = dictionary
        self.module = module
        """The module's name in `sys.modules`, None for a dictionary that is no module's."""
        self.is_root = is_root
        """Whether these are the globals of the captured frame itself, which finds them by name
        alone.
        """
        self.origin = origin
        """The source of a dictionary that is no module's."""
        self.known: dict[str, Any] = {}
        self.written: dict[str, None] = {}

    def source(self, name: str) -> Source:
        """The source of a variable."""
        if self.is_root:
            return GlobalSource(name)
        if self.module is None and self.origin is not None:
            return DictItemSource(self.origin, name)
        return GlobalSource(name, self.module)

    def dictionary_source(self) -> Source | None:
        """The source of the dictionary itself."""
        if self.module is not None:
            return AttributeSource(ModuleSource(self.module), "__dict__")
        return self.origin

    def names(self) -> list[str]:
        """The variables' names, in order. The caller guards them."""
        names = dict.fromkeys([*self.dictionary, *self.written])
        return [name for name in names if self.known.get(name) is not MISSING]

    def load(self, machine: Machine, name: str) -> Value | None:
        """The global variable or built-in `name`, or None."""
        variable = self.known.get(name)
        if variable is not None:
            return None if variable is MISSING else variable
        if name in self.dictionary:
            value = machine.wrap(self.dictionary[name], self.source(name))
        else:
            builtin = _builtins_of(self.dictionary).get(name, MISSING)
            if builtin is MISSING:
                return None
            if self.module is not None:
                machine.guard(GuardKind.ABSENT, ModuleSource(self.module), name)
            value = machine.wrap(builtin, BuiltinSource(name))
        self.known[name] = value
        return value

    def variable(self, machine: Machine, name: str) -> Value | None:
        """The global variable `name`, past built-ins; None when there is none."""
        if name in self.dictionary or name in self.written:
            return self.load(machine, name)
        if self.module is not None:
            machine.guard(GuardKind.ABSENT, ModuleSource(self.module), name)
        return None

    def store(self, machine: Machine, name: str, value: Any) -> None:
        """Write a global variable; MISSING deletes it."""
        machine.record_mutation(self)
        self.known[name] = value
        self.written.setdefault(name)

    def changes(self) -> dict[str, Any]:
        """The variables to write after the graph has run; MISSING for one to delete."""
        return {
            name: self.known[name]
            for name in self.written
            if self.known[name] is not MISSING or name in self.dictionary
        }


def _builtins_of(dictionary: dict[str, Any]) -> dict[str, Any]:
    builtins = dictionary.get("__builtins__", {})
    return builtins.__dict__ if isinstance(builtins, types.ModuleType) else builtins


class CellValue(Value):
    """A closure cell."""

    __slots__ = ("cell", "changed", "contents", "is_private")

    def __init__(
        self, contents: Any = MISSING, cell: Any = MISSING, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.contents = contents
        """The value held, MISSING when empty or not read yet."""
        self.cell = cell
        """The existing cell, MISSING for one made while tracing."""
        self.changed = False
        self.is_private = cell is MISSING
        """Whether no function but the one that made it has the cell."""

    def python_type(self) -> type:
        return types.CellType

    def real(self) -> Any:
        return self.cell

    def load(self, machine: Machine) -> Value | None:
        """The value that the cell holds, or None when it is empty."""
        if self.contents is MISSING and self.cell is not MISSING and not self.changed:
            try:
                contents = self.cell.cell_contents
            except ValueError:
                return None
            if self.source is None:
                self.contents = machine.new(contents)
            else:
                self.contents = machine.wrap(contents, CellContentsSource(self.source))
        return None if self.contents is MISSING else self.contents

    def store(self, machine: Machine, value: Any) -> None:
        """Put a value in the cell; MISSING empties it."""
        machine.record_mutation(self)
        self.contents = value
        self.changed = True

    def get_attribute(self, machine: Machine, name: str) -> Value:
        if name != "cell_contents":
            machine.raise_error(AttributeError, name)
        contents = self.load(machine)
        if contents is None:
            machine.raise_error(ValueError, "Cell is empty")
        return contents

    def parts(self) -> Sequence[Value]:
        return () if self.contents is MISSING else (self.contents,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(types.CellType)


class FunctionValue(ObjectValue):
    """A function written in Python."""

    __slots__ = ("cells", "code", "defaults", "keyword_defaults", "namespace")

    def __init__(
        self,
        code: types.CodeType,
        namespace: Namespace,
        *,
        function: Any = MISSING,
        source: Source | None = None,
        cells: Sequence[CellValue] = (),
        defaults: Sequence[Value] = (),
        keyword_defaults: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(types.FunctionType, function, source)
        self.code = code
        self.namespace = namespace
        self.cells = tuple(cells)
        self.defaults = list(defaults)
        self.keyword_defaults = keyword_defaults or {}

    @classmethod
    def existing(
        cls,
        machine: Machine,
        function: types.FunctionType,
        namespace: Namespace,
        source: Source | None,
    ) -> FunctionValue:
        """The value of a function that exists."""
        cells = []
        for index, cell in enumerate(function.__closure__ or ()):
            base = AttributeSource(source, "__closure__") if source else None
            cell_source = ItemSource(base, index) if base else None
            cells.append(machine.cell(cell, cell_source))

        def part(object: Any, attribute: str, key: int | str) -> Value:
            if source is None:
                return machine.new(object)
            return machine.wrap(object, default_source(AttributeSource(source, attribute), key))

        if function.__defaults__ and source is not None:
            # A default's position is counted from the end, its source from the beginning.
            origin = AttributeSource(source, "__defaults__")
            machine.guard(GuardKind.LENGTH, origin, len(function.__defaults__))
        defaults = [
            part(default, "__defaults__", index)
            for index, default in enumerate(function.__defaults__ or ())
        ]
        keyword_defaults = {
            name: part(default, "__kwdefaults__", name)
            for name, default in (function.__kwdefaults__ or {}).items()
        }
        return cls(
            function.__code__,
            namespace,
            function=function,
            source=source,
            cells=cells,
            defaults=defaults,
            keyword_defaults=keyword_defaults,
        )

    def key(self) -> Hashable:
        return self if self.object is MISSING else self.object

    def to_python(self) -> Any:
        if self.object is MISSING:
            raise NotConstant(self)
        return self.object

    def slot(self, machine: Machine, name: str) -> Value:
        if name == "__code__":
            return ConstantValue(self.code)
        if self.object is MISSING and name not in self.known:
            match name:
                case "__name__":
                    return ConstantValue(self.code.co_name)
                case "__qualname__":
                    return ConstantValue(self.code.co_qualname)
                case "__module__":
                    return machine.new(self.namespace.dictionary.get("__name__"))
                case "__doc__":
                    documented = self.code.co_consts and isinstance(self.code.co_consts[0], str)
                    return ConstantValue(self.code.co_consts[0] if documented else None)
                case "__defaults__":
                    return (
                        machine.new_tuple(self.defaults) if self.defaults else ConstantValue(None)
                    )
                case "__kwdefaults__" if self.keyword_defaults:
                    return machine.new_dict(self.keyword_defaults)
                case "__kwdefaults__" | "__annotations__":
                    return machine.new(None if name == "__kwdefaults__" else {})
                case "__type_params__":
                    return machine.new_tuple([])
        return super().slot(machine, name)

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.inline(self, arguments, keywords)

    def describe(self) -> str:
        return f"the function {self.code.co_qualname}"

    def parts(self) -> Sequence[Value]:
        if self.object is not MISSING:
            return ()
        return [*self.cells, *self.defaults, *self.keyword_defaults.values(), *super().parts()]

    def rebuild(self, code: Rebuilder) -> None:
        if self.object is not MISSING:
            code.constant(self.object)
            return
        code.call(
            make_function,
            self.code,
            ConstantValue(self.namespace.dictionary),
            tuple(self.defaults),
            self.keyword_defaults,
            tuple(self.cells),
        )


def default_source(origin: Source, key: Any) -> Source:
    """The source of a default value: by position in `__defaults__`, by name in `__kwdefaults__`."""
    return ItemSource(origin, key) if isinstance(key, int) else DictItemSource(origin, key)


def make_function(
    code: types.CodeType,
    namespace: dict[str, Any],
    defaults: tuple[Any, ...],
    keyword_defaults: dict[str, Any],
    closure: tuple[Any, ...],
) -> types.FunctionType:
    """Make a function from its parts, in generated code."""
    function = types.FunctionType(code, namespace, code.co_name, defaults or None, closure or None)
    function.__kwdefaults__ = keyword_defaults or None
    return function


class MethodValue(Value):
    """A callable bound to its first argument."""

    __slots__ = ("function", "instance")

    def __init__(self, function: Value, instance: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.instance = instance

    def python_type(self) -> type:
        if isinstance(self.function, BuiltinValue):
            in_slot = isinstance(self.function.function, types.WrapperDescriptorType)
            return types.MethodWrapperType if in_slot else types.BuiltinMethodType
        return types.MethodType

    def key(self) -> Hashable:
        function, instance = self.function.real(), self.instance.real()
        if function is MISSING or instance is MISSING:
            return (self.function.key(), self.instance.key())
        return cast(Hashable, self._make()(function, instance))

    def describe(self) -> str:
        return f"the method {self.function.describe()} of {self.instance.describe()}"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.call(self.function, [self.instance, *arguments], keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        match name:
            case "__func__" if not isinstance(self.function, BuiltinValue):
                return self.function
            case "__self__":
                return self.instance
            case _ if self._lacks(name):
                kind = self.python_type().__name__
                text = f"{kind!r} object has no attribute {name!r}"
                machine.raise_error(AttributeError, text)
            case _:
                return machine.attribute(self.function, name)

    def _lacks(self, name: str) -> bool:
        """Whether it is a method written in C, of which an attribute of its function is none."""
        return isinstance(self.function, BuiltinValue) and not hasattr(self.python_type(), name)

    def parts(self) -> Sequence[Value]:
        return (self.function, self.instance)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(self._make(), self.function, self.instance)

    def _make(self) -> Callable[[Any, Any], Any]:
        return make_method_in_c if isinstance(self.function, BuiltinValue) else types.MethodType


def make_method_in_c(function: Any, instance: Any) -> Any:
    """Bind a callable written in C, in generated code. Its name would not do: what
    `super().append` is bound to may have an `append` of its own.
    """
    if isinstance(function, types.ClassMethodDescriptorType):
        return function.__get__(None, instance)
    descriptor = isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType)
    if descriptor and instance is not None:  # which `__get__` takes for no instance
        return function.__get__(instance, type(instance))
    return types.MethodType(function, instance)


class BuiltinValue(Value):
    """A callable known by identity that is not inlined: written in C, or a function of torch."""

    __slots__ = ("function",)

    def __init__(self, function: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function

    def python_type(self) -> type:
        return type(self.function)

    def real(self) -> Any:
        return self.function

    def to_python(self) -> Any:
        return self.function

    def describe(self) -> str:
        return f"the function {function_name(self.function)}"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.call_object(self.function, self.source, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        return machine.new(evaluate(machine, getattr, self.function, name))

    def rebuild(self, code: Rebuilder) -> None:
        code.constant(self.function)


def function_name(function: Any) -> str:
    """A readable name of any callable, with its module."""
    if isinstance(function, torch_compat.OPERATOR_TYPES):
        return f"torch.ops.{function}"
    name = (
        getattr(function, "__qualname__", None)
        or getattr(function, "__name__", None)
        or repr(function)
    )
    name = str(name).removeprefix("_VariableFunctionsClass.")  # where torch keeps its functions
    owner = getattr(function, "__objclass__", None)
    module = getattr(function, "__module__", None)
    if owner is not None:
        return str(name) if "." in str(name) else f"{owner.__name__}.{name}"
    return f"{module}.{name}" if module and module != "builtins" else str(name)


class PartialValue(ObjectValue):
    """A `functools.partial` object."""

    __slots__ = ("arguments", "function", "keywords")

    def __init__(
        self,
        function: Value,
        arguments: Sequence[Value],
        keywords: Value,
        *,
        object: Any = MISSING,
        source: Source | None = None,
    ) -> None:
        super().__init__(functools.partial, object, source)
        self.function = function
        self.arguments = list(arguments)
        self.keywords = keywords
        """The dict of them, which the program may change."""

    def all_keywords(self, machine: Machine, more: dict[str, Value]) -> dict[str, Value]:
        """The keywords of a call that adds more."""
        own = {name.constant(): item for name, item in machine.mapping_entries(self.keywords)}
        return own | more

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        named = self.all_keywords(machine, keywords)
        return machine.call(self.function, [*self.arguments, *arguments], named)

    def slot(self, machine: Machine, name: str) -> Value:
        match name:
            case "func":
                return self.function
            case "args":
                return machine.new_tuple(self.arguments)
            case "keywords":
                return self.keywords
            case _:
                return super().slot(machine, name)

    def parts(self) -> Sequence[Value]:
        return [self.function, *self.arguments, self.keywords]

    def rebuild(self, code: Rebuilder) -> None:
        code.call(make_partial, self.function, tuple(self.arguments), self.keywords)


def make_partial(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Make a partial application that keeps this dict of keywords, in generated code."""
    partial = functools.partial(function)
    partial.__setstate__((function, arguments, keywords, None))  # type: ignore[attr-defined]
    return partial


def guard_function(machine: Machine, function: types.FunctionType, source: Source) -> None:
    """Guard a function's code, and its identity where it has a name of its own: of other functions,
    made anew at each call, another one of the same code will do.
    """
    if isinstance(source, ConstantSource):
        return
    if isinstance(source, GlobalSource) or "<locals>" not in function.__qualname__:
        machine.guard(GuardKind.IDENTITY, source, function)
    machine.guard(GuardKind.CODE, source, function.__code__)
