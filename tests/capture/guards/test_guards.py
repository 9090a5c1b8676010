"""Guards: every kind holds and fails as it says, explains itself, and keeps nothing alive."""

from __future__ import annotations

import collections
import contextlib
import gc
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fusewright import native
from fusewright.capture import sources
from fusewright.capture.guards import (
    Guard,
    GuardKind,
    GuardSet,
    Kind,
    TensorPattern,
    build_guards,
    program,
    states,
)
from fusewright.capture.guards.states import global_state
from fusewright.capture.sources import (
    AttributeSource,
    BuiltinSource,
    CellContentsSource,
    CellSource,
    ConstantSource,
    DictItemSource,
    DictKeySource,
    ExtentSource,
    GlobalSource,
    InstanceSource,
    ItemSource,
    LocalSource,
    ModuleSource,
    Source,
    TypeAttributeSource,
)
from fusewright.errors import Location

X, Y = LocalSource("x"), LocalSource("y")
A_GLOBAL = [1, 2]


def f(x: Any, y: Any = None) -> None:
    """The function that the guards are of."""


def build(*guards: Guard) -> GuardSet:
    return build_guards(guards, f.__code__)


def one(kind: Kind, expected: Any, source: Source = X) -> GuardSet:
    return build(Guard(kind, source, expected))


def of_tensor(
    tensor: torch.Tensor, source: Source = X, location: Location | None = None
) -> tuple[Guard, Guard]:
    return (
        Guard(GuardKind.TYPE, source, type(tensor), location),
        Guard(GuardKind.TENSOR, source, TensorPattern.of(tensor), location),
    )


def holds(guards: GuardSet, x: Any = None, y: Any = None) -> bool:
    """Whether the guards hold; check and explanation must agree."""
    result = guards.check({"x": x, "y": y}, f)
    failure = guards.explain({"x": x, "y": y}, f)
    assert result == (failure is None)
    if failure is not None:
        assert failure.expression in str(failure) and failure.expected and failure.found
    return result


class Plain:
    """A class of the user's."""

    shared = 1

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class MyDict(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("guards read past overridden methods")

    def __contains__(self, key: Any) -> bool:
        raise AssertionError("guards read past overridden methods")

    def __len__(self) -> int:
        raise AssertionError("guards read past overridden methods")


# -- kinds ---------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "expected", "good", "bad"),
    [
        (GuardKind.TYPE, int, [1, -5], [True, 1.0, None]),
        (GuardKind.TYPE, MyDict, [MyDict()], [{}]),
        (GuardKind.IDENTITY, None, [None], [0, False]),
        (GuardKind.IDENTITY, len, [len], [max]),
        (GuardKind.IDENTITY, Plain, [Plain], [dict, Plain()]),
        (GuardKind.EQUALS, 1, [1], [True, 1.0, 2, "1"]),
        (GuardKind.EQUALS, "name", ["name", "na" + "me"], ["names", b"name"]),
        (GuardKind.EQUALS, 0.0, [0.0], [-0.0, 0]),
        (GuardKind.EQUALS, NAN, [NAN, math.nan], [0.0]),
        (GuardKind.EQUALS, complex(0.0, -0.0), [complex(0.0, -0.0)], [0j]),
        (
            GuardKind.EQUALS,
            (1, (2.0, "a")),
            [(1, (2.0, "a"))],
            [(1, (2, "a")), (True, (2.0, "a")), (1,)],
        ),
        (GuardKind.EQUALS, torch.float32, [torch.float32], [torch.float64, "float32"]),
        (
            GuardKind.EQUALS,
            torch.device("cpu"),
            [torch.device("cpu")],
            [torch.device("meta"), "cpu"],
        ),
        (GuardKind.EQUALS, torch.Size([2, 3]), [torch.Size([2, 3])], [(2, 3), torch.Size([3, 2])]),
        (GuardKind.EQUALS, 10**40, [10**40], [10**40 + 1]),
        (
            GuardKind.LENGTH,
            2,
            [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, MyDict(a=1, b=2)],
            [[], [1], {}],
        ),
        (GuardKind.DICT_KEYS, ("a", "b"), [{"a": 1, "b": 2}], [{"b": 2, "a": 1}, {"a": 1}, {}, []]),
        (GuardKind.DICT_KEYS, (1,), [{1: 0}], [{True: 0}, {1.0: 0}]),
        (GuardKind.DICT_CONTAINS, "a", [{"a": 1}, {"a"}, MyDict(a=1)], [{}, {"b": 1}, ["a"]]),
        (GuardKind.DICT_ABSENT, "a", [{}, {"b": 1}, MyDict(b=1)], [{"a": 1}, {"a"}, []]),
        (
            GuardKind.SET_EQUALS,
            frozenset({1, "a"}),
            [{1, "a"}],
            [{True, "a"}, {1}, {1, "a", 2}, [1]],
        ),
        (GuardKind.ATTRIBUTES, ("a",), [Plain(a=1)], [Plain(), Plain(a=1, b=2), object()]),
        (GuardKind.ABSENT, "a", [Plain(), Plain(b=1)], [Plain(a=1)]),
        (GuardKind.CLASS_ABSENT, "missing", [Plain, int], [type("T", (), {"missing": 1}), 5]),
    ],
)
def test_kinds(kind: Kind, expected: Any, good: list[Any], bad: list[Any]) -> None:
    guards = one(kind, expected)
    for value in good:
        assert holds(guards, value), value
    for value in bad:
        assert not holds(guards, value), value


def test_each_kind_has_a_test_on_the_native_floor() -> None:
    """A row with a name that the floor does not know would fail when a guard of it is first met."""
    kinds = [row for row in vars(GuardKind).values() if isinstance(row, Kind)]
    assert len(kinds) > 20
    for kind in kinds:
        message = ""
        try:
            native.GuardProgram(("x",), ((0, ("local", "x"), ((kind.test, ()),)),))
        except (TypeError, ValueError) as refusal:
            message = str(refusal)
        assert "unknown guard test" not in message, kind.title
    with pytest.raises(ValueError, match="unknown guard test"):
        native.GuardProgram(("x",), ((0, ("local", "x"), (("sometimes", ()),)),))


def test_each_source_can_be_loaded_by_guards() -> None:
    places = {
        value
        for name, value in vars(sources).items()
        if isinstance(value, type) and issubclass(value, Source) and not name.startswith("_")
    } - {Source}
    assert places - set(program.STEPS) == {ExtentSource}  # read by the guard of shapes
    assert set(program.STEPS) <= places


def test_ordered_dict_keeps_its_own_order() -> None:
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    assert holds(one(GuardKind.DICT_KEYS, ("b", "a")), ordered)
    assert not holds(one(GuardKind.DICT_KEYS, ("a", "b")), ordered)
    assert holds(one(GuardKind.EQUALS, "b", DictKeySource(X, 0)), ordered)


def test_same_and_distinct() -> None:
    shared, other = [1], [1]
    same = build(Guard(GuardKind.SAME, X, Y))
    assert holds(same, shared, shared) and not holds(same, shared, other)
    distinct = build(Guard(GuardKind.DISTINCT, None, (X, Y)))
    assert holds(distinct, shared, other) and not holds(distinct, shared, shared)


def test_distinct_groups_do_not_mix() -> None:
    items = [ItemSource(X, i) for i in range(3)]
    guards = build(
        Guard(GuardKind.DISTINCT, None, (items[0], items[1])),
        Guard(GuardKind.DISTINCT, None, (items[1], items[2])),
    )
    a, b = object(), object()
    assert holds(guards, [a, b, a])
    assert not holds(guards, [a, b, b]) and not holds(guards, [a, a, b])


def test_many_distinct_objects() -> None:
    objects = [object() for _ in range(1000)]
    guards = build(Guard(GuardKind.DISTINCT, None, tuple(ItemSource(X, i) for i in range(1000))))
    assert holds(guards, objects)
    assert not holds(guards, [*objects[:-1], objects[0]])


# -- tensors -------------------------------------------------------------------------------------


def tensors() -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """A tensor, and others that its guard refuses."""
    plain = torch.randn(2, 3)
    with torch.inference_mode():
        inference = torch.randn(2, 3)
    yield (
        plain,
        [
            torch.randn(2, 4),
            torch.randn(3, 2).t(),
            torch.randn(2, 3, 1),
            torch.randn(2, 3, dtype=torch.float64),
            torch.randn(2, 3, device="meta"),
            torch.randn(2, 3, requires_grad=True),
            torch.nn.Parameter(plain, requires_grad=False),
            torch.randn(2, 3).to_sparse(),
            torch.nested.nested_tensor([torch.randn(3), torch.randn(3)]),
            inference,
        ],
    )
    complex_one = torch.randn(2, dtype=torch.complex64)
    yield complex_one, [complex_one.conj()]
    yield torch.tensor(1), [torch.tensor([1]), torch.tensor(1.0)]
    yield torch.empty(0, 3), [torch.empty(3, 0), torch.empty(1, 3)]
    yield torch.randn(*[2] * 8), [torch.randn(*[2] * 7), torch.randn(*[2] * 7, 3)]
    yield torch.nn.Parameter(plain), [plain, torch.nn.Parameter(plain, requires_grad=False)]


@pytest.mark.parametrize("index", range(6))
def test_tensors(index: int) -> None:
    tensor, others = list(tensors())[index]
    guards = build(*of_tensor(tensor))
    assert holds(guards, tensor)
    if type(tensor) is torch.Tensor:
        fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        assert holds(guards, fresh)
    for other in others:
        assert not holds(guards, other), other.shape
    assert not holds(guards, [1.0]) and not holds(guards, None)


def test_tensor_of_another_kind_is_not_asked_for_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    """torch's C functions print when a tensor has no plain sizes: key sets come first."""
    assert not holds(build(*of_tensor(torch.randn(2, 3))), next(tensors())[1][-2])
    assert capfd.readouterr().err == ""


def test_conjugate_and_negative_bits() -> None:
    tensor = torch.randn(2, dtype=torch.complex64)
    guards = build(*of_tensor(tensor))
    failure = guards.explain({"x": tensor.conj()}, f)
    assert failure is not None and "dispatch keys" in failure.found
    assert not holds(build(*of_tensor(torch.randn(2))), torch._neg_view(torch.randn(2)))


def test_dynamic_sizes() -> None:
    pattern = TensorPattern.of(torch.randn(4, 3), ((None, 3), (3, 1)))
    guards = one(GuardKind.TENSOR, pattern)
    assert str(pattern) == "float32[any, 3] strides [3, 1] on cpu"
    assert holds(guards, torch.randn(4, 3)) and holds(guards, torch.randn(9, 3))
    assert not holds(guards, torch.randn(4, 4)) and not holds(guards, torch.randn(4, 3, 1))


def test_key_sets_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the layout probe finds no key set, guards ask torch for it and hold and fail alike."""
    from fusewright import torch_compat
    from fusewright.native import _extension, _samples

    def attach(samples: Any) -> bool:
        return _extension.attach_torch(
            torch_compat.LIBRARY_FILE,
            torch.Tensor,
            torch.nn.Parameter,
            samples,
            torch_compat.key_set,
        )

    assert attach(tuple((t, address, key_set + 1) for t, address, key_set in _samples())) is False
    try:
        for index in range(6):
            test_tensors(index)
    finally:
        assert attach(_samples()) is True


def test_attaching_to_an_unknown_torch_fails_in_one_sentence() -> None:
    from fusewright import torch_compat
    from fusewright.native import _extension, _samples

    wrong = tuple((t, address + 1, key_set) for t, address, key_set in _samples())
    with pytest.raises(ImportError, match=r"it works with torch 2\.11 to 2\.13"):
        _extension.attach_torch(
            torch_compat.LIBRARY_FILE, torch.Tensor, torch.nn.Parameter, wrong, torch_compat.key_set
        )


# -- sources -------------------------------------------------------------------------------------


def make_closure(value: Any) -> Any:
    def inner(x: Any) -> Any:
        return value, x

    return inner


@pytest.mark.parametrize(
    ("source", "x", "found"),
    [
        (AttributeSource(X, "real"), 5, 5),
        (InstanceSource(X, "a"), Plain(a=5), 5),
        (ItemSource(X, 1), [4, 5], 5),
        (ItemSource(X, 1), (4, 5), 5),
        (DictItemSource(X, "k"), MyDict(k=5), 5),
        (DictKeySource(X, 1), {"a": 1, 5: 2}, 5),
        (TypeAttributeSource(X, "shared"), Plain, 1),
        (GlobalSource("A_GLOBAL"), None, A_GLOBAL),
        (GlobalSource("pi", "math"), None, math.pi),
        (BuiltinSource("len"), None, len),
        (ModuleSource("math"), None, math),
        (ConstantSource(Plain), None, Plain),
    ],
)
def test_each_step_loads(source: Source, x: Any, found: Any) -> None:
    kind = GuardKind.EQUALS if isinstance(found, (int, float)) else GuardKind.IDENTITY
    if isinstance(found, list):
        assert holds(one(GuardKind.LENGTH, len(found), source), x)
    else:
        assert holds(one(kind, found, source), x)
        assert not holds(one(GuardKind.EQUALS, "something else", source), x)


@pytest.mark.parametrize(
    "source",
    [
        AttributeSource(X, "missing"),
        InstanceSource(X, "missing"),
        ItemSource(X, 7),
        DictItemSource(X, "missing"),
        DictItemSource(X, ()),
        DictKeySource(X, 7),
        TypeAttributeSource(X, "missing"),
        CellContentsSource(X),
        GlobalSource("missing"),
        GlobalSource("missing", "math"),
        BuiltinSource("missing"),
        ModuleSource("no.such.module"),
    ],
)
def test_what_is_not_there_fails(source: Source) -> None:
    guards = one(GuardKind.IDENTITY, None, source)
    for x in ([], {}, Plain(), 5, object):
        failure = guards.explain({"x": x, "y": None}, f)
        assert failure is not None and failure.found == "nothing there"
        assert not holds(guards, x)
    assert not guards.check({}, f)


def test_cells_are_those_of_the_function_called() -> None:
    first, second = make_closure(1), make_closure(2)
    source = CellContentsSource(CellSource("value"))
    guards = build_guards([Guard(GuardKind.EQUALS, source, 1)], first.__code__)
    assert guards.check({"x": 0}, first) and not guards.check({"x": 0}, second)
    assert not guards.check({"x": 0}, None) and not guards.check({"x": 0}, f)


def test_globals_are_those_of_the_function_called() -> None:
    namespace: dict[str, Any] = {"A_GLOBAL": 3}
    exec("def f(x): pass", namespace)
    guards = one(GuardKind.EQUALS, 3, GlobalSource("A_GLOBAL"))
    assert guards.check({"x": 0}, namespace["f"]) and not guards.check({"x": 0}, f)


def test_common_beginnings_are_loaded_once() -> None:
    reads: list[str] = []

    class Counted:
        @property
        def inner(self) -> Plain:
            reads.append("inner")
            return Plain(a=1, b=2)

    inner = AttributeSource(X, "inner")
    guards = build(
        Guard(GuardKind.EQUALS, InstanceSource(inner, "a"), 1),
        Guard(GuardKind.TYPE, X, Counted),
        Guard(GuardKind.EQUALS, InstanceSource(AttributeSource(X, "inner"), "b"), 2),
        Guard(GuardKind.TYPE, inner, Plain),
    )
    assert guards.check({"x": Counted()}, f)
    assert reads == ["inner"]
    assert [check.kind.test for check in guards.checks] == [
        "type",
        "type",
        "equals",
        "equals",
    ]


def test_a_dictionary_that_changes_is_read_again() -> None:
    """Items are remembered by the dictionary's version: any change must be seen."""
    guards = one(GuardKind.EQUALS, 1, InstanceSource(X, "a"))
    for change in (
        lambda x: setattr(x, "a", 2),
        lambda x: x.__dict__.update(a=2),
        lambda x: x.__dict__.clear(),
        lambda x: x.__dict__.pop("a"),
        lambda x: x.__dict__.popitem(),
        lambda x: setattr(x, "__dict__", {"a": 2}),
        lambda x: delattr(x, "a"),
    ):
        value = Plain(a=1)
        for _ in range(50):
            assert guards.check({"x": value}, f)
        change(value)
        assert not holds(guards, value)
        value.a = 1
        assert holds(guards, value)


def test_keys_that_change_are_looked_for_again() -> None:
    absent = one(GuardKind.ABSENT, "b")
    attributes = one(GuardKind.ATTRIBUTES, ("a",))
    contains = one(GuardKind.DICT_CONTAINS, "a", InstanceSource(X, "table"))
    value, table = Plain(a=1), Plain(table={"a": 1})
    for _ in range(3):
        assert holds(absent, value) and holds(attributes, value) and holds(contains, table)
        value.b = 2
        del table.table["a"]
        assert not holds(absent, value) and not holds(attributes, value)
        assert not holds(contains, table)
        del value.b
        table.table["a"] = 1
    assert not holds(absent, Plain(b=1)) and holds(absent, Plain())


def test_a_failed_item_is_tested_again() -> None:
    """What is remembered of a dictionary is what passed, not what was loaded."""
    guards = build(
        Guard(GuardKind.TYPE, InstanceSource(X, "a"), int),
        Guard(GuardKind.EQUALS, InstanceSource(X, "a"), 1),
    )
    value = Plain(a=2)
    for _ in range(3):
        assert not holds(guards, value)
    value.a = 1
    assert holds(guards, value) and holds(guards, value)
    value.a = True
    assert not holds(guards, value) and not holds(guards, value)


def test_a_class_that_is_assigned_is_seen() -> None:
    class Other(Plain):
        pass

    guards = one(GuardKind.TYPE, Plain, InstanceSource(X, "a"))
    value = Plain(a=Plain())
    assert holds(guards, value) and holds(guards, value)
    value.a.__class__ = Other
    assert not holds(guards, value)


def test_modules_may_change_their_class_too() -> None:
    class Lazy(types.ModuleType):
        pass

    guards = one(GuardKind.TYPE, types.ModuleType, InstanceSource(X, "a"))
    value = Plain(a=types.ModuleType("made"))
    assert holds(guards, value) and holds(guards, value)
    value.a.__class__ = Lazy
    assert not holds(guards, value)


def test_stores_of_specialised_code_are_seen() -> None:
    guards = one(GuardKind.EQUALS, 1, InstanceSource(X, "a"))

    def store(target: Plain, value: int) -> None:
        target.a = value

    value = Plain(a=1, b=0)
    for i in range(200):
        store(value, i % 2)
        assert guards.check({"x": value}, f) == (i % 2 == 1)


# -- global state --------------------------------------------------------------------------------


@contextlib.contextmanager
def setting(write: Callable[[Any], None], changed: Any, usual: Any) -> Iterator[None]:
    """A global switch of torch, changed and put back."""
    write(changed)
    try:
        yield
    finally:
        write(usual)


def warn_only(value: bool) -> None:
    torch.use_deterministic_algorithms(value, warn_only=value)


def fill(value: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = value


def precision(of: Any) -> Callable[[str], None]:
    return lambda value: setattr(of, "fp32_precision", value)


SWITCHES: dict[str, tuple[Any, str, str]] = {
    "the default dtype": (
        setting(torch.set_default_dtype, torch.float64, torch.float32),
        "torch.float32",
        "torch.float64",
    ),
    "deterministic mode": (
        setting(torch.use_deterministic_algorithms, True, False),
        "False",
        "True",
    ),
    "whether new tensors are filled": (setting(fill, False, True), "True", "False"),
    "the precision of float32 matmul on CUDA": (
        setting(precision(torch.backends.cuda.matmul), "tf32", "none"),
        "'none'",
        "'tf32'",
    ),
    "the precision of float32 matmul on the CPU": (
        setting(precision(torch.backends.mkldnn.matmul), "bf16", "none"),
        "'none'",
        "'bf16'",
    ),
    "the number of function modes": (torch.device("meta"), "0", "1"),
    "how far __torch_function__ is on": (
        torch._C.DisableTorchFunctionSubclass(),
        "'on'",
        "'off for subclasses'",
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_each_state_is_guarded_and_named(name: str) -> None:
    context, expected, found = SWITCHES[name]
    for backend in (torch.backends.cuda, torch.backends.mkldnn):
        precision(backend.matmul)("none")  # A test that set it for all may have left "ieee".
    guards = build(Guard(GuardKind.GLOBAL_STATE, None))
    assert holds(guards)
    with context:
        assert not holds(guards)
        failure = guards.explain({}, f)
    assert failure is not None
    assert (failure.expression, failure.expected, failure.found) == (name, expected, found)
    assert holds(guards)


def test_deterministic_mode_that_only_warns_is_another() -> None:
    with setting(torch.use_deterministic_algorithms, True, False):
        guards = build(Guard(GuardKind.GLOBAL_STATE, None))
        with setting(warn_only, True, False):
            assert not holds(guards)


def test_states_that_the_extension_cannot_read_are_asked_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "torch_states", lambda: {})
    guards = build(Guard(GuardKind.GLOBAL_STATE, None))
    assert holds(guards)
    with torch.device("meta"):
        failure = guards.explain({}, f)
    assert failure is not None and failure.expression == "the number of function modes"


def test_global_state() -> None:
    guards = build(Guard(GuardKind.GLOBAL_STATE, None))
    assert holds(guards)
    for context in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu"),
        torch.device("meta"),
        torch.utils._python_dispatch.TorchDispatchMode(),
        torch.overrides.TorchFunctionMode(),
    ):
        with context:
            assert not holds(guards), context
        assert holds(guards)
    torch.func.vmap(lambda x: pytest.fail() if guards.check({}, f) else x)(torch.randn(2))


def test_autocast_dtype_and_modes_are_told_apart() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guards = build(Guard(GuardKind.GLOBAL_STATE, None))
        assert holds(guards)
        with torch.autocast("cpu", dtype=torch.float16):
            failure = guards.explain({}, f)
    assert failure is not None and failure.expression == "the autocast dtype of cpu"
    with torch.device("meta"):
        guards = build(Guard(GuardKind.GLOBAL_STATE, None))
        assert holds(guards)
    with torch.device("cpu"):
        assert not holds(guards)


def test_global_state_taken_before() -> None:
    state = tuple(global_state())
    with torch.no_grad():
        guards = build(*state)
        assert not holds(guards)
    assert holds(guards)


def test_dispatch_state_of_another_thread() -> None:
    import threading

    guards = build(Guard(GuardKind.GLOBAL_STATE, None))
    results: list[bool] = []

    def work() -> None:
        results.append(guards.check({}, f))
        with torch.inference_mode():
            results.append(guards.check({}, f))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [True, False]


# -- words, life and errors ----------------------------------------------------------------------


def test_explanations() -> None:
    location = Location("model.py", 12, "return x @ self.weight")
    weight = DictItemSource(InstanceSource(X, "_parameters"), "weight")
    layer = torch.nn.Linear(2, 3)
    guards = build(*of_tensor(layer.weight, weight, location))
    other = torch.nn.Linear(4, 3)
    assert str(guards.explain({"x": other}, f)) == (
        "x.weight.size(1): was 2, is 4   (guard made at model.py:12, return x @ self.weight)"
    )
    table = guards.table().splitlines()
    assert table[0].split() == ["kind", "expression", "expected", "because", "of"]
    assert "x.weight" in table[2] and "model.py:12" in table[2]


def test_guards_keep_nothing_alive() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

    model = Model()
    layer = DictItemSource(InstanceSource(X, "_modules"), "layer")
    weight = DictItemSource(InstanceSource(layer, "_parameters"), "weight")
    guards = build(
        Guard(GuardKind.TYPE, X, Model),
        Guard(GuardKind.IDENTITY, layer, model.layer),
        *of_tensor(model.layer.weight, weight),
    )
    assert holds(guards, model)
    counts = [sys.getrefcount(each) for each in (model, model.layer, model.layer.weight, Model)]
    for _ in range(50):
        guards.check({"x": model}, f)
        guards.explain({"x": None}, f)
    assert counts == [
        sys.getrefcount(each) for each in (model, model.layer, model.layer.weight, Model)
    ]
    gone = [weakref.ref(each) for each in (model, model.layer, model.layer.weight, Model)]
    assert not guards.program.is_dead()
    del model, Model
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert guards.program.is_dead()
    assert not holds(guards, None)
    assert "gone" in guards.table()


def test_a_failing_guard_raises_nothing() -> None:
    class Rude:
        def __eq__(self, other: object) -> bool:
            raise ValueError("compared")

        __hash__ = object.__hash__

        @property
        def attribute(self) -> int:
            raise ValueError("read")

    assert not holds(one(GuardKind.EQUALS, 1, AttributeSource(X, "attribute")), Rude())
    value = Rude()
    assert holds(one(GuardKind.EQUALS, value), value)
    assert not holds(one(GuardKind.EQUALS, value), Rude())


def test_malformed_programs_are_refused() -> None:
    for nodes, error in (
        (((0, ("attribute", "a"), ()),), ValueError),
        (((1, ("local", "x"), ()),), ValueError),
        (((0, ("local", "z"), ()),), ValueError),
        (((0, ("nowhere",), ()),), ValueError),
        (((0, ("local",), ()),), ValueError),
        (((0, ("local", "x"), (("sometimes", 1),)),), ValueError),
        (((0, ("local", "x"), (("keys", ["a"]),)),), TypeError),
        (((0, ("local", "x"), (("same", -1),)),), ValueError),
        (((0, ("local", "x"), ()), (1, ("item", -1), ())), ValueError),
        (((0, ("local", "x"), ()), (1, ("attribute", 5), ())), TypeError),
        ((5,), TypeError),
    ):
        with pytest.raises(error):
            native.GuardProgram(("x",), nodes)  # type: ignore[arg-type]
    deep: Any = tuple(
        (depth, ("local", "x") if depth == 0 else ("attribute", "a"), ()) for depth in range(300)
    )
    with pytest.raises(ValueError, match="cannot stand at depth 256"):
        native.GuardProgram(("x",), deep)
    with pytest.raises(ValueError, match="needs a source"):
        build(Guard(GuardKind.TYPE, None, int))


def test_a_nested_tensor_cannot_be_guarded() -> None:
    with pytest.raises(ValueError, match="no plain sizes and strides"):
        TensorPattern.of(torch.nested.nested_tensor([torch.randn(3), torch.randn(2)]))
