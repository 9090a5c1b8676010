"""Features of Python that programs are built with."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import enum
import functools
import itertools
import logging
import weakref
from abc import ABC, abstractmethod
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


@dataclasses.dataclass
class Batch:
    """What a loader gives."""

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor | None = None
    tags: list[str] = dataclasses.field(default_factory=list)

    def scaled(self, factor: float) -> Batch:
        """Another batch."""
        return dataclasses.replace(self, x=self.x * factor, tags=[*self.tags, "scaled"])


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """What a model gives."""

    loss: torch.Tensor
    logits: torch.Tensor


@program()
def dataclasses_in_and_out(compile: Compile) -> Run:
    """A model takes a dataclass, replaces fields of it, and returns a frozen one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(16, 32, 4)

        def forward(self, batch: Batch) -> Output:
            batch = batch.scaled(0.5)
            logits = self.body(batch.x)
            loss = nn.functional.cross_entropy(logits, batch.y)
            if batch.weight is not None:
                loss = loss * batch.weight.mean()
            return Output(loss, logits)

    module = Model()
    compiled = compile(module)
    batch = Batch(torch.randn(32, 16), torch.randint(0, 4, (32,)), torch.rand(32))

    def run() -> Any:
        output = compiled(batch)
        return output.logits.detach(), gradients(module, output.loss)

    return run


class Timer:
    """A context manager with state."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def __enter__(self) -> Timer:
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, *raised: Any) -> bool:
        self.log.append(f"leave {self.name}")
        return False


@program()
def context_manager_class(compile: Compile) -> Run:
    """A context manager of the user's around each layer, which keeps a log."""
    layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])

    @compile
    def compute(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        for number, layer in enumerate(layers):
            with Timer(f"layer {number}", log):
                x = layer(x).tanh()
        return x

    x = torch.randn(32, 16)

    def run() -> Any:
        log: list[str] = []
        return compute(x, log).detach(), log

    return run


@program()
def context_manager_functions(compile: Compile) -> Run:
    """Generators as context managers, an ExitStack, suppress and nullcontext."""

    @contextlib.contextmanager
    def scaled(holder: dict[str, float], factor: float) -> Iterator[float]:
        before = holder["factor"]
        holder["factor"] = before * factor
        try:
            yield before
        finally:
            holder["factor"] = before

    @compile
    def compute(x: torch.Tensor, holder: dict[str, float]) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            for factor in (0.5, 2.0, 3.0):
                stack.enter_context(scaled(holder, factor))
                x = x * holder["factor"]
        with contextlib.suppress(KeyError):
            x = x + holder["missing"]
        with contextlib.nullcontext(), scaled(holder, 4.0) as before:
            return x * before

    x = torch.randn(64, 16)
    return lambda: compute(x, {"factor": 1.0})


@program()
def decorated_class(compile: Compile) -> Run:
    """A class decorator wraps forward, as libraries that log or check do."""

    def counted(cls: type) -> type:
        original = cls.forward  # type: ignore[attr-defined]

        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            result = original(self, *args, **kwargs)
            self.last_shape = tuple(result.shape)
            return result

        cls.forward = forward  # type: ignore[attr-defined]
        return cls

    @counted
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(16, 32, 4)
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).softmax(-1)

    module = Model()
    compiled = compile(module)
    x = torch.randn(32, 16)
    return lambda: (compiled(x).detach(), module.calls, module.last_shape)


@program()
def decorator_with_arguments(compile: Compile) -> Run:
    """Decorators that check shapes by the signature, and cache."""
    import inspect

    def checked(**dimensions: int) -> Callable[..., Any]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(function)

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                bound = signature.bind(*args, **kwargs)
                for name, dimension in dimensions.items():
                    if bound.arguments[name].dim() != dimension:
                        raise ValueError(name)
                return function(*args, **kwargs)

            return wrapper

        return decorate

    @checked(x=2, y=2)
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    compiled = compile(product)
    x, y = torch.randn(32, 16), torch.randn(16, 32)
    return lambda: compiled(x, y=y)


class Kind(enum.Enum):
    """How to pool."""

    MEAN = "mean"
    LAST = "last"

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        """One vector a row."""
        return x.mean(1) if self is Kind.MEAN else x[:, -1]


@program()
def enums_and_match(compile: Compile) -> Run:
    """Enums with methods, flags, and match statements."""

    @compile
    def pool(x: torch.Tensor, kinds: tuple[Kind, ...], how: dict[str, Any]) -> torch.Tensor:
        pooled = torch.cat([kind.pooled(x) for kind in kinds], -1)
        match how:
            case {"norm": "l2", "eps": float(eps)}:
                return pooled / (pooled.norm(dim=-1, keepdim=True) + eps)
            case {"norm": _}:
                return pooled.softmax(-1)
            case _:
                return pooled

    x = torch.randn(8, 10, 16)
    how = {"norm": "l2", "eps": 1e-6}
    return lambda: (pool(x, (Kind.MEAN, Kind.LAST), how), pool(x, (Kind.LAST,), {}))


@program()
def generators_in_a_pipeline(compile: Compile) -> Run:
    """Generators feed each other, with send and yield from."""

    def chunks(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield from x.split(8)

    def normalised(parts: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        for part in parts:
            yield (part - part.mean()) / (part.std() + 1e-6)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.relu() for part in normalised(chunks(x))])

    x = torch.randn(32, 16)
    return lambda: compute(x)


@program()
def caches_and_properties(compile: Compile) -> Run:
    """cached_property, lru_cache, properties with setters, and __getattr__."""

    @functools.lru_cache(maxsize=8)
    def positions(length: int) -> torch.Tensor:
        return torch.arange(length).float()[:, None]

    class Encoder(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self._scale = 1.0

        @functools.cached_property
        def table(self) -> torch.Tensor:
            return torch.randn(64, 16)

        @property
        def scale(self) -> float:
            return self._scale

        @scale.setter
        def scale(self, value: float) -> None:
            self._scale = min(value, 2.0)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = 3.0
            table = self.table[: x.shape[1]] + positions(x.shape[1])
            return self.inner(x + table) * self.scale + self.in_features

    module = Encoder(nn.Linear(16, 8))
    compiled = compile(module)
    x = torch.randn(4, 20, 16)
    return lambda: compiled(x).detach()


@program()
def context_variables(compile: Compile) -> Run:
    """A ContextVar holds a setting that layers read."""
    factor: contextvars.ContextVar[float] = contextvars.ContextVar("factor", default=1.0)

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return (x * factor.get()).tanh()

    x = torch.randn(64, 16)

    def run() -> Any:
        token = factor.set(2.0)
        try:
            return compute(x)
        finally:
            factor.reset(token)

    return run


class Layer(ABC, nn.Module):
    """An abstract base with a template method."""

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        x = self.before(x)
        x = self.compute(x, **options)
        return super_method(self, x)

    def before(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @abstractmethod
    def compute(self, x: torch.Tensor, **options: Any) -> torch.Tensor: ...


def super_method(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    """Adds what a mixin has."""
    return x + getattr(layer, "offset", 0.0)


class Normed:
    """A mixin."""

    def before(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(super().before(x), x.shape[-1:])  # type: ignore[misc]


class Dense(Normed, Layer):
    """A concrete layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def compute(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.linear(x) * options.get("scale", 1.0)


@program()
def abstract_classes_and_mixins(compile: Compile) -> Run:
    """Template methods, mixins, super chains, keyword options."""
    module = nn.ModuleList([Dense(), Dense()])

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        for layer in module:
            x = layer(x, scale=0.5)
        return x

    x = torch.randn(32, 16)
    return lambda: gradients(module, compute(x).square().mean())


@program()
def hooks_of_modules(compile: Compile) -> Run:
    """Forward hooks that collect activations, and pre-hooks that change inputs."""
    module = perceptron(16, 32, 32, 4)
    kept: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            kept[name] = output.detach()

        return hook

    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(keep(name))
    module[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 0.5,))
    compiled = compile(module)
    x = torch.randn(32, 16)

    def run() -> Any:
        kept.clear()
        return gradients(module, compiled(x).square().mean()), dict(kept)

    return run


@program()
def gradient_hooks(compile: Compile) -> Run:
    """Hooks on parameters and on an activation scale gradients."""
    module = perceptron(16, 32, 4)
    for parameter in module.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        hidden = module[0](x)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient * 2)
        return module[1:](hidden).square().mean()

    x = torch.randn(32, 16)
    return lambda: gradients(module, compute(x))


@program()
def logging_in_forward(compile: Compile) -> Run:
    """A logger, warnings once, and formatted strings in forward."""
    logger = logging.getLogger("a program")
    module = perceptron(16, 32, 4)

    @compile
    def compute(x: torch.Tensor, step: int) -> torch.Tensor:
        logger.debug("step %d, shape %s", step, tuple(x.shape))
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", x)
        name = f"{x.shape[0]:>4}×{x.dtype}"
        return module(x) * len(name)

    x = torch.randn(32, 16)
    return lambda: compute(x, 3).detach()


@program()
def exceptions_as_control_flow(compile: Compile) -> Run:
    """try, except, else and finally; exception classes with state; re-raising."""

    class TooLong(ValueError):
        def __init__(self, length: int) -> None:
            super().__init__(f"{length} is too long")
            self.length = length

    def checked(x: torch.Tensor, most: int) -> torch.Tensor:
        if x.shape[0] > most:
            raise TooLong(x.shape[0])
        return x

    @compile
    def compute(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        for most in (8, 16, 64):
            try:
                x = checked(x, most) * 2
            except TooLong as error:
                log.append(str(error))
                x = x + error.length
            else:
                log.append("fits")
            finally:
                x = x.tanh()
        return x

    x = torch.randn(32, 16)

    def run() -> Any:
        log: list[str] = []
        return compute(x, log), log

    return run


@program()
def single_dispatch_and_protocols(compile: Compile) -> Run:
    """functools.singledispatch over inputs, runtime protocols, isinstance of unions."""

    @runtime_checkable
    class Sized(Protocol):
        def __len__(self) -> int: ...

    @functools.singledispatch
    def encode(value: Any) -> torch.Tensor:
        raise TypeError(type(value))

    @encode.register
    def _(value: torch.Tensor) -> torch.Tensor:
        return value.float()

    @encode.register
    def _(value: list) -> torch.Tensor:  # type: ignore[type-arg]
        return torch.tensor(value, dtype=torch.float32)

    @encode.register
    def _(value: dict) -> torch.Tensor:  # type: ignore[type-arg]
        return torch.cat([encode(value[key]) for key in sorted(value)])

    @compile
    def compute(value: Any) -> torch.Tensor:
        encoded = encode(value)
        if isinstance(value, Sized) and isinstance(value, dict | list):
            encoded = encoded * len(value)
        return encoded.cumsum(0)

    value = {"a": torch.randn(64), "b": [1.0, 2.0], "c": {"d": torch.arange(3)}}
    return lambda: compute(value)


class Point(NamedTuple):
    """A pair with a method."""

    x: torch.Tensor
    y: torch.Tensor

    def norm(self) -> torch.Tensor:
        """Its length."""
        return (self.x**2 + self.y**2).sqrt()


@program()
def containers_of_every_kind(compile: Compile) -> Run:
    """Named tuples, ChainMap, defaultdict, deque, OrderedDict, Counter, itertools."""
    pair = namedtuple("pair", ["first", "second"])

    @compile
    def compute(points: list[Point]) -> dict[str, Any]:
        sums: dict[str, list[torch.Tensor]] = defaultdict(list)
        recent: deque[torch.Tensor] = deque(maxlen=2)
        for number, (one, other) in enumerate(itertools.pairwise(points)):
            sums["even" if number % 2 == 0 else "odd"].append(one.norm() - other.norm())
            recent.append(one.x)
        options = ChainMap({"scale": 2.0}, {"scale": 1.0, "bias": 0.5})
        counts = Counter(len(values) for values in sums.values())
        ordered = OrderedDict(
            (k, torch.stack(v).mean() * options["scale"]) for k, v in sums.items()
        )
        ordered.move_to_end("even")
        chosen = pair(*itertools.islice(recent, 2))
        return {**ordered, "last": chosen.second, "count": counts.most_common(1)[0][1]}

    points = [Point(torch.randn(32), torch.randn(32)) for _ in range(6)]
    return lambda: compute(points)


@program()
def weak_references_and_registries(compile: Compile) -> Run:
    """A registry by name, a weak dictionary of caches, __init_subclass__."""
    registry: dict[str, type] = {}

    class Activation:
        def __init_subclass__(cls, name: str, **keywords: Any) -> None:
            super().__init_subclass__(**keywords)
            registry[name] = cls

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            raise NotImplementedError

    class Square(Activation, name="square"):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() ** 2

    class Swish(Activation, name="swish"):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * x.sigmoid()

    caches: weakref.WeakKeyDictionary[nn.Module, float] = weakref.WeakKeyDictionary()
    layer = nn.Linear(16, 16)
    caches[layer] = 0.5

    @compile
    def compute(x: torch.Tensor, names: list[str]) -> torch.Tensor:
        for name in names:
            x = registry[name]()(layer(x)) * caches.get(layer, 1.0)
        return x

    x = torch.randn(32, 16)
    return lambda: compute(x, ["square", "swish"]).detach()


@program()
def small_losses(compile: Compile) -> Run:
    """A loss of few operators on few numbers, trained."""
    module = nn.Linear(8, 1)

    @compile
    def loss(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        return (found - expected).abs().clamp(min=1e-3).log().mean()

    x, y = torch.randn(16, 8), torch.randn(16, 1)
    return lambda: gradients(module, loss(module(x), y))


@program()
def tiny_function(compile: Compile) -> Run:
    """Two operators on eight numbers, without gradients."""

    @compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    x = torch.randn(8)
    return lambda: compute(x)


@program()
def closures_made_in_each_call(compile: Compile) -> Run:
    """Functions and partials made and called within, nonlocal counters."""

    @compile
    def compute(x: torch.Tensor, depth: int) -> torch.Tensor:
        calls = 0

        def layer(scale: float, x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return (x * scale).tanh()

        steps = [functools.partial(layer, 1.0 / (n + 1)) for n in range(depth)]
        for step in steps:
            x = step(x)
        return x * calls

    x = torch.randn(64, 16)
    return lambda: compute(x, 4)


@program()
def method_of_an_object(compile: Compile) -> Run:
    """Compiled methods of a plain class, with state that calls change."""

    class Filter:
        def __init__(self) -> None:
            self.mean = torch.zeros(16)
            self.count = 0

        @compile
        def update(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return (x - self.mean) / (x.std(0) + 1e-6)

    one = Filter()
    x = torch.randn(32, 16)
    return lambda: (one.update(x), one.mean.clone(), one.count)


@program()
def registered_pytree(compile: Compile) -> Run:
    """A class registered with torch's pytrees is mapped over."""
    from torch.utils import _pytree as pytree

    class Pair:
        def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
            self.first, self.second = first, second

    pytree.register_pytree_node(
        Pair, lambda pair: ([pair.first, pair.second], None), lambda items, _: Pair(*items)
    )

    @compile
    def compute(pair: Pair) -> Pair:
        return pytree.tree_map(lambda x: x.relu() * 2, {"p": pair, "n": [pair.first]})["p"]

    pair = Pair(torch.randn(64), torch.randn(64))

    def run() -> Any:
        result = compute(pair)
        return result.first, result.second

    return run
