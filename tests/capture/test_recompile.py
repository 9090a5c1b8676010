"""When captured code may be used again, and when it must not."""

from __future__ import annotations

import abc
import collections
import collections.abc
import concurrent.futures
import copy
import gc
import os
import pickle
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from fusewright import api
from fusewright.compiled import compiler_of
from tests.capture.agreement import Point, assert_same

X = torch.arange(6.0).reshape(2, 3)
FACTOR = 2


def helper(x: Any) -> Any:
    return x * FACTOR


class Settings:
    scale = 2

    def __init__(self) -> None:
        self.items = [1, 2]
        self.table = {"a": 1}
        self.nested = Point(1, 2)
        self.function = helper

    def method(self, x: Any) -> Any:
        return x + 1

    @property
    def doubled(self) -> int:
        return self.scale * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.drop = nn.Dropout(0.5)
        self.names = {"first": "a"}

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.drop(x)


def uses_settings(s: Any, x: Any) -> Any:
    x = s.function(s.method(x)) * s.scale * s.doubled + len(s.items) + s.items[0]
    if "b" in s.table:
        x = x + s.table["b"]
    if hasattr(s, "extra"):
        x = x - s.extra
    return x * s.nested.x + s.table["a"]


def set_scale_on_class(s: Settings) -> None:
    s.scale = 5


def patch_method(s: Settings) -> None:
    s.method = types.MethodType(lambda self, x: x - 7, s)  # type: ignore[method-assign]


def replace_function(s: Settings) -> None:
    s.function = lambda x: x - 3


MUTATIONS: dict[str, Callable[[Settings], Any]] = {
    "instance attribute shadows class": set_scale_on_class,
    "method patched on the instance": patch_method,
    "function replaced": replace_function,
    "list grows": lambda s: s.items.append(3),
    "list item": lambda s: s.items.__setitem__(0, 9),
    "dict key added": lambda s: s.table.update(b=4),
    "dict value": lambda s: s.table.update(a=4),
    "nested attribute": lambda s: setattr(s.nested, "x", 4),
    "nested object replaced": lambda s: setattr(s, "nested", Point(6)),
    "attribute appears": lambda s: setattr(s, "extra", 4),
    "type of a value": lambda s: setattr(s.nested, "x", 1.5),
    "list becomes tuple": lambda s: setattr(s, "items", (1, 2, 3)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_between_calls_is_noticed(name: str) -> None:
    settings = Settings()
    compiled = api.compile(uses_settings, backend="eager", fullgraph=True)
    assert_same(compiled(settings, X), uses_settings(settings, X))
    assert_same(compiled(settings, X), uses_settings(settings, X))
    assert compiled.compiler.capture_count == 1
    MUTATIONS[name](settings)
    assert_same(compiled(settings, X), uses_settings(settings, X))
    assert compiled.compiler.capture_count == 2


def test_class_attributes_and_methods_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    compiled = api.compile(uses_settings, backend="eager", fullgraph=True)
    compiled(settings, X)
    monkeypatch.setattr(Settings, "scale", 9)
    assert_same(compiled(settings, X), uses_settings(settings, X))
    monkeypatch.setattr(Settings, "method", lambda self, x: x - 1)
    assert_same(compiled(settings, X), uses_settings(settings, X))
    monkeypatch.setattr(Settings, "doubled", property(lambda self: 11))
    assert_same(compiled(settings, X), uses_settings(settings, X))
    assert compiled.compiler.capture_count == 4


def test_globals_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return helper(x)

    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert_same(compiled(X), X * 2)
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert_same(compiled(X), X * 3)
    monkeypatch.setitem(globals(), "helper", lambda x: -x)
    assert_same(compiled(X), -X)


def test_a_builtin_that_is_shadowed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return x + len([1, 2])

    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert_same(compiled(X), X + 2)
    monkeypatch.setitem(globals(), "len", lambda items: 7)
    assert_same(compiled(X), X + 7)


def test_a_class_attribute_that_appears_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(s, x):
        return x + getattr(s, "later", 1)

    compiled = api.compile(f, backend="eager", fullgraph=True)
    settings = Settings()
    assert_same(compiled(settings, X), X + 1)
    monkeypatch.setattr(Settings, "later", 5, raising=False)
    assert_same(compiled(settings, X), X + 5)


def test_what_is_not_read_is_not_guarded() -> None:
    def f(point, x):
        return x + point.x

    compiled = api.compile(f, backend="eager", fullgraph=True)
    point = Point(1, 2)
    compiled(point, X)
    point.y = 99
    point.other = "new"
    assert_same(compiled(point, X), X + 1)
    assert compiled.compiler.capture_count == 1


def test_a_number_that_is_only_handed_on_is_guarded() -> None:
    def f(point, table, x):
        table["y"] = point.y
        return x, point.x, [point.x]

    compiled = api.compile(f, backend="eager", fullgraph=True)
    for value in (1, 2):
        table: dict[str, Any] = {}
        assert compiled(Point(value, value), table, X)[1:] == (value, [value])
        assert table == {"y": value}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.reshape(3, 2),
        lambda x: x.double(),
        lambda x: x.t().contiguous().t(),
        lambda x: x[:, :2],
        lambda x: x.clone().requires_grad_(),
        lambda x: nn.Parameter(x),
    ],
)
def test_tensor_properties_are_noticed(change: Any) -> None:
    def f(x):
        return x * 2 + x.shape[0], x.requires_grad, type(x).__name__

    compiled = api.compile(f, backend="eager", fullgraph=True, dynamic=False)
    compiled(X)
    compiled(change(X))
    assert compiled.compiler.capture_count == 2


def test_grad_mode_and_default_dtype_are_noticed() -> None:
    def f(x):
        return x + torch.zeros(3), torch.is_grad_enabled()

    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert compiled(X)[1] is True
    with torch.no_grad():
        assert compiled(X)[1] is False
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X)[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_modules() -> None:
    net = Net().eval()
    compiled = api.compile(net, backend="eager", fullgraph=True)
    compiler = compiler_of(compiled)
    assert_same(compiled(X), net(X))

    net.layers[0].weight = nn.Parameter(torch.randn(3, 3))
    assert_same(compiled(X), net(X))
    net.load_state_dict({key: value * 2 for key, value in net.state_dict().items()})
    assert_same(compiled(X), net(X))
    assert compiler.capture_count == 1, "weights may change without capturing again"

    net.train()
    torch.manual_seed(0)
    mine = compiled(X)
    torch.manual_seed(0)
    assert_same(mine, net(X))
    net.eval()
    net.layers.append(nn.Linear(3, 4))
    assert_same(compiled(X), net(X))
    net.layers[0] = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert_same(compiled(X), net(X))
    handle = net.layers[1].register_forward_hook(lambda module, args, output: output + 1)
    assert_same(compiled(X), net(X))
    handle.remove()
    assert_same(compiled(X), net(X))


def test_hooks_of_every_module_are_noticed() -> None:
    net = Net().eval()
    compiled = api.compile(net, backend="eager", fullgraph=True)
    assert_same(compiled(X), net(X))
    hook = lambda module, args, output: output * 2  # noqa: E731
    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        assert_same(compiled(X), net(X))
    finally:
        handle.remove()
    assert_same(compiled(X), net(X))


def test_a_compiled_module_is_the_module() -> None:
    net = Net()
    compiled = api.compile(net, backend="eager")
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert next(compiled.parameters()) is net.layers[0].weight
    compiled.eval()
    assert net.training is False
    compiled.extra = 3
    assert net.extra == 3


def test_nothing_keeps_a_model_alive() -> None:
    net = Net().eval()
    compiled = api.compile(net, backend="eager", fullgraph=True)
    compiled(X)
    dead = weakref.ref(net)
    del net, compiled
    gc.collect()
    assert dead() is None


def test_nothing_keeps_an_argument_alive() -> None:
    compiled = api.compile(uses_settings, backend="eager", fullgraph=True)
    settings, x = Settings(), X.clone()
    compiled(settings, x)
    dead = weakref.ref(settings), weakref.ref(x)
    del settings, x
    gc.collect()
    assert dead[0]() is None and dead[1]() is None


def test_tied_tensors() -> None:
    def f(x, y):
        x.add_(1)
        return x + y

    compiled = api.compile(f, backend="eager", fullgraph=True)
    for arguments in ([X.clone()] * 2, [X.clone(), X.clone()]):
        mine = (
            [arguments[0].clone()] * 2
            if arguments[0] is arguments[1]
            else [a.clone() for a in arguments]
        )
        assert_same(compiled(*arguments), f(*mine))
    assert compiled.compiler.capture_count == 2


def test_compiled_code_inside_compiled_code_is_inlined() -> None:
    inner = api.compile(lambda x: x + 1, backend="eager")
    net = api.compile(Net().eval(), backend="eager")

    def f(x):
        return net(inner(x)) * 2

    graphs: list[Any] = []
    compiled = api.compile(f, backend=lambda g, i: graphs.append(g) or g.forward, fullgraph=True)
    assert_same(compiled(X), f(X))
    assert len(graphs) == 1


def test_threads_compile_and_call_at_once() -> None:
    compiled = api.compile(Net().eval(), backend="eager", fullgraph=True)
    expected = {n: Net.forward(compiled, torch.ones(n, 3)) for n in range(1, 5)}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: (n, compiled(torch.ones(n, 3))), [1, 2, 3, 4] * 5))
    for n, result in found:
        assert_same(result, expected[n])


def test_gradients_flow_through_the_eager_backend() -> None:
    mine, theirs = Net().eval(), Net().eval()
    theirs.load_state_dict(mine.state_dict())
    api.compile(mine, backend="eager", fullgraph=True)(X).sum().backward()
    theirs(X).sum().backward()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_same(one.grad, other.grad)


def test_copying_and_pickling_a_compiled_module() -> None:
    net = Net().eval()
    compiled = api.compile(net, backend="eager")
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(copied, Net)
        assert copied.layers[0].weight is not net.layers[0].weight
        assert_same(copied(X), net(X))


def test_reset_forgets() -> None:
    compiled = api.compile(lambda x: x + 1, backend="eager")
    compiled(X)
    api.reset()
    compiled(X)
    assert compiled.compiler.capture_count == 2


def test_what_counts_as_abstract_is_asked_again() -> None:
    class Abstract(abc.ABC):  # noqa: B024 - classes are registered with it
        pass

    class Plain:
        pass

    def f(x: Any, v: Any) -> Any:
        counted = issubclass(type(v), Abstract | str)
        return x, counted, isinstance(v, (int, Abstract)), isinstance(v, collections.abc.Sized)

    compiled, value = api.compile(f, backend="eager"), Plain()
    assert compiled(X, value)[1:] == (False, False, False)
    Plain.__len__ = lambda self: 0  # type: ignore[attr-defined]
    Abstract.register(Plain)  # which also ends what `Sized` remembers of the class
    assert compiled(X, value)[1:] == (True, True, True)
    captures = len(compiler_of(compiled).events)
    assert compiled(X, value)[1:] == (True, True, True)
    assert len(compiler_of(compiled).events) == captures


def test_a_metaclass_that_begins_to_answer() -> None:
    class Meta(type):
        pass

    class Wanted(metaclass=Meta):
        pass

    def f(x: Any) -> Any:
        return x, isinstance(x, Wanted), issubclass(int, Wanted)

    compiled = api.compile(f, backend="eager")
    assert compiled(X)[1:] == (False, False)
    Meta.__instancecheck__ = lambda cls, instance: True  # type: ignore[method-assign]
    assert compiled(X)[1:] == (True, False)
    Meta.__subclasscheck__ = lambda cls, other: True  # type: ignore[method-assign]
    assert compiled(X)[1:] == (True, True)


@typing.runtime_checkable
class HasRank(typing.Protocol):
    rank: int


def test_a_protocol_with_data_asks_the_object() -> None:
    def f(x: Any, v: Any) -> Any:
        return x, isinstance(v, HasRank)

    compiled, ranked = api.compile(f, backend="eager"), types.SimpleNamespace(rank=1)
    for value in (3, ranked, types.SimpleNamespace(), ranked, 3):
        assert compiled(X, value)[1] is hasattr(value, "rank")


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        if os.getenv("FUSEWRIGHT_TEST", "0") == "1":
            return x + 2
        return x + 3 if "FUSEWRIGHT_OTHER_TEST" in os.environ else x + 1

    compiled = api.compile(program, fullgraph=True, backend="eager")
    assert_same(compiled(X), X + 1)
    monkeypatch.setenv("FUSEWRIGHT_TEST", "1")
    assert_same(compiled(X), X + 2)
    monkeypatch.setenv("FUSEWRIGHT_TEST", "0")
    assert_same(compiled(X), X + 1)
    monkeypatch.setenv("FUSEWRIGHT_OTHER_TEST", "")
    assert_same(compiled(X), X + 3)


class Called:
    """A key that counts how often the program asks for its hash."""

    counts: ClassVar[collections.Counter[str]] = collections.Counter()

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        Called.counts["hash"] += 1
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        Called.counts["eq"] += 1
        return isinstance(other, Called) and self.number == other.number


def _length(x, table):
    return x + len(table), table


def _sum(x, table):
    for key, item in table.items():
        x = x + item * key.number
    return x


def _under_another_key(x, table):
    return x + table.get("scale", 5)


def _looked_up(x, table):
    return x + table[Called(2)]


def _emptied(x, table):
    table.clear()
    table["scale"] = x
    return x


@pytest.mark.parametrize("program", [_length, _sum, _under_another_key, _looked_up, _emptied])
def test_hashes_of_keys_are_asked_for_as_often_as_in_eager(program: Callable[..., Any]) -> None:
    compiled = api.compile(program, backend="eager", fullgraph=program is not _looked_up)
    for numbers in ((1, 2), (1, 2), (2, 3), (2, 1)):
        first, second = ({Called(n): n * X for n in numbers} for _ in range(2))
        Called.counts.clear()
        expected, asked = program(X, first), dict(Called.counts)
        Called.counts.clear()
        found = compiled(X, second)
        assert dict(Called.counts) == asked
        assert_same([found, list(second.values())], [expected, list(first.values())])


def test_a_tensor_that_is_only_passed_on_has_to_be_there() -> None:
    def kept(x, table):
        return table.get(1, x)

    compiled = api.compile(kept, backend="eager", fullgraph=True)
    for table in ({1: X + 1}, {}, {1: X + 2}, {0: X}):
        assert compiled(X, table) is kept(X, table)


def test_lists_are_sliced_by_an_argument() -> None:
    def program(x, place):
        items = [1, 2, 3]
        items[place] = [7]
        return x, items, [4, 5, 6][place], (4, 5, 6)[place], "abc"[place], range(3)[place]

    compiled = api.compile(program, backend="eager", fullgraph=True)
    for place in (slice(0, 2), slice(1), slice(None), slice(-1, None), slice(0, 2)):
        assert_same(compiled(X, place), program(X, place))


def _appended(x, items):
    items.append(x + 1)
    items += [x, 2]
    items.extend((3, items))
    return x * 2, items


def _appended_and_looked_at(x, items):
    items.append(x.shape[0])
    return x + len(items), items[-1], items[0]


def _looked_at_and_appended(x, items):
    first = items[0]
    items.append(first)
    return x + sum(items), items


def _appended_and_replaced(x, items):
    items.append(x)
    items[0] = 7
    items.append(8)
    return items


def _appended_and_taken(x, items):
    items.append(x)
    return items.pop(), items.pop(0), items


LIST_PROGRAMS = [
    _appended, _appended_and_looked_at, _looked_at_and_appended, _appended_and_replaced,
    _appended_and_taken,
]  # fmt: skip


class Items(list):
    def __len__(self):
        return 4


@pytest.mark.parametrize("program", LIST_PROGRAMS)
def test_a_list_that_is_added_to(program: Callable[..., Any]) -> None:
    compiled = api.compile(program, backend="eager", fullgraph=True)
    for make in (lambda: [1, 2], lambda: [1, 2, 3], lambda: [4], lambda: Items([5, 6])):
        mine, theirs = make(), make()
        found, expected = compiled(X, mine), program(X, theirs)
        assert_same([found, mine], [expected, theirs])
    if program is _appended:
        assert compiled.compiler.capture_count == 2, "nobody looks at what they hold"


def test_results_collected_in_a_loop_that_breaks() -> None:
    def collects(x, layers):
        found = []
        for layer in layers:
            x = layer(x)
            api.graph_break()
            found.append(x)
        return torch.stack(found)

    layers = [nn.Linear(3, 3) for _ in range(12)]
    compiled = api.compile(collects, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert_same(compiled(X, layers), collects(X, layers))
    assert compiled.compiler.capture_count < 6


def test_what_each_call_makes_anew_is_compiled_for_some_calls_only() -> None:
    def program(x):
        class Factor:
            def times(self, y):
                return y * 2

        factor = Factor()
        api.graph_break()
        return factor.times(x)

    compiled = api.compile(program, backend="eager", options={"recompile_limit": 2})
    with pytest.warns(RuntimeWarning, match="recompile_limit"):
        for _ in range(30):
            assert_same(compiled(X), program(X))
            gc.collect()
    assert compiled.compiler.capture_count < 25


class Counting(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_a_mode_of_the_users_is_looked_at_once_whichever_object_it_is() -> None:
    compiled = api.compile(Net().eval(), backend="eager", options={"strict": False})
    calls = set()
    for _ in range(20):
        with Counting() as mode:
            compiled(X)
        calls.add(mode.calls)
    assert len(calls) == 1, "each call goes through the mode as in eager"
    assert compiler_of(compiled).capture_count == 1
    compiled(X)
    assert len([one for one in api.compilations(compiled) if one.compiled is not None]) == 1
