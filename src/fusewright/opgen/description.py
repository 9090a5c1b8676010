"""The description of a backend: a short YAML file, read with the line of each entry."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

import yaml

from fusewright.errors import OperatorGenerationError
from fusewright.opgen.declarations import Declarations, Operator
from fusewright.records import record

KEYS = {
    "backend": "the name of the device, as in `torch.device('npu')`",
    "dispatch_key": "PrivateUse1, torch's key for devices from outside; may be left out",
    "cpp_namespace": "the C++ namespace in which the kernels stand",
    "supported": "operators with a kernel, by name or by full signature",
    "autograd": "operators with a kernel that also differentiates them",
}
"""The keys of a description and what each holds."""

_DISPATCH_KEYS = ("PrivateUse1",)
_STRUCTURED = "structured"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it was built in


@record
class Entry:
    """One operator for which the backend has a kernel."""

    operator: Operator
    line: int
    structured: bool = False
    """The kernel is the computation alone; checks and allocation are ATen's meta function's."""

    differentiated: bool = False
    """The kernel differentiates itself and is registered under the backend's autograd key."""


@record(kw_only=True)
class Description:
    """A backend, its operators, and where it was described."""

    file: str
    backend: str
    dispatch_key: str
    namespace: str
    entries: Mapping[str, Entry]
    """By operator name, in the order of the file."""


def read_description(text: str, declarations: Declarations, file: str = "<string>") -> Description:
    """Parse and check a backend's YAML. `file` is for messages.

    Raises: OperatorGenerationError with file and line for malformed YAML, unknown or missing keys,
    unknown or repeated operators, and signatures that differ from torch's.
    """
    return _Reader(file, declarations).read(text)


@record
class _Reader:
    file: str
    declarations: Declarations

    def read(self, text: str) -> Description:
        values = self._top(text)
        backend = self._text(values, "backend")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", backend):
            self._fail(
                f"backend {backend!r}: a device name is lower-case letters, digits and underscores",
                values["backend"],
            )
        namespace = self._text(values, "cpp_namespace")
        if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", namespace):
            self._fail(f"{namespace!r} is not a C++ namespace", values["cpp_namespace"])
        key = self._text(values, "dispatch_key", _DISPATCH_KEYS[0])
        if key not in _DISPATCH_KEYS:
            self._fail(
                f"dispatch_key {key!r}: only {_DISPATCH_KEYS[0]} is for devices from outside torch",
                values["dispatch_key"],
            )
        entries: dict[str, Entry] = {}
        for section in ("supported", "autograd"):
            for node in self._items(values, section):
                entry = self._entry(node, differentiated=section == "autograd")
                self._add(entry, entries)
        if not entries:
            self._fail("no operators: list the backend's kernels under `supported`", None)
        self._check_structured(entries)
        return Description(
            file=self.file,
            backend=backend,
            dispatch_key=key,
            namespace=namespace,
            entries=entries,
        )

    def _fail(self, what: str, where: yaml.Node | int | None) -> NoReturn:
        line = where.start_mark.line + 1 if isinstance(where, yaml.Node) else where
        raise OperatorGenerationError(what, self.file, line)

    def _top(self, text: str) -> dict[str, yaml.Node]:
        try:
            node = yaml.compose(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = f"malformed YAML: {error.problem or error.context}"
            self._fail(problem, mark.line + 1 if mark else None)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self._fail(f"malformed YAML: {error.reason}", line)
        if not isinstance(node, yaml.MappingNode):
            self._fail(f"expected a mapping with the keys {', '.join(KEYS)}", node)
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(f"expected one of the keys {', '.join(KEYS)}", key)
            if key.value not in KEYS:
                self._fail(f"unknown key {key.value!r}{_suggest(key.value, KEYS)}", key)
            if key.value in values:
                self._fail(f"key {key.value!r} stands twice", key)
            values[key.value] = value
        return values

    def _text(self, values: dict[str, yaml.Node], key: str, default: str | None = None) -> str:
        node = values.get(key)
        if node is None:
            if default is not None:
                return default
            self._fail(f"missing key {key!r}: {KEYS[key]}", None)
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self._fail(f"{key!r} must be a text: {KEYS[key]}", node)
        return str(node.value)

    def _items(self, values: dict[str, yaml.Node], key: str) -> list[yaml.Node]:
        node = values.get(key)
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._fail(f"{key!r} must be a list: {KEYS[key]}", node)
        return list(node.value)

    def _entry(self, node: yaml.Node, *, differentiated: bool) -> Entry:
        structured = False
        named = node
        if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
            named, form = node.value[0]
            structured = isinstance(form, yaml.ScalarNode) and form.value == _STRUCTURED
            if not structured:
                self._fail(f"{named.value}: the only form besides a name is `structured`", form)
        if not isinstance(named, yaml.ScalarNode):
            self._fail("expected the name of an operator, such as add.Tensor", node)
        text = " ".join(named.value.split())
        operator = self._operator(text, named)
        if structured and differentiated:
            self._fail(f"{operator.name}: a structured kernel does not differentiate itself", node)
        return Entry(operator, node.start_mark.line + 1, structured, differentiated)

    def _operator(self, text: str, node: yaml.Node) -> Operator:
        name, parenthesis, _ = text.partition("(")
        name = name.strip().removeprefix("aten::")
        operators = self.declarations.operators
        operator = operators.get(name)
        if operator is None:
            self._fail(f"unknown operator {name!r}{self._spelling(name)}", node)
        if parenthesis and text.removeprefix("aten::") != operator.schema:
            self._fail(
                f"the signature of {name} differs from torch's declaration, which is\n"
                f"  {operator.schema}",
                node,
            )
        return operator

    def _spelling(self, name: str) -> str:
        """Overloads of the same base name first, then names that look alike."""
        operators = self.declarations.operators
        if name.removesuffix(".default") in operators:  # as Python calls an overload without a name
            return f"; did you mean {name.removesuffix('.default')}?"
        overloads = [operator for operator in operators if operator.partition(".")[0] == name]
        if overloads:
            return f"; its overloads are {', '.join(overloads)}"
        return _suggest(name, operators)

    def _add(self, entry: Entry, entries: dict[str, Entry]) -> None:
        name = entry.operator.name
        if name in entries:
            self._fail(f"operator {name} stands already in line {entries[name].line}", entry.line)
        if entry.operator.composite and not entry.differentiated:
            self._fail(
                f"{name} is composite: torch decomposes it and differentiates the parts, and a "
                "kernel below autograd would lose the gradient. Leave it out, or list it under "
                "`autograd` with a kernel that differentiates it",
                entry.line,
            )
        entries[name] = entry

    def _check_structured(self, entries: Mapping[str, Entry]) -> None:
        """A structured kernel serves its whole group; nothing else of it may be given."""
        for name, entry in entries.items():
            if not entry.structured:
                continue
            operator = entry.operator
            if operator.structured is None:
                self._fail(f"{name} is not a structured operator of torch's", entry.line)
            if operator.structured != name:
                self._fail(
                    f"{name}: the structured kernel of this group is named {operator.structured}",
                    entry.line,
                )
            for other in self.declarations.group_of[name]:
                if other.name != name and other.name in entries:
                    self._fail(
                        f"{other.name} overrides a part of the structured operator {name} of line "
                        f"{entry.line}: give either the structured kernel or single variants",
                        entries[other.name].line,
                    )


def _suggest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
