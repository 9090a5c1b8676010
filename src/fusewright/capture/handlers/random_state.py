"""The states of random generators under capture.

Torch's: seeding it, reading it and setting it are operators of the graph, in order among those that
draw. Python's and NumPy's are seeded, and draw, when the call has run: what they draw may be handed
on, but not looked at.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

import torch

from fusewright import random_state
from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, polyfill, refusal, when_imported
from fusewright.capture.interpreter.stand_ins import raise_real
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import Machine, NotConstant, Rebuilder, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.objects import ObjectValue
from fusewright.capture.values.tensors import TensorValue, UnknownValue
from fusewright.errors import Unsupported

# -- torch ----------------------------------------------------------------------------------------


for _name in ("seed", "initial_seed"):
    handles(getattr(torch.random, _name))(refusal(reasons.RANDOM_STATE, operation=f"torch.{_name}"))
for _name in ("seed", "get_state", "set_state"):
    handles(getattr(torch.Generator, _name))(
        refusal(reasons.RANDOM_STATE, operation=f"torch.Generator.{_name}")
    )


class GeneratorOfTorchValue(ObjectValue):
    """A `torch.Generator` made while tracing. Whoever draws from it breaks the graph, and is given
    a real one.
    """

    __slots__ = ("device", "seed")

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch.Generator)
        self.device = device
        self.seed: int = torch.Generator().initial_seed()

    def rebuild(self, code: Rebuilder) -> None:
        code.call(seeded_generator, self.device, self.seed)


def seeded_generator(device: torch.device, seed: int) -> torch.Generator:
    """A generator of torch's random numbers, in generated code."""
    return torch.Generator(device).manual_seed(seed)


@handles(torch.Generator.__new__)
def new_generator_of_torch(machine: Machine, cls: Value, device: Value | None = None) -> Value:
    where = torch.device("cpu" if device is None else device.constant())
    if cls.constant() is not torch.Generator:
        raise machine.unsupported(reasons.RANDOM_STATE, operation="torch.Generator.__new__")
    return GeneratorOfTorchValue(where)


@handles(torch.Generator.manual_seed)
def seed_generator_of_torch(machine: Machine, generator: Value, seed: Value) -> Value:
    if not isinstance(generator, GeneratorOfTorchValue):
        operation = "torch.Generator.manual_seed"
        raise machine.unsupported(reasons.RANDOM_STATE, operation=operation)
    try:
        generator.seed = torch.Generator().manual_seed(seed.constant()).initial_seed()
    except (RuntimeError, TypeError) as error:
        raise_real(machine, error)
    return generator


@handles(torch.Generator.initial_seed)
def initial_seed(machine: Machine, generator: Value) -> Value:
    if not isinstance(generator, GeneratorOfTorchValue):
        operation = "torch.Generator.initial_seed"
        raise machine.unsupported(reasons.RANDOM_STATE, operation=operation)
    return ConstantValue(generator.seed)


@handles(torch.random.manual_seed)
def manual_seed(machine: Machine, seed: Value) -> Value:
    number = seed.constant()
    try:
        torch.Generator().manual_seed(int(number))
    except Exception as error:
        raise_real(machine, error)
    operator = random_state.operator("manual_seed")
    machine.call_graph(operator, [ConstantValue(int(number))], {})
    return machine.wrap(torch.default_generator, ConstantSource(torch.default_generator))


def _seed_devices(function: Callable[[int], None]) -> Any:
    """Seeding GPUs where there are none: torch keeps the seed for later, when the call has run."""

    def seed_devices(machine: Machine, seed: Value) -> None:
        number = seed.constant()
        if torch.cuda.is_available() or type(number) is not int:
            operation = f"torch.cuda.{function.__name__}"
            raise machine.unsupported(reasons.RANDOM_STATE, operation=operation)
        machine.draws.append((function, (number,)))

    return seed_devices


for _function in (torch.cuda.manual_seed, torch.cuda.manual_seed_all):
    handles(_function)(_seed_devices(_function))


@handles(torch.random.get_rng_state)
def get_rng_state(machine: Machine) -> Value:
    device = ConstantValue(torch.device("cpu"))
    return machine.call_graph(random_state.operator("get_rng_state"), [], {"device": device})


@handles(torch.random.set_rng_state)
def set_rng_state(machine: Machine, new_state: Value) -> Any:
    if not isinstance(new_state, TensorValue) or new_state.fake.device.type != "cpu":
        raise machine.unsupported(reasons.RANDOM_STATE, operation="torch.set_rng_state")
    machine.call_graph(random_state.operator("set_rng_state"), [new_state], {})
    return None


@handles(torch.random.fork_rng)
def fork_of_devices(
    machine: Machine, /, devices: Value | None = None, *rest: Value, **keywords: Value
) -> Any:
    """`with torch.random.fork_rng()`: captured where no device but the CPU has a state to fork."""
    names_none = devices is not None and not machine.items(devices)
    if torch.accelerator.is_available() and not names_none:
        raise machine.unsupported(reasons.RANDOM_STATE, operation="torch.random.fork_rng")
    return DECLINED


@polyfill(torch.random.fork_rng)
@contextlib.contextmanager
def fork_rng(
    devices: Any = None, enabled: bool = True, *rest: Any, **keywords: Any
) -> Iterator[None]:
    """A region that puts the CPU's random state back, as `torch.random.fork_rng` does."""
    if not enabled:
        yield
        return
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


# -- Python ---------------------------------------------------------------------------------------

_GLOBAL = random.random.__self__  # type: ignore[attr-defined]
"""The generator that the functions of module `random` draw from."""

_RANDOM = "it draws from Python's own random numbers, whose state changes with each call"

_NUMBERS: Final = {
    float: (
        "random", "uniform", "triangular", "gauss", "normalvariate", "expovariate", "betavariate",
        "gammavariate", "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate",
    ),
    int: ("getrandbits", "randrange", "randint"),
}  # fmt: skip
"""Methods of `random.Random` that draw a number from known ones, by its class."""


def _refuse(machine: Machine, name: str) -> Unsupported:
    return machine.unsupported(reasons.OUTSIDE_WORLD, function=f"random.{name}", detail=_RANDOM)


handles(random.Random.__new__)(
    refusal(
        reasons.OUTSIDE_WORLD,
        function="random.Random",
        detail="it is a generator whose state changes with each call",
    )
)
for _name in ("choice", "choices", "sample", "shuffle", "getstate", "setstate"):
    handles(getattr(random.Random, _name))(
        refusal(reasons.OUTSIDE_WORLD, function=f"random.{_name}", detail=_RANDOM)
    )


@handles(random.Random.seed)
def seed_generator(
    machine: Machine, generator: Value, a: Value | None = None, version: Value | None = None
) -> Any:
    """Python's own generator is seeded when the call has run, before what is drawn then."""
    try:
        numbers = tuple(argument.constant() for argument in (a, version) if argument is not None)
    except NotConstant:
        numbers = ()
    is_known = bool(numbers) and numbers[0] is not None
    if not is_known or generator.real() is not _GLOBAL:
        raise _refuse(machine, "seed")
    try:
        random.Random().seed(*numbers)
    except TypeError as error:
        raise_real(machine, error)
    machine.draws.append((_GLOBAL.seed, numbers))
    return None


def _draw(name: str, cls: type) -> Callable[..., Value]:
    """A handler of a draw: the number is drawn when the call has run, so that later draws are
    right. Looking at it breaks the graph, as where a layer is left out by chance in training.
    """

    def draw(machine: Machine, generator: Value, *arguments: Value) -> Value:
        if generator.real() is not _GLOBAL:
            raise _refuse(machine, name)
        try:
            numbers = tuple(argument.constant() for argument in arguments)
            getattr(random.Random(), name)(*numbers)
        except (NotConstant, TypeError, ValueError):
            raise _refuse(machine, name) from None
        machine.draws.append((getattr(_GLOBAL, name), numbers))
        return UnknownValue(cls, functools.partial(_refuse, machine, name))

    return draw


for _cls, _names in _NUMBERS.items():
    for _name in _names:
        handles(getattr(random.Random, _name))(_draw(_name, _cls))


# -- NumPy ----------------------------------------------------------------------------------------


@when_imported("numpy.random")
def enter_numpy(numpy_random: ModuleType) -> None:
    """Enter the handler of functions written in Cython, of which those of NumPy's random numbers
    are some.
    """
    drawn_by = {
        getattr(numpy_random.RandomState, name): name
        for name in ("random", "uniform", "normal", "rand", "randn", "random_sample")
    }
    """The module's function that draws with each method of a generator."""

    @handles(type(numpy_random.seed).__call__)
    def call_numpy(machine: Machine, function: Value, *arguments: Value) -> Any:
        """`numpy.random.seed(…)`, and what draws one number: functions written in Cython, the
        latter as methods of a generator.
        """
        if function.real() is numpy_random.seed:
            return _seed_numpy(machine, arguments)
        name = drawn_by.get(function.real())
        if name is None or arguments[0].real() is not getattr(numpy_random, name).__self__:
            return DECLINED
        numbers = tuple(argument.constant() for argument in arguments[1:])
        try:
            drawn = getattr(numpy_random.RandomState(0), name)(*numbers)
        except Exception as error:
            raise_real(machine, error)
        if type(drawn) is not float:
            return DECLINED
        machine.draws.append((getattr(numpy_random, name), numbers))
        refusal = functools.partial(_refuse_numpy, machine, name)
        return UnknownValue(float, refusal)

    def _refuse_numpy(machine: Machine, name: str) -> Unsupported:
        function, why = f"numpy.random.{name}", _RANDOM.replace("Python", "NumPy")
        return machine.unsupported(reasons.OUTSIDE_WORLD, function=function, detail=why)

    def _seed_numpy(machine: Machine, arguments: Sequence[Value]) -> Any:
        numbers = tuple(argument.constant() for argument in arguments)
        if not numbers or numbers[0] is None:
            return DECLINED
        try:
            numpy_random.RandomState(*numbers)
        except Exception as error:
            raise_real(machine, error)
        machine.draws.append((numpy_random.seed, numbers))
        return None
