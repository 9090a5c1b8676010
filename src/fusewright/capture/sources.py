"""Sources: where a Python object met during capture came from, as a path from the frame's entry.

A source is a chain of steps from a root (an argument, a global, a closure cell, an imported module)
to an object: `self.layer[0].weight`. It says three things: how the user would write it
(`expression`), how a guard reads it again, and how generated code loads it. The last two read
`steps`, plain tuples that know nothing of bytecode:

    step                         what it loads, given `x`, what the steps before it loaded
    ("local", name)              the argument `name` at the frame's entry
    ("global", module, name)     `name` in module `module`; None: the frame's own globals
    ("builtin", name)            `name` in the builtins module
    ("module", name)             `sys.modules[name]`
    ("cell", name)               the closure cell `name` of the frame, the cell itself
    ("constant", object)         an object that lives as long as its code: a class
    ("referent", reference)      `reference()`, what a weak reference that stays the same refers to
    ("call", function)           `function()`, a reader of some state; only in guards
    ("cell_contents",)           `x.cell_contents`
    ("attribute", name)          `getattr(x, name)`
    ("instance", name)           `x.__dict__[name]`, past descriptors and `__getattr__`
    ("type_attribute", name)     what class `x` or its bases hold for `name`, unbound
    ("item", index)              `x[index]` of a list, tuple or deque, past overridden `__getitem__`
    ("dict_item", key)           `x[key]` of a dict, past overridden `__getitem__`
    ("own_item", index), ("own_dict_item", key)   the same where `x[…]` would call user code
    ("dict_key", index)          the key of dict `x` at position `index`
    ("dict_values",)             a list of the values of dict `x`, past overridden `values`
    ("dict_value", index)        its item at `index`
    ("reduced",)                 `x.__reduce__()` of an iterator of Python's own
    ("shown",)                   the mapping that a dict view or mapping proxy `x` shows
    ("number",)                  `x.item()` of a tensor of one element; only in guards
    ("size", dim), ("stride", dim)   `x.size(dim)`, `x.stride(dim)` of a tensor

Torch-free. Sources are values: equal when their steps are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from fusewright.records import field, record

Step = tuple[Any, ...]


@record
class Source:
    """A place that an object was read from. A subclass declares its step and its form; its fields
    name the place in `base`.
    """

    kind: ClassVar[str] = ""
    """The name of the step, whose operands are the fields."""

    form: ClassVar[str] = ""
    """How the user would write the source, which is `{0}`."""

    step: Step = field(init=False, repr=False, compare=False)
    """The last step of the path."""

    _hash: int = field(init=False, repr=False, compare=False)
    """Computed once from the step and the base's own hash: paths are long, and much looked up."""

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # else a record gets its own

    def __post_init__(self) -> None:
        step = self._step()
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "_hash", hash((step, self.base)))

    def __hash__(self) -> int:
        return self._hash

    def _step(self) -> Step:
        fields: tuple[str, ...] = self.__match_args__  # type: ignore[attr-defined]
        return (self.kind, *[getattr(self, name) for name in fields if name != "origin"])

    @property
    def base(self) -> Source | None:
        """The source of the object that this one was read from; None for a root."""
        return None

    def expression(self) -> str:
        """The source as the user would write it."""
        return self.form.format(self)

    def steps(self) -> tuple[Step, ...]:
        """All steps, from the root."""
        steps: list[Step] = []
        source: Source | None = self
        while source is not None:
            steps.append(source.step)
            source = source.base
        return tuple(reversed(steps))

    def __str__(self) -> str:
        return self.expression()


# -- roots ----------------------------------------------------------------------------------------


@record
class LocalSource(Source):
    """An argument of the frame."""

    kind = "local"
    form = "{0.name}"
    name: str


@record
class GlobalSource(Source):
    """A global variable of a module, or of the frame itself when `module` is None."""

    name: str
    module: str | None = None

    def _step(self) -> Step:
        return ("global", self.module, self.name)

    def expression(self) -> str:
        return self.name if self.module is None else f"{self.module}.{self.name}"


@record
class BuiltinSource(Source):
    """A name of the builtins module."""

    kind = "builtin"
    form = "{0.name}"
    name: str


@record
class ModuleSource(Source):
    """An imported module, by its name in `sys.modules`."""

    kind = "module"
    form = "sys.modules[{0.name!r}]"
    name: str


@record
class CellSource(Source):
    """A closure cell of the frame: the cell, not what it holds."""

    kind = "cell"
    form = "<cell {0.name}>"
    name: str


@record
class _KnownSource(Source):
    """An object known when the code is compiled, which is told by its identity."""

    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", (self.kind, self.value))
        object.__setattr__(self, "_hash", hash((self.kind, id(self.value))))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value is self.value  # type: ignore[attr-defined]

    __hash__ = Source.__hash__


@record(eq=False)
class ConstantSource(_KnownSource):
    """An object known when the code is compiled, held by the code: a class or a function of a
    module.
    """

    kind = "constant"

    def expression(self) -> str:
        return getattr(self.value, "__qualname__", None) or repr(self.value)


@record(eq=False)
class ReferentSource(_KnownSource):
    """What a weak reference, known when the code is compiled, refers to."""

    kind = "referent"

    def expression(self) -> str:
        return f"<a {type(self.value()).__name__}>"


@record
class StateSource(Source):
    """A state of the process that a function reads. Guards call it; compiled code does not."""

    form = "{0.name}"
    name: str
    reader: Callable[[], Any]

    def _step(self) -> Step:
        return ("call", self.reader)


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
    """What a closure cell holds."""

    kind = "cell_contents"

    def expression(self) -> str:
        if isinstance(self.origin, CellSource):
            return self.origin.name
        return f"{self.origin}.cell_contents"


@record
class AttributeSource(_DerivedSource):
    """An attribute, read as `getattr` reads it. Only where that runs no user code."""

    kind = "attribute"
    form = "{0.origin}.{0.name}"
    name: str


@record
class InstanceSource(_DerivedSource):
    """An entry of an object's `__dict__`, read past descriptors and `__getattr__`."""

    kind = "instance"
    form = "{0.origin}.{0.name}"
    name: str


@record
class TypeAttributeSource(_DerivedSource):
    """What the method resolution order of a class holds for a name, before descriptors bind it."""

    kind = "type_attribute"
    form = "{0.origin}.{0.name}"
    name: str


@record
class ItemSource(_DerivedSource):
    """An item of a list or tuple (or of an instance of a subclass), by position."""

    form = "{0.origin}[{0.index}]"
    index: int
    overridden: bool = False
    """Whether the class has a `__getitem__` of its own, so that `x[index]` is something else."""

    def _step(self) -> Step:
        return ("own_item" if self.overridden else "item", self.index)


_MODULE_TABLES = ("_modules", "_parameters", "_buffers")


@record
class DictItemSource(_DerivedSource):
    """The value of a dict (or of an instance of a subclass) under a key."""

    form = "{0.origin}[{0.key!r}]"
    key: Any
    overridden: bool = False
    """Whether the class has a `__getitem__` of its own, so that `x[key]` is something else."""

    def _step(self) -> Step:
        return ("own_dict_item" if self.overridden else "dict_item", self.key)

    def expression(self) -> str:
        match self.origin, self.key:
            case InstanceSource(owner, name), str(inner) if name in _MODULE_TABLES:
                return f"{owner}[{inner}]" if inner.isdigit() else f"{owner}.{inner}"
        return self.form.format(self)


@record
class DictKeySource(_DerivedSource):
    """The key of a dict at a position of its order."""

    kind = "dict_key"
    form = "list({0.origin})[{0.index}]"
    index: int


@record
class DictValuesSource(_DerivedSource):
    """The values of a dict in order, as a list that generated code makes once."""

    kind = "dict_values"
    form = "list({0.origin}.values())"


@record
class DictValueSource(_DerivedSource):
    """The value at a position of a dict's order, read from its `DictValuesSource`: for a key that
    must not be held, such as a tensor.
    """

    kind = "dict_value"
    form = "{0.origin}[{0.index}]"
    index: int


@record
class ExtentSource(_DerivedSource):
    """A size or a stride of a tensor."""

    form = "{0.origin}.{0.step[0]}({0.dim})"
    dim: int
    is_stride: bool = False

    def _step(self) -> Step:
        return ("stride" if self.is_stride else "size", self.dim)


@record
class NumberSource(_DerivedSource):
    """What a tensor of one element holds."""

    kind = "number"
    form = "{0.origin}.item()"


@record
class ReducedSource(_DerivedSource):
    """What an iterator of Python's own is made of: a function, its arguments, and a state."""

    kind = "reduced"
    form = "{0.origin}.__reduce__()"


@record
class ShownSource(_DerivedSource):
    """The mapping that a view of a dict, or a mapping proxy, shows."""

    kind = "shown"
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
