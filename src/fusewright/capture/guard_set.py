"""Turns guards into a program run in C, and says in words which one failed.

Guards with a common beginning of their sources share it: the program is a tree, in which each
object is loaded once and tested before what is read from it. What belongs to the user is held
weakly, so that a set of guards keeps no model, tensor or class alive; once such an object is gone,
the guards never hold again.

    guards                                 program: depth, step, tests
    TYPE     model            MLP          0  ("local", "model")           ("type", MLP)
    EQUALS   model.training   False        1  ("instance_dict",)
    TENSOR   model.weight     f32[4, 8]    2  ("dict_item", "training")    ("equals", False)
                                           2  ("dict_item", "_parameters")
                                           3  ("dict_item", "weight")      ("tensor", ...)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.capture.guard_words import GONE, expected_in_words, found_in_words
from fusewright.capture.guards import Guard, GuardKind
from fusewright.capture.memory import Placement
from fusewright.capture.shape_guard import ShapeGuard
from fusewright.capture.sources import Source, Step
from fusewright.capture.tensor_pattern import TensorPattern
from fusewright.errors import Location
from fusewright.events import FailedGuard
from fusewright.native import GuardProgram, dispatch_state, torch_states
from fusewright.records import field, record

Test = tuple[str, Any]


@record
class StateReading:
    """One state of torch as it was found."""

    name: str
    words: str
    read: Callable[[], Any]
    number: int
    """The state's number on the native floor, which reads and compares it."""

    value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.read())

    @property
    def metadata(self) -> tuple[str, int]:
        """The test's operand."""
        return self.name, self.number


@record
class GlobalState:
    """State of torch and of the thread that every captured graph depends on."""

    grad_mode: bool
    dispatch_state: tuple[int, int] | None
    """Inference mode, autocast, dispatch modes and functorch levels as torch's dispatcher sees
    them; None where that cannot be read, and `readings` say it."""
    states: tuple[StateReading, ...]
    """What the native floor reads."""

    readings: tuple[tuple[str, Callable[[], Any], Any], ...]
    """Name, reader and value of what it does not."""

    @classmethod
    def now(cls) -> GlobalState:
        """The state of the calling thread."""
        found = torch_states()
        known = torch_compat.states.STATES
        states = tuple(StateReading(name, *known[name], found[name]) for name in found)
        readers = [reader for name, reader in known.items() if name not in found]
        readers += torch_compat.states.mode_readers()
        dispatch = dispatch_state()
        if dispatch is None:
            readers += torch_compat.states.thread_state_readers()
        readings = tuple((name, read, read()) for name, read in readers)
        return cls(torch.is_grad_enabled(), dispatch, states, readings)


@record
class SizesExpected:
    """What is read of one object for the relations between sizes of several."""

    guard: ShapeGuard
    reads: tuple[tuple[int, int], ...]
    objects: int
    """How many objects are read in all."""

    code: tuple[tuple[int, int], ...]
    """The relations, as the native floor runs them."""

    @property
    def metadata(self) -> tuple[int, int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """The test's operand."""
        return len(self.guard.readings), self.objects, self.reads, self.code


@record
class Check:
    """One test of a program, with what it takes to speak of it."""

    kind: GuardKind
    test: str
    subject: Source | str
    """What is tested: a source, or the name of a global state."""

    expected: Any
    """Held weakly where it belongs to the user: see `value`."""

    location: Location | None

    @property
    def expression(self) -> str:
        """What is tested, as the user would write it."""
        return self.subject if isinstance(self.subject, str) else self.subject.expression()

    @property
    def value(self) -> Any:
        """What is expected; GONE when it is no more."""
        if not isinstance(self.expected, weakref.ref):
            return self.expected
        value = self.expected()
        return GONE if value is None else value


@record
class GuardSet:
    """The guards of one compiled function."""

    program: GuardProgram
    checks: tuple[Check, ...]
    """The program's tests, in order."""

    def check(self, locals: dict[str, Any], function: FunctionType | None = None) -> bool:
        """Whether all guards hold for a call of `function` with these arguments by name."""
        return self.program.check(locals, function)

    def failing(self, locals: dict[str, Any], function: FunctionType | None = None) -> Check | None:
        """The first test that does not hold; None when all hold."""
        failure = self.program.explain(locals, function)
        return None if failure is None else self.checks[failure[0]]

    def explain(
        self, locals: dict[str, Any], function: FunctionType | None = None
    ) -> FailedGuard | None:
        """The first guard that does not hold, in words; None when all hold."""
        failure = self.program.explain(locals, function)
        if failure is None:
            return None
        index, found = failure
        check = self.checks[index]
        value = check.value
        if isinstance(value, SizesExpected) and found and isinstance(found[0], tuple):
            return value.guard.failure(found[0])
        difference = value.difference(found[0]) if check.test == "tensor" and found else None
        read, expected, given = difference or (
            "",
            expected_in_words(check.test, value),
            found_in_words(check.test, value, found),
        )
        return FailedGuard(check.expression + read, expected, given, check.location)

    def facts(self) -> Iterator[tuple[Check, str, str, Location | None]]:
        """What is tested, in words: the check, what is read, what is expected, the user's line.
        Relations between sizes, which several checks read for, are told one by one.
        """
        related = False
        for check in self.checks:
            if not isinstance(check.value, SizesExpected):
                expected = expected_in_words(check.test, check.value)
                yield check, check.expression, expected, check.location
            elif not related:
                related = True
                for relation, location in check.value.guard.in_words():
                    yield check, relation, "true", location

    def table(self) -> str:
        """All guards, one a line: kind, expression, expected, the user's line."""
        rows = [
            (check.kind.value, expression, expected, str(location or ""))
            for check, expression, expected, location in self.facts()
        ]
        rows.insert(0, ("kind", "expression", "expected", "because of"))
        widths = [min(max(len(row[i]) for row in rows), 60) for i in range(3)]
        return "\n".join(_table_line(row, widths) for row in rows)


def _table_line(row: tuple[str, ...], widths: list[int]) -> str:
    """A row's cells in columns; the last one takes the rest of the line."""
    *cells, last = row
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([*padded, last]).rstrip()


@record(frozen=False)
class _Node:
    """An object that the program loads, with its tests and what is loaded from it."""

    step: Step
    of_class: bool = False
    """Whether the path begins with a class, which its sources would keep alive."""

    tests: list[tuple[Test, Check]] = field(default_factory=list)
    children: dict[Step, _Node] = field(default_factory=dict)

    def child(self, step: Step) -> _Node:
        """The node loaded from this one by a step."""
        key = (step[0], id(step[1])) if step[0] in ("constant", "call") else step
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = _Node(step, self.of_class or step[0] == "constant")
        return found


class _TreeBuilder:
    """Places guards in a tree."""

    def __init__(self, code: CodeType) -> None:
        self.root = _Node(())
        self.code = code
        self.groups = 0
        self._nodes: dict[int, _Node] = {}
        """By the identity of sources, which share their beginnings and outlive the builder."""

    def node(self, source: Source) -> _Node:
        """The node of what a source names."""
        found = self._nodes.get(id(source))
        if found is not None:
            return found
        base = source.base
        found = self.root if base is None else self.node(base)
        for step in self._program_steps(source.step):
            found = found.child(step)
        self._nodes[id(source)] = found
        return found

    def _program_steps(self, step: Step) -> tuple[Step, ...]:
        """A source's step in the program's smaller vocabulary."""
        match step:
            case ("global", None, name):
                return ("globals",), ("dict_item", name)
            case ("global", module, name):
                return ("modules",), ("dict_item", module), ("instance_dict",), ("dict_item", name)
            case ("builtin", name):
                return ("builtins",), ("dict_item", name)
            case ("module", name):
                return ("modules",), ("dict_item", name)
            case ("cell", name):
                return (("cell", self.code.co_freevars.index(name)),)
            case ("instance", name):
                return ("instance_dict",), ("dict_item", name)
            case ("own_item" | "own_dict_item" as name, key):
                return ((name.removeprefix("own_"), key),)
            case ("dict_values",):
                return ()
            case ("referent", reference):
                return (("constant", reference),)
            case ("constant", type() as cls):
                return (("constant", weakref.ref(cls)),)
            case _:
                return (step,)

    def group(self) -> int:
        """A number for objects that are compared with each other."""
        self.groups += 1
        return self.groups - 1

    def add(
        self, node: _Node, guard: Guard, test: str, expected: Any, subject: Source | str
    ) -> None:
        """Put a test on a node. The type comes first: the other tests rely on it."""
        described = isinstance(expected, TensorPattern | StateReading | Placement | SizesExpected)
        operand = expected.metadata if described else expected
        if isinstance(subject, Source) and node.of_class:
            subject = subject.expression()
        check = Check(guard.kind, test, subject, _hold(test, expected), guard.location)
        position = 0 if test == "type" else len(node.tests)
        node.tests.insert(position, ((test, operand), check))


_WEAK_TESTS = frozenset({"is", "type", "code"})


def _hold(test: str, expected: Any) -> Any:
    """The object itself, or a weak reference to it where the program holds it weakly too."""
    if test not in _WEAK_TESTS:
        return expected
    try:
        return weakref.ref(expected)
    except TypeError:
        return expected


_PLAIN_TESTS = {
    GuardKind.TYPE: "type",
    GuardKind.IDENTITY: "is",
    GuardKind.CODE: "code",
    GuardKind.EQUALS: "equals",
    GuardKind.LENGTH: "length",
    GuardKind.DICT_KEYS: "keys",
    GuardKind.DICT_CONTAINS: "contains",
    GuardKind.DICT_ABSENT: "lacks",
    GuardKind.SET_EQUALS: "members",
    GuardKind.ATTRIBUTE_ABSENT: "lacks_attribute",
    GuardKind.PRESENT: "present",
    GuardKind.CLASS_ABSENT: "type_lacks",
}
"""The kinds that are one test of the object itself."""

_DICTIONARY_TESTS = {GuardKind.ATTRIBUTES: "keys", GuardKind.ABSENT: "lacks"}
"""The kinds that are one test of the object's dictionary."""


def _place(tree: _TreeBuilder, guard: Guard) -> None:
    """Put a guard's tests on the tree."""
    source, expected = guard.source, guard.expected
    if source is None:
        _place_without_source(tree, guard)
    elif guard.kind in _PLAIN_TESTS:
        tree.add(tree.node(source), guard, _PLAIN_TESTS[guard.kind], expected, source)
    elif guard.kind in _DICTIONARY_TESTS:
        node = tree.node(source).child(("instance_dict",))
        tree.add(node, guard, _DICTIONARY_TESTS[guard.kind], expected, source)
    elif guard.kind is GuardKind.TENSOR:
        pattern = expected if isinstance(expected, TensorPattern) else TensorPattern.of(expected)
        tree.add(tree.node(source), guard, "tensor", pattern, source)
        tree.add(tree.node(source), guard, "type", pattern.type, source)
    elif guard.kind is GuardKind.SAME:
        group = tree.group()
        for each in (source, expected):
            tree.add(tree.node(each), guard, "same", group, each)
    else:
        raise ValueError(f"a guard of kind {guard.kind.value!r} has no source")


def _place_without_source(tree: _TreeBuilder, guard: Guard) -> None:
    """Put the tests of guards that compare several objects, or none."""
    match guard.kind:
        case GuardKind.DISTINCT:
            group = tree.group()
            for each in guard.expected:
                tree.add(tree.node(each), guard, "distinct", group, each)
        case GuardKind.MEMORY:
            for each, placement in guard.expected:
                tree.add(tree.node(each), guard, "storage", placement, each)
        case GuardKind.SHAPES:
            objects, code = guard.expected.objects(), guard.expected.code()
            for each, reads in objects.items():
                expected = SizesExpected(guard.expected, tuple(reads), len(objects), code)
                tree.add(tree.node(each), guard, "sizes", expected, each)
        case GuardKind.GLOBAL_STATE:
            state = guard.expected if guard.expected is not None else GlobalState.now()
            _place_global_state(tree, guard, state)
        case _:
            raise ValueError(f"a guard of kind {guard.kind.value!r} needs a source")


def _place_global_state(tree: _TreeBuilder, guard: Guard, state: GlobalState) -> None:
    thread = tree.root.child(("thread",))
    tree.add(thread, guard, "grad_mode", state.grad_mode, "grad mode")
    if state.dispatch_state is not None:
        name = "inference mode, autocast, dispatch modes and functorch levels"
        tree.add(thread, guard, "dispatch_state", state.dispatch_state, name)
    for reading in state.states:
        tree.add(thread, guard, "state", reading, reading.words)
    for name, read, value in state.readings:
        test = (
            "equals"
            if isinstance(value, (int, str, torch.dtype, torch.device, type(None)))
            else "is"
        )
        tree.add(tree.root.child(("call", read)), guard, test, value, name)


def _walk(root: _Node) -> Iterator[tuple[int, _Node]]:
    """A node's descendants with their depths, each after its parent."""
    pending = [(0, child) for child in reversed(root.children.values())]
    while pending:
        depth, node = pending.pop()
        yield depth, node
        pending += [(depth + 1, child) for child in reversed(node.children.values())]


def build_guards(guards: Iterable[Guard], code: CodeType) -> GuardSet:
    """The guards of a compiled function, made to be checked at each call.

    `code` is that of the frame that was captured; its closure cells are numbered in it.
    ValueError: a guard cannot be checked (a tensor without plain sizes, a source that the frame
    does not have).
    """
    tree = _TreeBuilder(code)
    for guard in guards:
        _place(tree, guard)
    placed = list(_walk(tree.root))
    names = tuple(node.step[1] for depth, node in placed if node.step[0] == "local")
    nodes = tuple(
        (depth, node.step, tuple(test for test, _ in node.tests)) for depth, node in placed
    )
    checks = tuple(check for _, node in placed for _, check in node.tests)
    return GuardSet(GuardProgram(names, nodes), checks)
