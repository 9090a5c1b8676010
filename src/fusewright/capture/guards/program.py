"""Turns guards into a program run in C.

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
from types import CodeType
from typing import Any, Final

from fusewright.capture.guards.guard_set import Check, GuardSet
from fusewright.capture.guards.kinds import Guard, GuardKind, Kind
from fusewright.capture.guards.states import global_state
from fusewright.capture.sources import (
    AttributeSource,
    BuiltinSource,
    CellContentsSource,
    CellSource,
    ConstantSource,
    DictItemSource,
    DictKeySource,
    DictValueSource,
    DictValuesSource,
    GlobalSource,
    InstanceSource,
    ItemSource,
    LocalSource,
    ModuleSource,
    NumberSource,
    ReducedSource,
    ReferentSource,
    ShownSource,
    Source,
    StateSource,
    ThreadSource,
    TypeAttributeSource,
)
from fusewright.native import GuardProgram
from fusewright.records import field, record

Step = tuple[Any, ...]
"""A load of an object from another, or from the frame; see native/guard_steps.c."""

Test = tuple[str, Any]


def build_guards(guards: Iterable[Guard], code: CodeType) -> GuardSet:
    """The guards of a compiled function, made to be checked at each call.

    `code` is that of the frame that was captured; its closure cells are numbered in it.
    ValueError: a guard cannot be checked (a source that the frame does not have, or none where
    there must be one).
    """
    tree = _TreeBuilder(code)
    for guard in guards:
        if guard.kind is GuardKind.GLOBAL_STATE and guard.source is None:
            for part in global_state():
                tree.add(part)
        else:
            tree.add(guard)
    placed = list(_walk(tree.root))
    names = tuple(node.step[1] for _, node in placed if node.step[0] == "local")
    nodes = tuple(
        (depth, node.step, tuple(test for test, _ in node.tests)) for depth, node in placed
    )
    checks = tuple(check for _, node in placed for _, check in node.tests)
    return GuardSet(GuardProgram(names, nodes), checks)


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
        node = self.children.get(key)
        if node is None:
            node = self.children[key] = _Node(step, self.of_class or step[0] == "constant")
        return node


STEPS: Final[dict[type[Source], Callable[[Any, CodeType], tuple[Step, ...]]]] = {
    LocalSource: lambda source, code: (("local", source.name),),
    GlobalSource: lambda source, code: _global_steps(source),
    BuiltinSource: lambda source, code: (("builtins",), ("dict_item", source.name)),
    ModuleSource: lambda source, code: (("modules",), ("dict_item", source.name)),
    CellSource: lambda source, code: (("cell", code.co_freevars.index(source.name)),),
    ConstantSource: lambda source, code: (("constant", _without_class(source.value)),),
    ReferentSource: lambda source, code: (("constant", source.value),),
    StateSource: lambda source, code: (("call", source.reader),),
    ThreadSource: lambda source, code: (("thread",),),
    CellContentsSource: lambda source, code: (("cell_contents",),),
    AttributeSource: lambda source, code: (("attribute", source.name),),
    InstanceSource: lambda source, code: (("instance_dict",), ("dict_item", source.name)),
    TypeAttributeSource: lambda source, code: (("type_attribute", source.name),),
    ItemSource: lambda source, code: (("item", source.index),),
    DictItemSource: lambda source, code: (("dict_item", source.key),),
    DictKeySource: lambda source, code: (("dict_key", source.index),),
    DictValuesSource: lambda source, code: (),
    DictValueSource: lambda source, code: (("dict_value", source.index),),
    NumberSource: lambda source, code: (("number",),),
    ReducedSource: lambda source, code: (("reduced",),),
    ShownSource: lambda source, code: (("shown",),),
}
"""The step from a source's base to the object that the source names, by the source's class, in the
frame of a code. A size or stride is read by the guard of shapes.
"""


def _global_steps(source: GlobalSource) -> tuple[Step, ...]:
    if source.module is None:
        return ("globals",), ("dict_item", source.name)
    module = ("modules",), ("dict_item", source.module)
    return (*module, ("instance_dict",), ("dict_item", source.name))


def _without_class(value: Any) -> Any:
    """A constant as the program holds it: a class only weakly."""
    return weakref.ref(value) if isinstance(value, type) else value


class _TreeBuilder:
    """Places guards in a tree."""

    def __init__(self, code: CodeType) -> None:
        self.root = _Node(())
        self.code = code
        self.groups = 0
        """The number of guards that compare objects with each other."""

        self._nodes: dict[int, _Node] = {}
        """Nodes by the identity of sources, which share their beginnings and outlive the
        builder.
        """

    def add(self, guard: Guard) -> None:
        """Put a guard's tests on the nodes of what they test."""
        kind = guard.kind
        for source, expected in kind.subjects(guard, self.groups):
            node = self.node(source)
            if kind.in_dictionary:
                node = node.child(("instance_dict",))
            operand = kind.operand(expected) if kind.operand else expected
            subject = source.expression() if node.of_class else source
            check = Check(kind, subject, _hold(kind, expected), guard.location)
            position = 0 if kind.is_first else len(node.tests)
            node.tests.insert(position, ((kind.test, operand), check))
        self.groups += kind.compares

    def node(self, source: Source) -> _Node:
        """The node of what a source names."""
        node = self._nodes.get(id(source))
        if node is not None:
            return node
        base = source.base
        node = self.root if base is None else self.node(base)
        for step in STEPS[type(source)](source, self.code):
            node = node.child(step)
        self._nodes[id(source)] = node
        return node


def _hold(kind: Kind, expected: Any) -> Any:
    """The object itself, or a weak reference to it where the program holds it weakly too."""
    if not kind.is_weak:
        return expected
    try:
        return weakref.ref(expected)
    except TypeError:
        return expected


def _walk(root: _Node) -> Iterator[tuple[int, _Node]]:
    """A node's descendants with their depths, each after its parent."""
    pending = [(0, child) for child in reversed(root.children.values())]
    while pending:
        depth, node = pending.pop()
        yield depth, node
        pending += [(depth + 1, child) for child in reversed(node.children.values())]
