"""Records of the IR as JSON, and back: a row for each object, behind those of what it is made of.

    {"classes": ["tuple", "Symbol", …], "rows": [[1, "s0", 2, null, 1], [0, [0]], …], "root": [7]}

A row is the number of a class and its fields: numbers, strings, `true`, `false` and `null` as they
stand, anything else as a list of one number, that of its row. Equal objects have one row, and read
back as one object. Reading makes objects of the classes that the caller names, by their
constructors, and of nothing else: no text decides what runs.

The text form (`text`, `forms`) is for people, and leaves origins out; this one keeps all fields,
and is read a hundred times as fast.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from fusewright.ir import group, index, kernel, lines, origin, program, relations, sizes, value
from fusewright.ir.dtype import DType
from fusewright.ir.index import Compound, Index, LoopSymbol, RealSymbol, SizeSymbol
from fusewright.records import fields_of, is_record, record

PLAIN: Final = frozenset({str, int, float, bool, type(None)})

MARSHAL_WITHOUT_REFERENCES: Final = 2
"""The newest version of marshal's format in which equal rows are equal bytes, whoever else holds
their parts.
"""


class NotStored(Exception):
    """Says which object has no row."""


class MalformedRows(ValueError):
    """A text that `RecordStorage.text` has not written."""


@record
class RowForm:
    """What the row of a class holds in some texts in place of its fields."""

    parts: Callable[[Any], Iterable[Any]]
    """Gives what the row of an object holds. It may raise NotStored."""

    make: Callable[..., Any]
    """Makes an object of that."""


OWN_FIELDS: Final[Mapping[type, RowForm]] = {}
"""The rows of all classes hold their fields."""


def records_of(*modules: Any) -> dict[str, type]:
    """The records that modules declare, by name."""
    return {
        name: cls
        for module in modules
        for name, cls in vars(module).items()
        if isinstance(cls, type) and is_record(cls) and cls.__module__ == module.__name__
    }


IR: Final = records_of(group, index, kernel, lines, origin, program, relations, sizes, value)
"""The records of the IR."""

_PARTS: Final[dict[type, tuple[str, ...]]] = {
    Index: ("terms", "constant"),
    Compound: ("operator", "left", "right"),
    SizeSymbol: ("name", "lower", "upper", "multiple"),
    RealSymbol: ("name",),
    LoopSymbol: ("name", "extent"),
}
"""By class that is no record, what its constructor takes."""


_CONTAINERS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    tuple: iter,
    frozenset: sorted,
    dict: lambda item: (part for pair in item.items() for part in pair),
    complex: lambda item: (item.real, item.imag),
    DType: lambda item: (item.name,),
    relations.RelationKind: lambda item: (item.name,),
    value.Expressions: lambda item: (),  # Whoever makes values anew has a table of their own.
}
"""By class of which a row holds no fields, the function that gives what it holds."""


class RecordStorage:
    """Writes and reads objects of some classes."""

    def __init__(self, records: Mapping[str, type]) -> None:
        """`records`: those that may occur beside the IR's, by name."""
        names = dict(_PARTS)
        self._readers: dict[str, Callable[..., Any]] = {
            "tuple": lambda *items: items,
            "frozenset": lambda *items: frozenset(items),
            "dict": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
            "complex": complex,
            "DType": lambda name: DType[name],
            "RelationKind": lambda name: relations.RelationKind[name],
            "Expressions": value.Expressions,
        }
        for cls in _PARTS:
            self._readers[cls.__name__] = cls
        for name, cls in {**IR, **records}.items():
            names[cls] = fields_of(cls)
            self._readers[name] = _maker(cls)
        self._parts = {**_CONTAINERS, **{cls: _getter(fields) for cls, fields in names.items()}}

    def text(self, item: Any, forms: Mapping[type, RowForm] = OWN_FIELDS) -> str:
        """The text of an object, with the rows of some classes in other `forms`. NotStored: it
        holds an object of another class.
        """
        writer = _Writer({**self._parts, **{cls: form.parts for cls, form in forms.items()}})
        root = writer.value(item)
        stored = {"classes": list(writer.classes), "rows": writer.rows, "root": root}
        return json.dumps(stored, separators=(",", ":"))

    def read(self, text: str | bytes, forms: Mapping[type, RowForm] = OWN_FIELDS) -> Any:
        """The object of a text that was written in these `forms`. MalformedRows: there is none."""
        other = {cls.__name__: form.make for cls, form in forms.items()}
        try:
            stored = json.loads(text)
            readers = [other.get(name) or self._readers[name] for name in stored["classes"]]
            objects: list[Any] = []
            for number, *given in stored["rows"]:
                objects.append(
                    readers[number](
                        *[objects[part[0]] if type(part) is list else part for part in given]
                    )
                )
            root = stored["root"]
            return objects[root[0]] if isinstance(root, list) else root
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise MalformedRows(f"{type(error).__name__}: {error}") from error


def _getter(names: tuple[str, ...]) -> Callable[[Any], Iterable[Any]]:
    """The function that gives the fields of these names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: [getattr(item, name) for name in names]


def _maker(cls: type) -> Callable[..., Any]:
    """The function that makes a record of its fields in order."""
    names = fields_of(cls)
    return lambda *given: cls(**dict(zip(names, given, strict=True)))


class _Writer:
    """The rows of one text."""

    def __init__(self, parts: Mapping[type, Callable[[Any], Iterable[Any]]]) -> None:
        self.classes: dict[str, int] = {}
        self.rows: list[list[Any]] = []
        self._parts = parts
        self._by_identity: dict[int, list[int]] = {}
        """What stands for an object that was written."""

        self._alive: list[Any] = []
        """These objects: an identity is that of one object only while it lives."""

        self._by_row: dict[bytes, list[int]] = {}

    def value(self, item: Any) -> Any:
        """What stands for an object in a row."""
        if type(item) in PLAIN:
            return item
        known = self._by_identity.get(id(item))
        if known is not None:
            return known
        if isinstance(item, value.Value):  # They nest deeper than Python's stack is.
            for inner in value.postorder((item,)):
                if id(inner) not in self._by_identity:
                    self._write(inner)
            return self._by_identity[id(item)]
        return self._write(item)

    def _write(self, item: Any) -> list[int]:
        """Write the row of an object, unless an equal one has it; gives what stands for it."""
        cls: type = type(item)
        parts = self._parts.get(cls)
        if parts is None:
            raise NotStored(f"{cls.__module__}.{cls.__qualname__}")
        row: list[Any] = [self.classes.setdefault(cls.__name__, len(self.classes))]
        known = self._by_identity
        for part in parts(item):
            if type(part) in PLAIN:
                row.append(part)
            else:
                row.append(known.get(id(part)) or self.value(part))
        key = marshal.dumps(row, MARSHAL_WITHOUT_REFERENCES)  # In which 1, 1.0 and True differ.
        reference = self._by_row.get(key)
        if reference is None:
            reference = self._by_row[key] = [len(self.rows)]
            self.rows.append(row)
        known[id(item)] = reference
        self._alive.append(item)
        return reference
