"""From the launch of a kernel, as a program writes it, to a `UserKernelCall`: while capturing,
where arguments are values of the interpreter, and in functions that run on fakes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, Protocol

import torch

from fusewright import torch_compat
from fusewright.records import record
from fusewright.user_kernels.calls import GridChoice, OperandPlace, UserKernelCall
from fusewright.user_kernels.writes import KernelWrites, kernel_writes, python_function


class NotACall(Exception):
    """Why a launch cannot be a call in a graph, in words that follow a colon."""


class LaunchReader(Protocol):
    """The one who knows what the arguments of a launch are."""

    def template(self, argument: Any, *, is_constant: bool) -> Any:
        """An argument as a call keeps it: a constant, a tuple, or the place of an operand.
        `is_constant`: it has to be known when compiling.
        """

    def grid(self, grid: Any, chosen: Mapping[str, Any]) -> tuple[Any, ...]:
        """The numbers of programs, given or as a function says for these arguments by name."""

    def evaluate(self, function: Any, chosen: Mapping[str, Any]) -> Any:
        """A parameter as a heuristic says for these arguments; raises where that fails."""

    def is_function(self, grid: Any) -> bool: ...

    def fakes(self) -> Sequence[torch.Tensor | None]:
        """The tensors among the operands, by their numbers."""


@record
class Parameters:
    """The parameters of a kernel, and who gives those that the program does not."""

    function: FunctionType
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    """The values of parameters that a launch may leave out."""

    constants: frozenset[str]
    """The parameters whose values have to be known when the kernel is compiled."""

    configurations: tuple[Mapping[str, Any], ...]
    """The values of parameters among which the autotuner chooses."""

    heuristics: Mapping[str, Any]
    """By parameter, the function that finds it."""

    written: frozenset[str]
    """The parameters to whose tensors the autotuner writes."""

    has_hooks: bool
    """Whether functions of the program's are given the arguments."""


_MOST_CONFIGURATIONS: Final = 256
_ADDRESSES: Final = "it reads or writes at addresses that it finds in memory"


def parameters_of(kernel: Any) -> Parameters:
    """The parameters of a kernel. Raises NotACall."""
    function = python_function(kernel)
    if function is None:
        raise NotACall("it is of an unknown kind")
    declared = inspect.signature(function).parameters
    constants = [
        name for name, parameter in declared.items() if "constexpr" in str(parameter.annotation)
    ]
    configurations: list[Mapping[str, Any]] = [{}]
    heuristics: dict[str, Any] = {}
    written: set[str] = set()
    has_hooks = False
    for layer in _layers(kernel):
        has_hooks |= bool(getattr(layer, "pre_run_hooks", ()))
        if hasattr(layer, "configs"):
            own = list(layer.configs)
            has_hooks |= any(config.pre_hook is not None for config in own)
            for name in ("user_defined_pre_hook", "user_defined_post_hook"):
                has_hooks |= bool(getattr(layer, name, True))
            written |= {*layer.reset_to_zero, *layer.restore_value}
            configurations = [
                {**outer, **config.all_kwargs()} for outer in configurations for config in own
            ]
        elif isinstance(getattr(layer, "values", None), Mapping):
            heuristics |= layer.values
    if len(configurations) > _MOST_CONFIGURATIONS:
        raise NotACall(f"it has more than {_MOST_CONFIGURATIONS} configurations")
    return Parameters(
        function=function,
        names=tuple(declared),
        defaults={
            name: parameter.default
            for name, parameter in declared.items()
            if parameter.default is not parameter.empty
        },
        constants=frozenset(constants),
        configurations=tuple(configurations),
        heuristics=heuristics,
        written=frozenset(map(str, written)),
        has_hooks=has_hooks,
    )


def _layers(kernel: Any) -> Iterator[Any]:
    """The kernel, and what it is around."""
    while not isinstance(kernel, FunctionType):
        yield kernel
        kernel = kernel.fn


def innermost(kernel: Any) -> Any:
    """The kernel itself, without what tunes it."""
    *_, kernel = _layers(kernel)
    return kernel


def make_call(
    kernel: Any,
    grid: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    reader: LaunchReader,
) -> UserKernelCall:
    """The launch `kernel[grid](*arguments, **keywords)`. Raises NotACall."""
    parameters = parameters_of(kernel)
    if len(arguments) > len(parameters.names):
        raise NotACall("it is given more arguments than it takes")
    constants = parameters.constants
    named = dict(zip(parameters.names, arguments, strict=False))
    templates = {
        name: reader.template(value, is_constant=name in constants) for name, value in named.items()
    }
    by_name = {
        name: reader.template(value, is_constant=name in constants or name not in parameters.names)
        for name, value in keywords.items()
    }
    if not by_name.keys().isdisjoint(templates):
        raise NotACall("it is given an argument twice")
    given = {**named, **{n: v for n, v in keywords.items() if n in parameters.names}}
    grids = list(_grids(parameters, grid, given, reader))
    bound = {**templates, **{name: by_name[name] for name in by_name if name in parameters.names}}
    tensors = reader.fakes()
    writes = kernel_writes(kernel)
    written = _written(parameters, writes, bound, tensors)
    _refuse_shared_memory(tensors, written)
    return UserKernelCall(
        kernel,
        parameters.function.__name__,
        tuple(templates.values()),
        by_name,
        grids,
        written,
        has_effect=writes.has_effect or parameters.has_hooks,
    )


def _grids(
    parameters: Parameters, grid: Any, given: Mapping[str, Any], reader: LaunchReader
) -> Iterator[GridChoice]:
    """The grid, or that of each configuration where it is a function of those."""
    if not reader.is_function(grid):
        yield GridChoice((), reader.grid(grid, {}))
        return
    is_choice = len(parameters.configurations) > 1
    for configuration in parameters.configurations:
        own = {name: value for name, value in configuration.items() if name in parameters.names}
        chosen = {**parameters.defaults, **given, **own}
        for name, function in parameters.heuristics.items():
            chosen[name] = reader.evaluate(function, {**given, **configuration, **chosen})
        yield GridChoice(tuple(own.items()) if is_choice else (), reader.grid(grid, chosen))


def _written(
    parameters: Parameters,
    writes: KernelWrites,
    bound: Mapping[str, Any],
    tensors: Sequence[torch.Tensor | None],
) -> tuple[int, ...]:
    """The numbers of the operands that a launch may write to. Raises NotACall."""
    if writes.follows_addresses:
        raise NotACall(_ADDRESSES)
    everything = {number for number, tensor in enumerate(tensors) if tensor is not None}
    if parameters.has_hooks or not writes.is_known:
        return tuple(sorted(everything))
    written: set[int] = set()
    for store in writes.stores:
        targets = [bound[name] for name in store if name in bound]
        reached = {number for target in targets for number in _places(target)} & everything
        if not reached and not any(target is None for target in targets):
            raise NotACall(_ADDRESSES)
        written |= reached
    for name in parameters.written:
        written |= {*_places(bound.get(name))} & everything
    return tuple(sorted(written))


def _places(template: Any) -> Iterator[int]:
    match template:
        case OperandPlace(number):
            yield number
        case tuple():
            for part in template:
                yield from _places(part)


# Memory that arguments share ----------------------------------------------------------------------


def _refuse_shared_memory(tensors: Sequence[torch.Tensor | None], written: Sequence[int]) -> None:
    """Raises NotACall where the kernel may write to an element that another argument shows, too, or
    that is there twice.
    """
    for number in written:
        target = _memory(tensors[number])
        if any(step == 0 and not _is_int(size, 1) for size, step in _extents(target)):
            raise NotACall("it writes to a tensor whose elements share memory")
        for other, tensor in enumerate(tensors):
            if other == number or tensor is None or (other in written and other < number):
                continue
            if _may_share(target, _memory(tensor)):
                raise NotACall("two of its arguments share memory, and it writes to one of them")


def _memory(tensor: Any) -> torch.Tensor:
    tensor = torch_compat.unwrapped(tensor)
    memory: torch.Tensor = getattr(tensor, "meta_tensor", tensor)
    return memory


def _may_share(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors may show the same element of memory."""
    if torch_compat.storage_key(left) != torch_compat.storage_key(right):
        return False
    steps = {step for tensor in (left, right) for _, step in _extents(tensor)}
    if not all(type(step) is int for step in steps):
        return True
    columns = [_columns(left, step) for step in (*steps, None)]
    others = [_columns(right, step) for step in (*steps, None)]
    return not any(
        own is not None and other is not None and (own[1] <= other[0] or other[1] <= own[0])
        for own, other in zip(columns, others, strict=True)
    )


def _columns(tensor: torch.Tensor, step: int | None) -> tuple[int, int] | None:
    """The bytes, from and to, that a tensor may show of each row of `step` bytes; of all memory for
    None. None where it may show parts of two rows, or sizes are not known.
    """
    width = tensor.itemsize
    inside = [pair for pair in _extents(tensor) if step is None or pair[1] < step]
    if step is not None and any(pair[1] % step for pair in _extents(tensor) if pair[1] >= step):
        return None
    begin = tensor.storage_offset() * tensor.itemsize
    if type(begin) is not int or not all(type(size) is int for size, _ in inside):
        return None
    begin = begin if step is None else begin % step
    end = begin + width + sum((size - 1) * own for size, own in inside)
    return (begin, end) if step is None or end <= step else None


def _extents(tensor: torch.Tensor) -> list[tuple[Any, Any]]:
    """Sizes, and strides in bytes, of the dimensions of more than one element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, step * tensor.itemsize) for size, step in pairs if not _is_int(size, 1)]


def _is_int(number: Any, value: int) -> bool:
    return type(number) is int and number == value
