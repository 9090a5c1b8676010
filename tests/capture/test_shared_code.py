"""Code that many objects share, behind graph breaks: methods of modules, wrappers, closures. Each
object has entries and a limit of its own, and objects that are alike share what was compiled.
"""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fusewright import api
from fusewright.compiled import compiler_of
from fusewright.errors import RecompileLimitExceeded
from tests.capture.agreement import assert_same

X = torch.arange(12.0).reshape(2, 6) / 7


@pytest.fixture(autouse=True)
def no_limit_is_reached() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Block(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x))


class Broken(nn.Module):
    """Calls each of its layers by itself."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = by_itself(layer, x)
        return x


def by_itself(layer: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    api.graph_break()
    x = layer(x)
    api.graph_break()
    return x


def captures(program: Callable[..., Any], *arguments: Any, calls: int = 3) -> int:
    compiled = api.compile(program, backend="eager")
    for _ in range(calls):
        assert_same(compiled(*arguments), program(*arguments))
    count = compiler_of(compiled).capture_count
    compiled(*arguments)
    assert compiler_of(compiled).capture_count == count, "no call compiles once all have run"
    return count


def test_fifty_blocks_that_are_alike_compile_as_two_do() -> None:
    two, fifty = ([Block().eval() for _ in range(count)] for count in (2, 50))
    assert captures(Broken(fifty), X) == captures(Broken(two), X)


def test_twenty_layers_that_differ_are_all_compiled() -> None:
    layers: list[nn.Module] = [nn.Linear(6 + n, 7 + n) for n in range(20)]
    assert captures(Broken(layers), X) >= 20


def test_twenty_sequences_that_differ_are_all_compiled() -> None:
    kinds: list[Callable[[], nn.Module]] = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU]
    layers = [nn.Sequential(*[kinds[n % 4]() for _ in range(1 + n // 4)]) for n in range(20)]
    assert captures(Broken(list(layers)), X) >= 20


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        api.graph_break()
        result = function(*args, **kwargs)
        api.graph_break()
        return result * 2

    return wrapper


def test_a_decorator_used_twenty_times() -> None:
    namespace: dict[str, Any] = {"torch": torch}
    for n in range(20):
        exec(f"def function_{n}(x): return torch.relu(x * {n} - 1)", namespace)
    functions = [wrapped(namespace[f"function_{n}"]) for n in range(20)]

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x) for function in functions]

    assert captures(program, X) >= 20


def test_a_decorator_on_twenty_methods_of_one_object() -> None:
    methods = {}
    for n in range(20):
        namespace: dict[str, Any] = {}
        exec(f"def method_{n}(self, x): return (x + {n}) * self.scale", namespace)
        methods[f"method_{n}"] = wrapped(namespace[f"method_{n}"])
    kind = type("Kind", (), {"scale": 3.0, **methods})

    def program(one: Any, x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(one, name)(x) for name in methods]

    assert captures(program, kind(), X) >= 20


def test_a_closure_made_twenty_times() -> None:
    def closing_over(name: str) -> Callable[..., Any]:
        def closure(x: torch.Tensor) -> Any:
            return x * len(name), name

        return closure

    closures = [closing_over("x" * n) for n in range(20)]

    def program(x: torch.Tensor) -> list[Any]:
        found = []
        for closure in closures:
            api.graph_break()
            found.append(closure(x))
        return found

    assert captures(program, X) >= 20


def test_the_limit_of_one_object_leaves_the_others_alone() -> None:
    class Named(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + len(self.name)

    def program(module: Any, x: torch.Tensor) -> Any:
        return module(x)

    compiled = api.compile(program, backend="eager", recompile_limit=2)
    many, few = Named(""), [Named("a"), Named("b" * 2)]
    with pytest.warns(RuntimeWarning, match="recompile_limit of 2"):
        for length in range(5):
            many.name = "m" * (10 + length)
            assert_same(compiled(many, X), program(many, X))
    count = compiler_of(compiled).capture_count
    for module in few * 2:
        assert_same(compiled(module, X), program(module, X))
    assert compiler_of(compiled).capture_count == count + 2


def test_a_module_that_replaces_another_uses_what_that_one_had() -> None:
    def program(module: Any, x: torch.Tensor) -> Any:
        return module(x)

    compiled = api.compile(program, backend="eager")
    for _ in range(30):
        block = Block().eval()
        assert_same(compiled(block, X), program(block, X))
        dead = weakref.ref(block)
        del block
        gc.collect()
        assert dead() is None
    assert compiler_of(compiled).capture_count == 1


def test_modules_of_growing_size_one_after_another() -> None:
    def program(module: Any, x: torch.Tensor) -> Any:
        return module(x)

    compiled = api.compile(program, backend="eager")
    for width in range(7, 27):
        layer = nn.Linear(6, width)
        for _ in range(2):
            assert_same(compiled(layer, X), program(layer, X))
    frames = compiler_of(compiled).frames
    assert len(frames.entries(program.__code__)) <= 10, "what dead objects leave behind is bounded"


# -- what goes on behind a break, in each round of a loop ------------------------------------------


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        api.graph_break()
        return torch.relu(self.linear(x))


class Getter(nn.ModuleDict):
    """As torchvision's `IntermediateLayerGetter` does."""

    def __init__(self) -> None:
        super().__init__({f"layer{n}": Breaking() for n in range(12)})
        self.names = {f"layer{n}": str(n) for n in range(0, 12, 3)}

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {}
        for name, module in self.items():
            x = module(x)
            if name in self.names:
                found[self.names[name]] = x * 2
        return found


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for n in range(12):
            setattr(self, f"layer{n}", Breaking())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for n in range(12):
            x = getattr(self, f"layer{n}")(x)
        return x.sin()


class ByIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Breaking() for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for n in range(len(self.layers)):
            x = self.layers[n](x) * n
            found.append(x)
        return torch.stack(found)


class Enumerated(ByIndex):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            x = layer(x) if n in (2, 5) else x + layer(x)
            if n == 7:
                x = x.tanh()
        return x


@pytest.mark.parametrize("kind", [Getter, ByName, ByIndex, Enumerated])
def test_loops_whose_rounds_differ_in_a_value(kind: type[nn.Module]) -> None:
    assert captures(kind(), X) < 30


def test_the_last_version_is_for_all_values() -> None:
    def program(x: torch.Tensor, name: str) -> Any:
        x = x * 2
        return torch.relu(x - len(name)) + 1, name

    graphs: list[Any] = []
    compiled = api.compile(program, backend=lambda g, i: graphs.append(g) or g.forward)
    for length in range(20):
        assert_same(compiled(X, "n" * length), program(X, "n" * length))
    frames = compiler_of(compiled).frames
    assert len(frames.entries(program.__code__)) == 8
    count = len(graphs)
    for length in range(20, 40):
        assert_same(compiled(X, "n" * length), program(X, "n" * length))
    assert len(graphs) == count, "what follows the break is compiled, for all values too"


def test_values_that_only_some_calls_look_at() -> None:
    """The last version may not take what it has not looked at for what it was."""

    def program(x: torch.Tensor, name: str, looks: bool) -> Any:
        y = x + 1
        api.graph_break()
        return (y * len(name) if looks else y), name

    compiled = api.compile(program, backend="eager")
    for length in range(12):
        for looks in (True, False, True):
            name = "n" * (length % 10)
            assert_same(compiled(X, name, looks), program(X, name, looks))


def test_a_value_that_is_compared_with_itself() -> None:
    def program(x: torch.Tensor, name: str, other: str) -> Any:
        y = x * 2
        return y + (name is other), y + (name == other), name or other

    compiled = api.compile(program, backend="eager")
    for length in range(12):
        name, other = "n" * length + "!", "n" * (length // 2) + "!"
        for arguments in ((name, name), (name, other), (other, name)):
            assert_same(compiled(X, *arguments), program(X, *arguments))


def test_strict_code_is_compiled_for_each_value_up_to_the_limit() -> None:
    def program(x: torch.Tensor, name: str) -> Any:
        return x + len(name)

    compiled = api.compile(program, backend="eager", fullgraph=True)
    for length in range(8):
        assert_same(compiled(X, "n" * length), program(X, "n" * length))
    with pytest.raises(RecompileLimitExceeded, match="name"):
        compiled(X, "n" * 9)


def test_tuples_of_numbers_that_vary() -> None:
    def program(x: torch.Tensor, sizes: tuple[int, int]) -> Any:
        return x.new_zeros(sizes) + sizes[0] * 2, x * sizes[1], sizes

    compiled = api.compile(program, backend="eager")
    for n in range(2, 12):
        assert_same(compiled(X, (n, n + 1)), program(X, (n, n + 1)))
    assert compiled.compiler.capture_count == 2
    for sizes in ((3, 3), (2, 1), (0, 4), (5, 2)):
        assert_same(compiled(X, sizes), program(X, sizes))
