"""Views of dicts and mapping proxies that exist when capture begins: they show what the mapping
holds, which is read and guarded as that of the mapping itself.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from tests.capture.agreement import assert_same, check

X = torch.arange(12.0).reshape(3, 4) / 5 - 1


class Table(dict[Any, Any]):
    """A dict whose own methods its views go past."""

    def __iter__(self) -> Any:
        raise AssertionError("views do not ask the class")

    __getitem__ = keys = __len__ = __iter__  # type: ignore[assignment]


def filled(kind: Any) -> Any:
    """A mapping of a class with tensors and numbers."""
    mapping = kind()
    for number, name in enumerate(("b", "a", 3)):
        dict.__setitem__(mapping, name, X + number) if number else mapping.update({name: 5})
    return mapping


def ordered() -> Any:
    mapping = collections.OrderedDict(filled(dict))
    mapping.move_to_end("b")
    return mapping


MAPPINGS: dict[str, Callable[[], Any]] = {
    "dict": lambda: filled(dict),
    "empty": dict,
    "ordered": ordered,
    "default": lambda: filled(lambda: collections.defaultdict(int)),
    "own class": lambda: filled(Table),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "keys": lambda mapping: dict.keys(mapping),
    "values": lambda mapping: dict.values(mapping),
    "items": lambda mapping: dict.items(mapping),
}


def view_of(mapping: Any, kind: str) -> Any:
    """A view as the class written in C gives it."""
    is_ordered = isinstance(mapping, collections.OrderedDict)
    return getattr(collections.OrderedDict if is_ordered else dict, kind)(mapping)


READS: dict[str, Callable[..., Any]] = {
    "loop": lambda x, view: (x + 1, list(view), [*view]),
    "backwards": lambda x, view: (x + 1, list(reversed(view))),
    "length": lambda x, view: x + len(view),
    "truth": lambda x, view: x + 1 if view else x - 1,
    "first": lambda x, view: (x + 1, next(iter(view), None)),
    "unpacked": lambda x, view: (x + 1, [*view], dict(enumerate(view))),
    "class": lambda x, view: (x + 1, type(view).__name__, isinstance(view, collections.abc.Sized)),
    "handed on": lambda x, view: (x + 1, [view])[1][0] is view,
}


def agree(function: Callable[..., Any], *makers: Callable[[], Any]) -> None:
    """Call the compiled function and the function on two sets of arguments of their own."""
    compiled = api.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        mine, theirs = [make() for make in makers], [make() for make in makers]
        assert_same(compiled(X, *mine), function(X, *theirs))
    assert compiled.compiler.capture_count == 1


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_view_that_exists_is_read_as_its_dict_is(mapping: str, kind: str, read: str) -> None:
    agree(READS[read], lambda: view_of(MAPPINGS[mapping](), kind))


SET_OPERATIONS: dict[str, Callable[..., Any]] = {
    "in": lambda x, view, other: (x + 1, "a" in view, ("b", 5) in view, 9 in view),
    "and": lambda x, view, other: (x + 1, view & other, other & view, view & {"a"}),
    "or": lambda x, view, other: (x + 1, sorted(map(str, view | other))),
    "minus": lambda x, view, other: (x + 1, view - other, other - view),
    "either": lambda x, view, other: (x + 1, sorted(map(str, view ^ other))),
    "compared": lambda x, view, other: (x + 1, view == other, view <= other, view != {"a"}),
    "disjoint": lambda x, view, other: (x + 1, view.isdisjoint(other), view.isdisjoint([9])),
}


@pytest.mark.parametrize("operation", SET_OPERATIONS)
@pytest.mark.parametrize("kind", ["keys", "items"])
def test_views_are_sets(operation: str, kind: str) -> None:
    table, other = {"a": 1, "b": 5, 3: 2}, {"b": 5, "c": 1}
    agree(SET_OPERATIONS[operation], lambda: view_of(table, kind), lambda: view_of(other, kind))


def writes_to_the_dict(x: Any, table: Any, view: Any) -> Any:
    """What is written to the dict is in the view."""
    before = list(view)
    table["new"] = x + 1
    table["a"] = x * 2
    return before, list(view), len(view), view


def changes_while_looping(x: Any, table: Any, view: Any) -> Any:
    """A dict that grows while a loop goes through its view."""
    try:
        for _ in view:
            table["more"] = x
    except RuntimeError as error:
        return x + 1, str(error), table
    return x


@pytest.mark.parametrize("function", [writes_to_the_dict, changes_while_looping])
@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("mapping", ["dict", "ordered"])
def test_a_view_shows_what_the_program_writes(
    function: Callable[..., Any], kind: str, mapping: str
) -> None:
    compiled = api.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        tables = MAPPINGS[mapping](), MAPPINGS[mapping]()
        views = [view_of(table, kind) for table in tables]
        found, expected = compiled(X, tables[0], views[0]), function(X, tables[1], views[1])
        if function is writes_to_the_dict:
            assert found[-1] is views[0]
            found, expected = found[:-1], expected[:-1]
        assert_same((found, tables[0]), (expected, tables[1]))
    assert compiled.compiler.capture_count == 1


def adds_up(x: Any, view: Any) -> Any:
    """Every item that is shown."""
    for item in view:
        x = x * 2 + (item if isinstance(item, int) else item[1])
    return x


def test_what_a_view_shows_is_guarded() -> None:
    table = {"a": 1, "b": 2}
    compiled = api.compile(adds_up, backend="eager", fullgraph=True, dynamic=False)
    for view in (table.values(), table.items()):
        before = compiled.compiler.capture_count
        assert_same(compiled(X, view), adds_up(X, view))
        assert compiled.compiler.capture_count == before + 1
        for change in ({"a": 3}, {"c": 4}, {}):
            table.update(change)
            assert_same(compiled(X, view), adds_up(X, view))
        assert compiled.compiler.capture_count == before + 3
        del table["c"]
        table["a"] = 1


def test_only_the_key_that_is_asked_for_is_guarded() -> None:
    compiled = api.compile(
        lambda x, view: x + 1 if "a" in view else x - 1, backend="eager", fullgraph=True
    )
    for table in ({"a": 1}, {"b": 2, "a": 3}, {}, {"b": 1}):
        assert_same(compiled(X, table.keys()), X + 1 if "a" in table else X - 1)
    assert compiled.compiler.capture_count == 2


def two_views(x: Any, left: Any, right: Any) -> Any:
    """Two views, of one dict or of two."""
    return x + len(left) * 10 + len(right), left is right, left == right


def test_views_of_one_dict_and_of_two() -> None:
    one, other = {"a": 1}, {"a": 1, "b": 2}
    compiled = api.compile(two_views, backend="eager", fullgraph=True)
    same = one.keys()
    for views in ((same, same), (one.keys(), one.keys()), (one.keys(), other.keys())) * 2:
        assert_same(compiled(X, *views), two_views(X, *views))


def test_a_view_in_an_object_and_in_a_closure() -> None:
    table = {"a": X, "b": X + 1}
    holder = types.SimpleNamespace(values=table.values())

    def function(x: Any) -> Any:
        return x + sum(holder.values), list(names)

    names = table.keys()
    check(function, X, graphs=1)
    compiled = api.compile(function, backend="eager", fullgraph=True)
    compiled(X)
    table["c"] = X * 3
    assert_same(compiled(X), function(X))


def test_a_view_of_an_ordered_dict_as_of_a_plain_one_keeps_its_own_order() -> None:
    def function(x: Any, view: Any) -> Any:
        return x + 1, list(view)

    view = dict.keys(ordered())
    assert list(view) != list(ordered().keys())
    compiled = api.compile(function, backend="eager")
    assert_same(compiled(X, view), function(X, view))


def returns_views(x: Any, table: Any) -> Any:
    """Views that are made here, of a dict that exists and of a new one."""
    new = collections.OrderedDict(a=x, b=2)
    new.move_to_end("a")
    table.move_to_end("a")
    return x + 1, table.keys(), table.items(), new.values(), {"a": 1}.keys()


def test_views_that_are_returned_are_of_the_class_of_the_dict() -> None:
    compiled = api.compile(returns_views, backend="eager", fullgraph=True)
    mine, theirs = ordered(), ordered()
    for one, other in zip(compiled(X, mine), returns_views(X, theirs), strict=True):
        assert type(one) is type(other)
        assert_same(list(one), list(other))


PROXIED: dict[str, Callable[..., Any]] = {
    "item": lambda x, proxy: x + proxy["b"],
    "missing": lambda x, proxy: (x + 1, proxy.get("z", 7), "z" in proxy, "a" in proxy),
    "loop": lambda x, proxy: (x + 1, list(proxy), list(reversed(proxy))),
    "views": lambda x, proxy: (x + 1, *(list(v) for v in (proxy.values(), proxy.items()))),
    "keys": lambda x, proxy: (x + len(proxy), proxy.keys() & {"a", "c"}),
    "copied": lambda x, proxy: (x + 1, dict(proxy), {**proxy}, proxy.copy()),
    "compared": lambda x, proxy: (x + 1, proxy == {"a": 1}, proxy != {}, proxy == proxy),
    "truth": lambda x, proxy: x + 1 if proxy else x - 1,
}


@pytest.mark.parametrize("read", PROXIED)
@pytest.mark.parametrize("mapping", ["dict", "ordered"])
def test_a_mapping_proxy_that_exists(mapping: str, read: str) -> None:
    if read == "copied":
        agree(PROXIED[read], lambda: types.MappingProxyType(MAPPINGS[mapping]()))
        return
    agree(PROXIED[read], lambda: types.MappingProxyType({**MAPPINGS[mapping](), "a": 2, 3: 4}))


def test_what_a_mapping_proxy_shows_is_guarded_and_cannot_be_written() -> None:
    table = {"a": 1, "b": 2}
    proxy = types.MappingProxyType(table)

    def function(x: Any, proxy: Any) -> Any:
        try:
            proxy["a"] = 3
        except TypeError as error:
            return x + proxy["a"], str(error), types.MappingProxyType({"c": x})
        return x

    compiled = api.compile(function, backend="eager", dynamic=False)
    for number in (1, 5):
        table["a"] = number
        (one, *rest), (other, *others) = compiled(X, proxy), function(X, proxy)
        assert_same(one, other)
        assert_same((rest[0], dict(rest[1])), (others[0], dict(others[1])))
