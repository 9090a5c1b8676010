"""Attributes that are reached as an object's and as the items of its `__dict__`: what is written by
one way is read by the other.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from fusewright import api

X = torch.arange(3.0)


class Plain:
    """An object with whatever attributes it is given."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class AttributeDict(dict[str, Any]):
    """A dict that is its own `__dict__`, as settings often are."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.__dict__ = self


class Borg:
    """Objects that share their state."""

    state: ClassVar[dict[str, Any]] = {"a": 1}

    def __init__(self) -> None:
        self.__dict__ = self.state


class Module(torch.nn.Module):
    """A module with an attribute and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.scale


def with_dictionary() -> Any:
    found = Plain(a=1)
    return found, vars(found)


def dictionary_first() -> Any:
    return with_dictionary()[::-1]


def module_with_dictionary() -> Any:
    found = Module()
    return found, vars(found)


def sharing() -> Any:
    left, right = Plain(), Plain()
    left.__dict__ = right.__dict__ = {"a": 1}
    return left, right


def settings() -> Any:
    return (AttributeDict(a=2),)


def writes_attribute(x: Any, owner: Any, attributes: Any) -> Any:
    owner.a = 5
    return x + attributes["a"]


def writes_item(x: Any, attributes: Any, owner: Any) -> Any:
    attributes["a"] = 5
    return x + owner.a


def writes_after_both_were_read(x: Any, owner: Any, attributes: Any) -> Any:
    y = x + attributes["a"] + owner.a
    attributes["a"] = 7
    y = y + owner.a
    owner.a = x
    return y + attributes["a"]


def adds(x: Any, owner: Any, attributes: Any) -> Any:
    attributes["b"] = 7
    owner.c = 3
    return x, hasattr(owner, "b"), "c" in attributes, list(attributes), list(vars(owner))


def deletes(x: Any, owner: Any, attributes: Any) -> Any:
    del attributes["a"]
    owner.b = 1
    del owner.b
    return x, hasattr(owner, "a"), len(attributes)


def compares(x: Any, owner: Any, attributes: Any) -> Any:
    return x, owner.__dict__ is attributes, attributes is vars(owner), vars(owner) is vars(owner)


def sets_a_tensor(x: Any, module: Any, attributes: Any) -> Any:
    attributes["scale"] = x + 1
    return module(x), attributes["scale"]


def writes_setting(x: Any, found: Any) -> Any:
    y = x * found.a
    found["a"] = 3
    y = y + found.a
    found.b = 4
    return y + found["b"], found.pop("a"), hasattr(found, "a")


def writes_one_of_two(x: Any, left: Any, right: Any) -> Any:
    left.a = x + 1
    right.b = 2
    return right.a + left.b


def makes_settings(x: Any) -> Any:
    found = AttributeDict(a=2)
    found.b = x
    found["c"] = 4
    return found, found["b"] + found.a + found.c


def makes_borgs(x: Any) -> Any:
    left, right = Borg(), Borg()
    left.b = 3
    y = x + right.b + right.a
    del right.b
    return y, hasattr(left, "b")


PROGRAMS: list[tuple[Callable[..., Any], Callable[[], Any]]] = [
    (writes_attribute, with_dictionary),
    (writes_item, dictionary_first),
    (writes_after_both_were_read, with_dictionary),
    (adds, with_dictionary),
    (deletes, with_dictionary),
    (compares, with_dictionary),
    (sets_a_tensor, module_with_dictionary),
    (writes_setting, settings),
    (writes_one_of_two, sharing),
    (makes_settings, tuple),
    (makes_borgs, tuple),
]


def plain(found: Any) -> Any:
    """Results and arguments as text, each with its attributes."""
    if isinstance(found, torch.nn.Module):
        return [str(found), str(found.scale), str(found.weight)]
    if isinstance(found, Plain):
        return plain(vars(found))
    if isinstance(found, dict):
        return [(key, plain(item)) for key, item in found.items()]
    return [plain(item) for item in found] if isinstance(found, tuple) else str(found)


@pytest.mark.parametrize(
    ("function", "make"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS]
)
def test_one_place_for_both(function: Callable[..., Any], make: Callable[[], Any]) -> None:
    compiled = api.compile(function, backend="eager", fullgraph=True)
    expected = make()
    result = plain(function(X, *expected))
    for _ in range(2):
        arguments = make()
        assert plain(compiled(X, *arguments)) == result
        assert plain(arguments) == plain(expected)


def test_another_dict_first() -> None:
    """What was compiled for a dict of its own is not run for the object's."""
    compiled = api.compile(writes_attribute, backend="eager", fullgraph=True)
    assert compiled(X, Plain(a=1), {"a": 2}).tolist() == (X + 2).tolist()
    assert compiled(X, *with_dictionary()).tolist() == (X + 5).tolist()
    assert compiled(X, Plain(a=1), {"a": 2}).tolist() == (X + 2).tolist()


def test_a_dictionary_is_replaced() -> None:
    """An existing object gets another `__dict__`: outside the graph."""

    def function(x: Any, owner: Any) -> Any:
        owner.__dict__ = {"a": 9}
        return x + owner.a

    compiled = api.compile(function, backend="eager")
    assert compiled(X, Plain(a=1)).tolist() == (X + 9).tolist()


COUNT = 1


def writes_global(x: Any, variables: Any) -> Any:
    global COUNT
    COUNT = 5
    y = x + variables["COUNT"]
    variables["COUNT"] = 1
    return y + COUNT, variables is globals(), "COUNT" in variables


def writes_module(x: Any, module: Any) -> Any:
    vars(module)["first"] = 5
    y = x + module.first
    module.second = 3
    y = y + vars(module)["second"]
    del module.second
    return y, [name for name in vars(module) if name[0] != "_"]


def calls_with_globals(x: Any, variables: Any) -> Any:
    variables["VALUE"] = 6
    y = variables["function"](x)
    variables["VALUE"] = 4
    return y


def test_dicts_of_global_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the function's own module, of another module, and of code that was executed."""
    module = types.ModuleType("some_module")
    vars(module).update(first=1, second=2)
    monkeypatch.setitem(sys.modules, "some_module", module)
    executed: dict[str, Any] = {"VALUE": 4}
    exec("def function(x): return x + VALUE", executed)

    for function, argument in (
        (writes_global, globals()),
        (writes_module, module),
        (calls_with_globals, executed),
    ):
        compiled = api.compile(function, backend="eager")
        results = []
        for call in (function, compiled, compiled):
            vars(module).update(first=1, second=2)
            results.append(plain(call(X, argument)))
        assert results[0] == results[1] == results[2]
    assert COUNT == 1


class Setting:
    level = 1


def test_a_class_that_is_written_to_is_seen_through_its_mapping() -> None:
    def write_and_read(x: torch.Tensor) -> Any:
        Setting.level += 1
        return x, vars(Setting)["level"]

    def read_what_was_there(x: torch.Tensor) -> Any:
        shown = vars(Setting)
        Setting.level += 1
        return x, shown["level"]

    for number, function in enumerate([write_and_read, read_what_was_there] * 2):
        assert api.compile(function, backend="eager")(X) == (X, number + 2)
