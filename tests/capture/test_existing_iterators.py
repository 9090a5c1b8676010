"""Iterators that exist when capture begins: that of a loop which a graph break interrupted, and
those that a function is given. Behind one break the rest of a loop is one graph again.
"""

# ruff: noqa (these programs are meant to use every form of a loop)

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.capture.directives import graph_break
from tests.capture.agreement import assert_same

X = torch.arange(12.0).reshape(3, 4) / 5 - 1


def each_round(x: Any) -> Any:
    """A loop that breaks in each of many rounds."""
    for _ in range(40):
        x = x * 2 - 1
        graph_break()
    return x


def test_a_loop_that_breaks_in_each_round_is_captured_for_all_rounds() -> None:
    for dynamic in (None, False):
        compiled = api.compile(each_round, backend="eager", dynamic=dynamic)
        for _ in range(2):
            assert_same(compiled(X.clone()), each_round(X.clone()))
        assert compiled.compiler.capture_count < 5


def alternately(x: Any, left: Any, right: Any) -> Any:
    """Two iterators, which may be one."""
    return x + next(left) * 100 + next(right) * 10 + next(left), next(right, None)


def test_iterators_that_are_the_same() -> None:
    compiled = api.compile(alternately, backend="eager")
    for is_one in (False, True, False):
        found = []
        for function in (compiled, alternately):
            left = iter([1, 2, 3, 4, 5])
            right = left if is_one else iter([1, 2, 3, 4, 5])
            found.append((function(X, left, right), list(left), list(right)))
        assert_same(*found)


def pairs_of_one(x: Any, iterator: Any) -> Any:
    """Items in pairs, then one directly."""
    found = []
    for a, b in zip(iterator, iterator):
        found.append(a * 10 + b)
        if len(found) == 2:
            break
    return x + found[0], found, next(iterator, None)


def maps_with_effects(x: Any, iterator: Any) -> Any:
    """A function that leaves something behind each time it is called, and raises once."""
    seen = []

    def look(item: Any) -> Any:
        seen.append(item)
        if item == 3:
            raise KeyError(item)
        return item * 2

    mapped = map(look, iterator)
    graph_break()
    found = []
    try:
        for item in mapped:
            found.append(x + item)
    except KeyError as error:
        found.append(str(error))
    return found, seen, next(iterator, None)


def takes_then_changes(x: Any, iterator: Any, items: Any) -> Any:
    """An item before a list gets longer, and items behind that."""
    first = next(iterator)
    items.append(x + 1)
    return x, first, next(iterator), next(iterator), items


def changes_then_takes(x: Any, iterator: Any, items: Any) -> Any:
    """A list that gets shorter before an item is taken."""
    items.pop()
    return x + 1, next(iterator), next(iterator, "end"), items


def takes_then_clears(x: Any, iterator: Any, items: Any) -> Any:
    """A list that is emptied behind the last item that is taken of it."""
    found = next(iterator), next(iterator)
    items.clear()
    return x + 1, found


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize(
    "function",
    [takes_then_changes, changes_then_takes, takes_then_clears],
    ids=lambda each: each.__name__,
)
def test_a_chain_goes_through_what_changes(function: Callable[..., Any], steps: int) -> None:
    compiled = api.compile(function, backend="eager")
    for _ in range(2):
        found = []
        for each in (compiled, function):
            items, more = [1, 2, 3], [4, 5]
            iterator = itertools.chain(items, more)
            for _ in range(steps):
                next(iterator)
            found.append((each(X, iterator, items), items, list(iterator)))
        assert_same(*found)


def two_of_one(x: Any, chain: Any, inner: Any) -> Any:
    """A chain, and an iterator that it goes through."""
    return x + next(chain), next(inner, None), next(chain, None), list(chain)


@pytest.mark.parametrize("steps", [0, 1])
def test_an_iterator_that_a_chain_goes_through_is_moved_on_once(steps: int) -> None:
    compiled = api.compile(two_of_one, backend="eager")
    for _ in range(2):
        found = []
        for each in (compiled, two_of_one):
            inner = iter([1, 2, 3, 4])
            chain = itertools.chain(inner, [5, 6])
            for _ in range(steps):
                next(chain)
            found.append((each(X, chain, inner), list(chain), list(inner)))
        assert_same(*found)


def changes_then_takes_of_a_deque(x: Any, iterator: Any, items: Any) -> Any:
    """A deque that is changed before an item is taken."""
    items.append(x)
    return x + 1, next(iterator)


def takes_then_changes_a_deque(x: Any, iterator: Any, items: Any) -> Any:
    """A deque that is changed behind the last item that is taken of it."""
    found = next(iterator), next(iterator)
    items.rotate(1)
    items.append(x + 1)
    return x + 1, found


def takes_and_changes_a_deque(x: Any, iterator: Any, items: Any) -> Any:
    """A deque that is changed between two items that are taken of it, and items that are set."""
    found = [next(iterator)]
    items[1] = x
    found.append(next(iterator))
    items.popleft()
    found.append(next(iterator))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("direction", [iter, reversed])
@pytest.mark.parametrize(
    "function",
    [changes_then_takes_of_a_deque, takes_then_changes_a_deque, takes_and_changes_a_deque],
    ids=lambda each: each.__name__,
)
def test_a_deque_is_not_to_change(function: Callable[..., Any], direction: Any) -> None:
    compiled = api.compile(function, backend="eager")
    for _ in range(2):
        found: list[Any] = []
        for each in (compiled, function):
            items = collections.deque([1, 2, 3, 4])
            try:
                result = each(X, direction(items), items)
            except RuntimeError as error:
                result = str(error)
            found.append((result, items))
        assert_same(*found)


def grows(x: Any, items: Any) -> Any:
    """A loop over a deque that gets longer."""
    for item in items:
        x = x + item
        if len(items) < 8:
            items.append(7)
    return x


def turns(x: Any, items: Any) -> Any:
    """A deque that is turned and stays as long as it is."""
    iterator = reversed(items)
    first = next(iterator)
    items.rotate(1)
    return x + first + next(iterator)


def sets_items(x: Any, items: Any) -> Any:
    """A deque whose items alone are changed."""
    for item in items:
        items[3] = 9
        x = x + item
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [grows, turns, sets_items], ids=lambda each: each.__name__)
def test_a_loop_over_a_deque_that_changes(function: Callable[..., Any]) -> None:
    compiled = api.compile(function, backend="eager")
    found: list[Any] = []
    for each in (compiled, function):
        items = collections.deque([1, 2, 3, 4])
        try:
            result = each(X, items)
        except RuntimeError as error:
            result = str(error)
        found.append((result, items))
    assert_same(*found)


def already_enumerated(x: Any, numbered: Any, iterator: Any) -> Any:
    """An iterator inside of another that is given too."""
    return x + next(numbered)[1], next(iterator), next(numbered), list(iterator)


def test_iterators_inside_of_others() -> None:
    for function in (pairs_of_one, already_enumerated, maps_with_effects):
        compiled = api.compile(function, backend="eager")
        for length in (5, 5, 8):
            found = []
            for each in (compiled, function):
                iterator = iter(list(range(length)))
                numbered = function is already_enumerated
                given = (enumerate(iterator), iterator) if numbered else (iterator,)
                found.append((each(X, *given), [list(item) for item in given]))
            assert_same(*found)


def counts_on(x: Any) -> Any:
    """A loop without an end of its own, which breaks in each round."""
    for number in itertools.count(1):
        x = x + number
        graph_break()
        if number == 12:
            return x


def rounds_of_an_ordered_dict(x: Any, table: Any) -> Any:
    """A loop that breaks in each round."""
    for _ in table:
        x = x * 2 - 1
        graph_break()
    return x


def test_rounds_over_an_ordered_dict_do_not_use_up_the_limit() -> None:
    table = collections.OrderedDict((f"k{number}", number) for number in range(30))
    compiled = api.compile(rounds_of_an_ordered_dict, backend="eager")
    for _ in range(2):
        assert_same(compiled(X, table), rounds_of_an_ordered_dict(X, table))
    assert compiled.compiler.capture_count < 6


def test_a_count_goes_on_for_all_rounds() -> None:
    compiled = api.compile(counts_on, backend="eager")
    for _ in range(2):
        assert_same(compiled(X.clone()), counts_on(X.clone()))
    assert compiled.compiler.capture_count < 8


def takes_of_an_endless_one(x: Any, iterator: Any) -> Any:
    """Two items, and what the iterator is then."""
    return x + next(iterator), next(iterator), iterator


@pytest.mark.parametrize(
    "make",
    [lambda: itertools.count(2.5, 2), lambda: itertools.count(7), lambda: itertools.repeat(3)],
)
def test_an_endless_iterator_is_left_where_eager_leaves_it(make: Callable[[], Any]) -> None:
    compiled = api.compile(takes_of_an_endless_one, backend="eager")
    for skipped in (0, 3, 5):
        mine, theirs = make(), make()
        for iterator in (mine, theirs):
            for _ in range(skipped):
                next(iterator)
        *found, same = compiled(X, mine)
        assert same is mine
        assert_same(found, list(takes_of_an_endless_one(X, theirs)[:2]))
        assert next(mine) == next(theirs)


def grows(x: Any) -> Any:
    """A list that grows behind the break, while a loop goes through it."""
    items = [1, 2, 3]
    for item in items:
        if item == 2:
            graph_break()
        x = x * item
        if item in (2, 3):
            items.append(item + 2)
    else:
        x = x + 100
    return x, items


def changes_its_size(x: Any) -> Any:
    """A dict that grows behind the break, while a loop goes through it."""
    table = {1: x, 2: x + 1, 3: x + 2}
    seen = []
    try:
        for key in table:
            seen.append(key)
            if key == 1:
                graph_break()
            if key == 2:
                table[9] = x
    except RuntimeError as error:
        return x + len(seen), str(error), table
    return x


def nested(x: Any) -> Any:
    """A break in the inner of two loops, and leaving both."""
    found = []
    for i in range(4):
        for j, name in enumerate("abc"):
            if i == 1 and j == 1:
                graph_break()
            x = x + i * j
            found.append(name)
            if i == 2:
                break
        else:
            continue
        break
    return x, found


@pytest.mark.parametrize("function", [grows, changes_its_size, nested], ids=lambda f: f.__name__)
def test_a_loop_behind_a_break(function: Callable[..., Any]) -> None:
    compiled = api.compile(function, backend="eager")
    for _ in range(3):
        assert_same(compiled(X.clone()), function(X.clone()))


def hands_on(x: Any, iterator: Any) -> Any:
    """Nothing is taken: any iterator will do."""
    return x + 1, iterator


def test_an_iterator_that_is_handed_on_is_not_looked_into() -> None:
    compiled = api.compile(hands_on, backend="eager", fullgraph=True)
    for items in ([1, 2], [], [3] * 50):
        iterator = iter(items)
        assert compiled(X, iterator)[1] is iterator
    assert compiled.compiler.capture_count == 1


CONTAINERS: dict[str, Callable[[], Any]] = {
    "set": lambda: {1, 2, 3},
    "dict": lambda: {1: 1, 2: 2, 3: 3},
    "ordered": lambda: collections.OrderedDict({1: 1, 2: 2, 3: 3}),
    "deque": lambda: collections.deque([1, 2, 3]),
    "list": lambda: [1, 2, 3],
}


def grow(container: Any, item: int) -> None:
    if isinstance(container, set):
        container.add(item)
    elif isinstance(container, list | collections.deque):
        container.append(item)
    else:
        container[item] = item


def grows_before_the_break(container: Any, out: list[Any]) -> None:
    for item in container:
        out.append(item)
        grow(container, len(out) + 50)
        graph_break()
        if len(out) > 6:
            break


def grows_behind_the_break(container: Any, out: list[Any]) -> None:
    for item in container:
        graph_break()
        out.append(item)
        grow(container, len(out) + 50)
        if len(out) > 6:
            break


def grows_between_breaks(container: Any, out: list[Any]) -> None:
    iterator = iter(container)
    out.append(next(iterator))
    graph_break()
    out.append(next(iterator))
    grow(container, 70)
    graph_break()
    out.append(next(iterator))


def grows_between_items(container: Any, out: list[Any]) -> None:
    iterator = iter(container)
    out.append(next(iterator))
    graph_break()
    out.append(next(iterator))
    grow(container, 70)
    out.append(next(iterator))


def grows_when_all_are_taken(container: Any, out: list[Any]) -> None:
    iterator = iter(container)
    out += list(iterator)
    grow(container, 70)
    graph_break()
    out.append(next(iterator, "end"))
    grow(container, 80)
    graph_break()
    out.append(next(iterator, "end"))


def is_emptied_and_filled_again(container: Any, out: list[Any]) -> None:
    iterator = iter(container)
    out.append(next(iterator))
    graph_break()
    container.clear()
    out.append(next(iterator, "end"))
    for item in range(9):
        grow(container, item)
    graph_break()
    out.append(next(iterator, "end"))


def grows_at_its_end(container: Any, out: list[Any]) -> None:
    iterator = iter(container)
    out += next(iterator), next(iterator), next(iterator)
    graph_break()
    grow(container, 70)
    out.append(next(iterator, "end"))
    graph_break()
    grow(container, 80)
    out.append(next(iterator, "end"))


def grows_under_other_iterators(container: Any, out: list[Any]) -> None:
    iterator = enumerate(map(str, itertools.chain(container, [5])))
    out.append(next(iterator))
    graph_break()
    out.append(next(iterator))
    grow(container, 70)
    graph_break()
    out.append(next(iterator))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize(
    "use",
    [
        grows_before_the_break,
        grows_behind_the_break,
        grows_between_breaks,
        grows_between_items,
        grows_when_all_are_taken,
        is_emptied_and_filled_again,
        grows_at_its_end,
        grows_under_other_iterators,
    ],
    ids=lambda use: use.__name__,
)
def test_a_container_that_grows_while_it_is_iterated(use: Any, kind: str) -> None:
    """Python raises for most, at the next item, whoever takes it."""

    def given(container: Any) -> Any:
        out: list[Any] = []
        try:
            use(container, out)
        except RuntimeError as error:
            return out, error.args
        return out

    def inside(x: Any) -> Any:
        return x + 1, given(CONTAINERS[kind]())

    compiled, compiled_inside = (api.compile(f, backend="eager") for f in (given, inside))
    for _ in range(2):
        assert compiled(CONTAINERS[kind]()) == given(CONTAINERS[kind]())
        assert compiled_inside(X)[1] == inside(X)[1]
