"""Sources: where a Python object met during capture came from, as a path from the frame's entry.

A source is a chain from a root (an argument, a global, a closure cell, an imported module) to an
object: `self.layer[0].weight`. It says how the user would write it (`expression`). Guards read it
again (`guards/program.py`), and generated code loads it (`rebuild.py`), each by the class of every
source of the chain.

Torch-free. Sources are values: equal when they are of one class, with equal fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from fusewright.records import field, record


@record
class Source:
    """A place that an object was read from. A subclass declares its form; its fields name the place
    in `base`.
    """

    form: ClassVar[str] = ""
    """The source as the user would write it, with `{0}` for its base."""

    _hash: int = field(init=False, repr=False, compare=False)
    """Computed once, from the fields with the base's own hash: paths are long, and much looked up.
    """

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # else a record gets its own

    def __post_init__(self) -> None:
        names: tuple[str, ...] = self.__match_args__
        fields = [getattr(self, name) for name in names]
        object.__setattr__(self, "_hash", hash((type(self), *fields)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def base(self) -> Source | None:
        """The source of the object that this one was read from; None for a root."""
        return None

    def root(self) -> Source:
        """The source at which the path begins."""
        source: Source = self
        while source.base is not None:
            source = source.base
        return source

    def expression(self) -> str:
        """The source as the user would write it."""
        return self.form.format(self)

    def __str__(self) -> str:
        return self.expression()


# -- roots ----------------------------------------------------------------------------------------


@record
class LocalSource(Source):
    """An argument of the frame."""

    form = "{0.name}"
    name: str


@record
class GlobalSource(Source):
    """A global variable of a module, or of the frame itself when `module` is None."""

    name: str
    module: str | None = None

    def expression(self) -> str:
        return self.name if self.module is None else f"{self.module}.{self.name}"


@record
class BuiltinSource(Source):
    """A name of the builtins module."""

    form = "{0.name}"
    name: str


@record
class ModuleSource(Source):
    """An imported module, by its name in `sys.modules`."""

    form = "sys.modules[{0.name!r}]"
    name: str


@record
class CellSource(Source):
    """A closure cell of the frame: the cell, not what it holds."""

    form = "<cell {0.name}>"
    name: str


@record
class _KnownSource(Source):
    """An object known when the code is compiled, identified by its address."""

    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((type(self), id(self.value))))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value is self.value

    __hash__ = Source.__hash__


@record(eq=False)
class ConstantSource(_KnownSource):
    """An object known when the code is compiled, held by the code: a class or a function of a
    module.
    """

    def expression(self) -> str:
        return getattr(self.value, "__qualname__", None) or repr(self.value)


@record(eq=False)
class ReferentSource(_KnownSource):
    """The referent of a weak reference that is known when the code is compiled."""

    def expression(self) -> str:
        return f"<a {type(self.value()).__name__}>"


@record
class StateSource(Source):
    """A state of the process that a function reads. Guards call it; compiled code does not."""

    form = "{0.name}"
    name: str
    reader: Callable[[], Any]


@record
class ThreadSource(Source):
    """A state of the thread or of torch that guards read on the native floor, and compiled code
    does not.
    """

    form = "{0.name}"
    name: str


# -- what is read from another source --------------------------------------------------------------


@record
class _DerivedSource(Source):
    """A source read from another."""

    origin: Source

    @property
    def base(self) -> Source:
        return self.origin


@record
class CellContentsSource(_DerivedSource):
    """The content of a closure cell."""

    def expression(self) -> str:
        if isinstance(self.origin, CellSource):
            return self.origin.name
        return f"{self.origin}.cell_contents"


@record
class AttributeSource(_DerivedSource):
    """An attribute, read as `getattr` reads it. Only where that runs no user code."""

    form = "{0.origin}.{0.name}"
    name: str


@record
class InstanceSource(_DerivedSource):
    """An entry of an object's `__dict__`, read past descriptors and `__getattr__`."""

    form = "{0.origin}.{0.name}"
    name: str


@record
class TypeAttributeSource(_DerivedSource):
    """An attribute as the classes of a method resolution order hold it, not yet bound."""

    form = "{0.origin}.{0.name}"
    name: str


@record
class ItemSource(_DerivedSource):
    """An item of a list or tuple (or of an instance of a subclass), by position."""

    form = "{0.origin}[{0.index}]"
    index: int
    overridden: bool = False
    """Whether the class has a `__getitem__` of its own, so that `x[index]` is something else."""


_MODULE_TABLES = ("_modules", "_parameters", "_buffers")


@record
class DictItemSource(_DerivedSource):
    """The value of a dict (or of an instance of a subclass) under a key."""

    form = "{0.origin}[{0.key!r}]"
    key: Any
    overridden: bool = False
    """Whether the class has a `__getitem__` of its own, so that `x[key]` is something else."""

    def expression(self) -> str:
        match self.origin, self.key:
            case InstanceSource(owner, name), str(inner) if name in _MODULE_TABLES:
                return f"{owner}[{inner}]" if inner.isdigit() else f"{owner}.{inner}"
        return self.form.format(self)


@record
class DictKeySource(_DerivedSource):
    """The key of a dict at a position of its order."""

    form = "list({0.origin})[{0.index}]"
    index: int


@record
class DictValuesSource(_DerivedSource):
    """The values of a dict in order, as a list that generated code makes once."""

    form = "list({0.origin}.values())"


@record
class DictValueSource(_DerivedSource):
    """The value at a position of a dict's order, read from its `DictValuesSource`: for a key that
    must not be held, such as a tensor.
    """

    form = "{0.origin}[{0.index}]"
    index: int


@record
class ExtentSource(_DerivedSource):
    """A size or a stride of a tensor."""

    dim: int
    is_stride: bool = False

    def expression(self) -> str:
        return f"{self.origin}.{'stride' if self.is_stride else 'size'}({self.dim})"


@record
class NumberSource(_DerivedSource):
    """The number in a tensor of one element."""

    form = "{0.origin}.item()"


@record
class ReducedSource(_DerivedSource):
    """The parts of an iterator of Python's own: a function, its arguments, and a state."""

    form = "{0.origin}.__reduce__()"


@record
class ShownSource(_DerivedSource):
    """The mapping that a view of a dict, or a mapping proxy, shows."""

    form = "{0.origin}.mapping"


def module_name(source: Source) -> str:
    """The dotted name of a module from its source: what `named_modules` calls it."""
    names = []
    step: Source | None = source
    while step is not None:
        if isinstance(step, DictItemSource):
            names.append(str(step.key))
        step = step.base
    return ".".join(reversed(names))


def identifier(source: Source, index: int) -> str:
    """A name for a placeholder, from what the user would write."""
    text = "".join(c if c.isalnum() else "_" for c in source.expression())
    while "__" in text:
        text = text.replace("__", "_")
    return text.strip("_") or f"input_{index}"
