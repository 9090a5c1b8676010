"""The public interface: what can be compiled, with which arguments, and what comes back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import functools
import inspect
import pickle
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from fusewright.errors import (
    BackendCompilerFailed,
    FusewrightError,
    RecompileLimitExceeded,
    Unsupported,
)

X = torch.arange(6.0).reshape(2, 3)


class Recorder:
    """A backend that keeps the graphs it was given."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph_module: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs.append(graph_module)
        return graph_module.forward


def eager(target: Any, **keywords: Any) -> Any:
    return fusewright.compile(target, backend="eager", **keywords)


# -- what can be compiled -------------------------------------------------------------------------


class Scale:
    """Functions of every kind in one class."""

    factor = 3

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def method(self, x: Any, *, add: int = 0) -> Any:
        return x * self.factor + add

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * cls.factor

    @staticmethod
    def of_nothing(x: Any) -> Any:
        return x * 7

    @fusewright.compile(backend="eager", fullgraph=True)
    def decorated(self, x: Any) -> Any:
        return x * self.factor - 1

    @classmethod
    @fusewright.compile(backend="eager", fullgraph=True)
    def decorated_inside(cls, x: Any) -> Any:
        return x * cls.factor - 2

    @fusewright.compile(backend="eager", fullgraph=True)
    @classmethod
    def decorated_outside(cls, x: Any) -> Any:
        return x * cls.factor - 3

    @fusewright.compile(backend="eager", fullgraph=True)
    @staticmethod
    def decorated_static(x: Any) -> Any:
        return x - 4


TARGETS: dict[str, Callable[..., Any]] = {
    "function": lambda x: x + 1,
    "method": Scale().method,
    "classmethod": Scale.of_class,
    "staticmethod": Scale.of_nothing,
    "object with __call__": Scale(),
    "partial": functools.partial(Scale().method, add=4),
    "partial of a function": functools.partial(lambda y, x: x - y, 2),
    "builtin of torch": torch.neg,
    "operator": torch.ops.aten.neg.default,
    "method of a tensor": X.add,
    "module": nn.Linear(3, 2),
    "method of a module": nn.Linear(3, 2).forward,
    "container": nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_what_can_be_compiled(kind: str) -> None:
    target = TARGETS[kind]
    compiled = eager(target, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), target(X))
    assert len(fusewright.compilations(compiled)) == 1


def test_decorated_methods() -> None:
    scale = Scale()
    assert torch.equal(scale.decorated(X), X * 3 - 1)
    assert torch.equal(Scale.decorated(scale, X), X * 3 - 1)
    assert torch.equal(scale.decorated_inside(X), X * 3 - 2)
    assert torch.equal(Scale.decorated_inside(X), X * 3 - 2)
    assert torch.equal(Scale.decorated_outside(X), X * 3 - 3)
    assert torch.equal(scale.decorated_static(X), X - 4)
    assert inspect.signature(scale.decorated) == inspect.signature(lambda x: 0).replace(
        parameters=list(inspect.signature(scale.decorated).parameters.values()),
        return_annotation=inspect.signature(scale.decorated).return_annotation,
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [(3, "not 3"), (Scale, "not the class Scale"), (nn.Linear, "not the class Linear")],
)
def test_what_cannot_be_compiled(target: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        eager(target)


def test_a_builtin_that_capture_does_not_know() -> None:
    with pytest.raises(Unsupported, match="print"):
        eager(print, fullgraph=True)("")


def generates(x: Any) -> Iterator[Any]:
    yield x + 1


async def awaits(x: Any) -> Any:
    return x + 1


async def generates_later(x: Any) -> Any:
    yield x + 1


@pytest.mark.parametrize("function", [generates, awaits, generates_later])
def test_functions_that_are_resumed_run_as_they_are(function: Any) -> None:
    line = function.__code__.co_firstlineno
    with pytest.warns(RuntimeWarning, match=f"test_api.py:{line}") as caught:
        assert eager(function) is function
    assert len(caught) == 1
    with pytest.raises(Unsupported, match=function.__name__) as raised:
        eager(function, fullgraph=True)
    assert raised.value.location is not None and raised.value.location.line == line
    assert raised.value.remedy


def test_a_coroutine_may_call_compiled_code() -> None:
    compiled = eager(lambda x: x * 2, fullgraph=True)

    async def main() -> Any:
        return await asyncio.to_thread(compiled, X) + compiled(X)

    assert torch.equal(asyncio.run(main()), X * 4)


# -- arguments of compile -------------------------------------------------------------------------


def test_keywords_of_torch_compile_are_known() -> None:
    theirs = set(inspect.signature(torch.compile).parameters) - {"model"}
    assert theirs <= set(inspect.signature(fusewright.compile).parameters)


def test_what_is_not_available_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="shapes_spec"):
        eager(lambda x: x, shapes_spec={"x": 1})
    with pytest.raises(TypeError, match="no_such_keyword"):
        eager(lambda x: x, no_such_keyword=1)


def test_disable_gives_the_target_back() -> None:
    def f(x: Any) -> Any:
        return x

    assert fusewright.compile(f, disable=True) is f
    assert fusewright.compile(disable=True)(f) is f


def test_compiling_what_is_compiled_compiles_the_original() -> None:
    def f(x: Any) -> Any:
        return x + 1

    once = eager(f)
    again = eager(once, fullgraph=True)
    assert again.__wrapped__ is f
    net = nn.Linear(3, 3)
    assert torch.equal(eager(eager(net))(X), net(X))


# -- recompiling ----------------------------------------------------------------------------------


def scaled(x: Any, factor: Any) -> Any:
    return x * factor


def test_past_the_limit_it_runs_eagerly_and_says_so_once() -> None:
    compiled = eager(scaled, dynamic=False, recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for factor in range(3):
            assert torch.equal(compiled(X, factor), X * factor)
    with pytest.warns(RuntimeWarning, match=r"recompile_limit of 3\n.*factor: ") as caught:
        for factor in range(3, 7):
            assert torch.equal(compiled(X, factor), X * factor)
    assert len(caught) == 1
    assert len(fusewright.compilations(compiled)) == 3
    assert torch.equal(compiled(X, 1), X)


@pytest.mark.parametrize("keywords", [{"fullgraph": True}, {"options": {"strict": True}}])
def test_past_the_limit_it_is_an_error_where_eager_is(keywords: dict[str, Any]) -> None:
    compiled = eager(scaled, dynamic=False, recompile_limit=2, **keywords)
    for factor in (1, 2):
        compiled(X, factor)
    for factor in (3, 4):
        with pytest.raises(RecompileLimitExceeded, match="factor") as raised:
            compiled(X, factor)
        error = raised.value
        assert (error.limit, error.option) == (2, "recompile_limit")
        assert error.location.line == scaled.__code__.co_firstlineno
    assert torch.equal(compiled(X, 2), X * 2)


def test_the_smaller_limit_is_the_error() -> None:
    options = {"strict": True, "recompile_limit": 5, "accumulated_recompile_limit": 1}
    compiled = eager(scaled, dynamic=False, options=options)
    compiled(X, 1)
    for _ in range(2):
        with pytest.raises(RecompileLimitExceeded, match="accumulated_recompile_limit"):
            compiled(X, 2)


def test_the_limit_is_an_option_of_the_compile() -> None:
    compiled = eager(scaled, dynamic=False, options={"recompile_limit": 20})
    for factor in range(15):
        compiled(X, factor)
    assert len(fusewright.compilations(compiled)) == 15


def test_the_accumulated_limit() -> None:
    options = {"recompile_limit": 5, "accumulated_recompile_limit": 2}
    compiled = eager(scaled, dynamic=False, options=options)
    with pytest.warns(RuntimeWarning, match="accumulated_recompile_limit of 2"):
        for factor in range(5):
            assert torch.equal(compiled(X, factor), X * factor)
    assert len(fusewright.compilations(compiled)) == 2


def test_reset_forgets_limits_too() -> None:
    compiled = eager(scaled, dynamic=False, recompile_limit=1, fullgraph=True)
    compiled(X, 1)
    fusewright.reset()
    assert fusewright.compilations(compiled) == ()
    assert torch.equal(compiled(X, 2), X * 2)


# -- errors ---------------------------------------------------------------------------------------


def test_a_backend_that_fails() -> None:
    def broken(graph_module: Any, inputs: Any) -> Any:
        raise KeyError("oops")

    def nothing(graph_module: Any, inputs: Any) -> Any:
        return None

    for backend, cause in ((broken, KeyError), (nothing, TypeError)):
        with pytest.raises(BackendCompilerFailed, match=backend.__name__) as raised:
            fusewright.compile(scaled, backend=backend)(X, 2)
        assert isinstance(raised.value.__cause__, cause)
        assert raised.value.location is not None
        assert raised.value.location.line == scaled.__code__.co_firstlineno


def test_every_error_is_one_of_ours() -> None:
    for error in (Unsupported, BackendCompilerFailed, RecompileLimitExceeded):
        assert issubclass(error, FusewrightError)


# -- copies ---------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.linear(x) - self.mean

    def norm(self) -> Any:
        return self.linear.weight.norm()


@fusewright.compile(backend="eager", fullgraph=True)
def decorated(x: Any) -> Any:
    return x + 1


def test_a_compiled_module_keeps_its_face() -> None:
    net = Net()
    compiled = eager(net, fullgraph=True)
    assert isinstance(compiled, Net) and type(compiled).__name__ == "Net"
    assert list(compiled.state_dict()) == list(net.state_dict()) == [
        "mean", "linear.weight", "linear.bias",
    ]  # fmt: skip
    assert compiled.norm() == net.norm()
    compiled.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})
    assert torch.equal(compiled(X), net(X))
    compiled.double()
    assert net.mean.dtype == torch.float64
    assert torch.equal(compiled(X.double()), net(X.double()))


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))]
)
def test_copies_of_a_compiled_module(copied: Callable[[Any], Any]) -> None:
    compiled = eager(Net(), fullgraph=True)
    compiled(X)
    other = copied(compiled)
    assert torch.equal(other(X), compiled(X))
    assert fusewright.compilations(other) != () and isinstance(other, Net)
    assert fusewright.compilations(other) == fusewright.compilations(compiled)
    if copied is not copy.copy:
        with torch.no_grad():
            other.mean.add_(1)
        assert not torch.equal(other(X), compiled(X))


@pytest.mark.parametrize("with_abc", [False, True])
def test_a_compiled_module_is_in_no_registry_of_its_classes(with_abc: bool) -> None:
    classes: list[type] = []
    derived: list[type] = []

    class Registering(ABCMeta if with_abc else type):  # type: ignore[misc]
        def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
            classes.append(super().__new__(cls, *arguments, **keywords))
            return classes[-1]

    class Layer(torch.nn.Linear, metaclass=Registering):
        def __init_subclass__(cls, *, name: str) -> None:
            derived.append(cls)

    class Wide(Layer, name="wide"):
        pass

    x = torch.randn(2, 3)
    wide: Any = Wide(3, 4)
    compiled = fusewright.compile(wide, backend="eager")
    torch.testing.assert_close(compiled(x), wide(x))
    assert (classes, derived) == ([Layer, Wide], [Wide])
    assert isinstance(compiled, Wide) and not isinstance(wide, type(compiled))
    assert isinstance(wide, Layer)


def test_a_compiled_module_inside_another_module() -> None:
    outer = nn.Sequential(eager(Net()), nn.ReLU())
    twin = copy.deepcopy(outer)
    assert torch.equal(outer(X), twin(X))
    assert list(outer.state_dict()) == ["0.mean", "0.linear.weight", "0.linear.bias"]
    assert torch.equal(eager(outer, fullgraph=True)(X), outer(X))


def test_copies_of_a_compiled_function() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
    compiled = eager(scaled, fullgraph=True)
    other = pickle.loads(pickle.dumps(compiled))
    assert other.__wrapped__ is scaled and torch.equal(other(X, 2), X * 2)
    method = eager(Scale().method)
    twin = copy.deepcopy(method)
    assert twin.__wrapped__.__self__ is not method.__wrapped__.__self__
    assert torch.equal(twin(X), method(X))


# -- directives -----------------------------------------------------------------------------------


@fusewright.allow_in_graph
def opaque(x: Any, factor: Any) -> Any:
    return [x * factor, x + factor]


def test_allow_in_graph() -> None:
    backend = Recorder()
    compiled = fusewright.compile(
        lambda x: opaque(x, 3)[0] + opaque(x, factor=2)[1], backend=backend, fullgraph=True
    )
    assert torch.equal(compiled(X), X * 3 + X + 2)
    targets = [node.target for node in backend.graphs[0].graph.nodes]
    assert targets.count(opaque) == 2
    with torch.no_grad():
        through = fusewright.compile(lambda x: opaque(x, 3)[0], options={"strict": True})
        assert torch.equal(through(X), X * 3)


def test_disallow_in_graph() -> None:
    fusewright.disallow_in_graph(torch.trapezoid)
    backend = Recorder()
    compiled = fusewright.compile(lambda x: torch.trapezoid(x + 1) * 2, backend=backend)
    assert torch.equal(compiled(X), torch.trapezoid(X + 1) * 2)
    assert len(backend.graphs) == 2
    with pytest.raises(Unsupported, match="trapezoid"):
        eager(lambda x: torch.trapezoid(x), fullgraph=True)(X)


def test_graph_break() -> None:
    def f(x: Any) -> Any:
        x = x + 1
        fusewright.graph_break("to look at x")
        return x * 2

    backend = Recorder()
    assert torch.equal(fusewright.compile(f, backend=backend)(X), f(X))
    assert len(backend.graphs) == 2
    with pytest.raises(Unsupported, match="to look at x") as raised:
        eager(f, fullgraph=True)(X)
    assert raised.value.reason == "user-break"


def test_assume_constant_result() -> None:
    calls = []

    @fusewright.assume_constant_result
    def configuration(name: str, table: dict[str, int]) -> Any:
        calls.append(name)
        return {"factor": table[name]}

    def f(x: Any) -> Any:
        return x * configuration("a", {"a": 5})["factor"]

    compiled = eager(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 5)
    assert calls == ["a"]
    with pytest.raises(Unsupported, match="configuration"):
        eager(lambda x: configuration(x + 1, {}), fullgraph=True)(X)
    with pytest.raises(KeyError, match="b"):
        eager(lambda x: x * configuration("b", {})["factor"], fullgraph=True)(X)


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_disable(recursive: bool, own: bool) -> None:
    def inner(x: Any) -> Any:
        return x * 2, fusewright.is_compiling()

    disable = fusewright.disable if own else torch.compiler.disable

    @disable(recursive=recursive, reason="too clever")
    def outer(x: Any) -> Any:
        return *inner(x + 1), fusewright.is_compiling()

    def f(x: Any) -> Any:
        return outer(x - 1), x + 3, fusewright.is_compiling()

    backend = Recorder()
    (value, inside, around), more, compiling = fusewright.compile(f, backend=backend)(X)
    assert torch.equal(value, X * 2) and torch.equal(more, X + 3)
    assert (inside, around, compiling) == (not recursive, False, True)
    operators = [
        [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
        for graph in backend.graphs
    ]
    assert operators == [["sub"], *([] if recursive else [["mul"]]), ["add"]]
    with pytest.raises(Unsupported, match="too clever") as raised:
        eager(f, fullgraph=True)(X)
    assert raised.value.reason == "disabled"


class Holder(nn.Module):
    """A module with a disabled module and a disabled method."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = fusewright.disable(nn.Linear(3, 3), reason="too slow")

    @fusewright.disable
    def helper(self, x: Any) -> Any:
        return x + 1

    def forward(self, x: Any) -> Any:
        return self.helper(x * 2) * self.inner(x)


def test_disabled_methods_and_modules() -> None:
    net, backend = Holder(), Recorder()
    assert torch.equal(fusewright.compile(net, backend=backend)(X), net(X))
    operators = [
        [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
        for graph in backend.graphs
    ]
    assert operators == [["mul"], ["mul"]], "neither the linear layer nor the sum"
    assert list(net.state_dict()) == ["inner.weight", "inner.bias"]
    assert isinstance(net.inner, nn.Linear)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with pytest.raises(Unsupported, match="too slow"):
            eager(copied.inner, fullgraph=True)(X)


def test_what_cannot_be_disabled() -> None:
    for target in (3, nn.Linear):
        with pytest.raises(TypeError, match="function or a module"):
            fusewright.disable(target)
    with pytest.raises(TypeError, match="Python function"):
        fusewright.disable(torch.add, recursive=False)


def test_is_compiling() -> None:
    def f(x: Any) -> Any:
        return fusewright.is_compiling(), torch.compiler.is_compiling()

    assert eager(f)(X) == (True, True) and f(X) == (False, False)
    assert eager_of_torch(f, fullgraph=True)(X) == (True, True)


# -- beside torch.compile, and threads ------------------------------------------------------------


def eager_of_torch(target: Any, **keywords: Any) -> Any:
    return torch.compile(target, backend="eager", **keywords)


def relu_of_difference(x: Any) -> Any:
    return torch.relu(x - 2) * 3


def test_torch_compile_of_compiled_code() -> None:
    f, net = relu_of_difference, Net()
    assert torch.equal(eager_of_torch(eager(f), fullgraph=True)(X), f(X))
    assert torch.equal(eager_of_torch(eager(net), fullgraph=True)(X), net(X))
    ours = eager(f)
    assert torch.equal(eager_of_torch(lambda x: ours(x) + 1, fullgraph=True)(X), f(X) + 1)
    assert fusewright.compilations(ours) == (), "the graph is torch.compile's"


def test_compiling_what_torch_compile_made() -> None:
    f, net = relu_of_difference, Net()
    assert torch.equal(eager(eager_of_torch(f), fullgraph=True)(X), f(X))
    assert torch.equal(eager(eager_of_torch(net), fullgraph=True)(X), net(X))


def test_compiled_code_that_calls_what_torch_compile_made() -> None:
    f, net = relu_of_difference, Net()
    theirs, their_net = eager_of_torch(f), eager_of_torch(net)
    compiled = eager(lambda x: theirs(x) + their_net(x), fullgraph=True)
    assert torch.equal(compiled(X), f(X) + net(X))

    @fusewright.disable(recursive=False)
    def around(x: Any) -> Any:
        return theirs(x)

    assert torch.equal(eager(lambda x: around(x) + 1)(X), f(X) + 1)


def test_threads_that_compile_the_same_and_different_functions() -> None:
    compiled = [eager(lambda x, n=n: x * n + x.shape[0], fullgraph=True) for n in range(4)]

    def work(number: int) -> bool:
        n, size = number % 4, number % 3 + 1
        x = torch.ones(size, 2)
        return torch.equal(compiled[n](x), x * n + size)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


def test_a_call_by_the_name_of_the_method_is_compiled() -> None:
    backend = Recorder()
    compiled = fusewright.compile(lambda x: x + 1, backend=backend)
    assert torch.equal(compiled.__call__(X), X + 1)
    assert len(backend.graphs) == 1
