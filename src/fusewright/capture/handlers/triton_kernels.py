"""Triton kernels that a program launches itself: each launch is a call in the graph. Nothing of
Triton's own code, which compiles, tunes and launches, is captured.

    add[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)      the node add(x, y, out, n)

A grid that is a function of the kernel's parameters is called while tracing, once for each
configuration of an autotuner. Guards say that it is the same kernel, which calls the same functions
of the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import handles, when_imported
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Value
from fusewright.capture.values.constant import FALSE, NONE, ConstantValue
from fusewright.capture.values.functions import FunctionValue, PartialValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.sequences import ListValue, TupleValue
from fusewright.capture.values.tensors import TensorValue, UnknownValue
from fusewright.errors import Unsupported
from fusewright.symbolic.nodes import SYMBOLIC
from fusewright.user_kernels import (
    NotACall,
    OperandPlace,
    is_interpreted,
    kernel_writes,
    launching_classes,
    make_call,
    noting,
    python_function,
)


@when_imported("triton.runtime")
def enter_launches(runtime: ModuleType) -> None:
    """Enter what `kernel[grid](…)` calls, of a kernel and of what tunes it."""
    _enter()


@when_imported("triton.runtime.interpreter")
def enter_interpreted(interpreter: ModuleType) -> None:
    """Enter the same under Triton's interpreter."""
    _enter()


def _enter() -> None:
    for cls in launching_classes():
        run = getattr(cls.run, "__wrapped__", cls.run)
        handles(run, noting(run))(launch)
        handles(cls.__getitem__)(with_grid)


def with_grid(machine: Machine, kernel: Value, grid: Value) -> Value:
    """`kernel[grid]`: what launches it when it is called."""
    keywords = machine.new_dict({"grid": grid, "warmup": FALSE})
    return PartialValue(machine.attribute(kernel, "run"), (), keywords)


def launch(
    machine: Machine,
    kernel: Value,
    /,
    *arguments: Value,
    grid: Value = NONE,
    warmup: Value | None = None,
    **keywords: Value,
) -> Value:
    """`kernel.run(…)`, which `kernel[grid](…)` calls."""
    real = kernel.real()
    name = getattr(python_function(real), "__name__", None) or "of this class"

    def refused(detail: object) -> Unsupported:
        return machine.unsupported(reasons.TRITON_KERNEL, kernel=name, detail=detail)

    if real is MISSING or kernel.source is None:
        raise refused("the program makes it while it runs")
    if warmup is not None and warmup.constant():
        raise refused("it is compiled, and not launched")
    machine.guard(GuardKind.IDENTITY, kernel.source, real)
    _guard_helpers(machine, kernel)
    machine.read_all([*arguments, *keywords.values()])
    reader = _OfValues(machine)
    try:
        call = make_call(real, grid, arguments, keywords, reader)
        fakes = reader.fakes()
        written = [fakes[number] for number in call.written]
        if torch.is_grad_enabled() and any(
            fake.requires_grad for fake in written if fake is not None
        ):
            raise NotACall("it writes to a tensor that requires grad")
    except NotACall as reason:
        raise refused(reason) from None
    machine.call_graph(call, reader.operands, {})
    if is_interpreted(real):
        return NONE
    return UnknownValue(object, lambda: refused("the program looks at what the launch returns"))


def _guard_helpers(machine: Machine, kernel: Value) -> None:
    """Guard that a kernel calls the functions of the program's by which it is known what it writes
    to.
    """
    functions: dict[Any, Value] = {python_function(kernel.real()): kernel}
    for helper in kernel_writes(kernel.real()).helpers:
        owner = functions[helper.owner]
        function: Any = owner
        while not isinstance(function, FunctionValue):
            function = machine.attribute(function, "fn")
        names = function.code.co_freevars
        called = (
            function.cells[names.index(helper.name)].load(machine)
            if helper.name in names
            else function.namespace.load(machine, helper.name)
        )
        if called is None:
            continue  # the variable is not set, and the kernel cannot run
        if called.source is not None:
            machine.guard(GuardKind.IDENTITY, called.source, helper.kernel)
        functions.setdefault(python_function(helper.kernel), called)


class _OfValues:
    """Reads launches whose arguments are values of the interpreter."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.operands: list[Value] = []
        self._fakes: list[torch.Tensor | None] = []

    def fakes(self) -> Sequence[torch.Tensor | None]:
        return self._fakes

    def template(self, argument: Any, *, is_constant: bool) -> Any:
        match argument:
            case TensorValue(fake=torch.Tensor() as fake):
                return self._place(argument, fake)
            case SymbolicValue() if not is_constant and isinstance(argument.number, SYMBOLIC):
                if not isinstance(argument.number, torch.SymBool):
                    return self._place(argument, None)
            case TupleValue() | ListValue():
                items = self._machine.items(argument)
                return tuple([self.template(item, is_constant=is_constant) for item in items])
        if isinstance(argument, ConstantValue):
            return argument.constant()
        real = argument.real()
        if real is not MISSING and _is_known_object(real):
            if argument.source is not None:
                self._machine.guard(GuardKind.IDENTITY, argument.source, real)
            return real
        try:
            return argument.constant()
        except NotConstant:
            raise NotACall(f"an argument is {argument.describe()}") from None

    def _place(self, operand: Value, fake: torch.Tensor | None) -> OperandPlace:
        for number, known in enumerate(self.operands):
            if known is operand or (fake is not None and self._fakes[number] is fake):
                return OperandPlace(number)
        self.operands.append(operand)
        self._fakes.append(fake)
        return OperandPlace(len(self.operands) - 1)

    def is_function(self, grid: Any) -> bool:
        return not issubclass(grid.python_type(), (tuple, list, int))

    def grid(self, grid: Any, chosen: Mapping[str, Any]) -> tuple[Any, ...]:
        sizes = self._call(grid, chosen) if self.is_function(grid) else grid
        if not isinstance(sizes, TupleValue | ListValue):
            raise NotACall("its grid is no tuple")
        items = self._machine.items(sizes)
        return tuple([self.template(item, is_constant=False) for item in items])

    def evaluate(self, function: Callable[..., Any], chosen: Mapping[str, Any]) -> Any:
        return self._call(self._value(function), chosen)

    def _call(self, function: Value, chosen: Mapping[str, Any]) -> Value:
        values = {name: self._value(value) for name, value in chosen.items()}
        return self._machine.call(function, [self._machine.new_dict(values)])

    def _value(self, object: Any) -> Value:
        return object if isinstance(object, Value) else self._machine.new(object)


def _is_known_object(real: Any) -> bool:
    """Whether an argument is a function, a kernel, or a type of Triton's: what it is does not
    change.
    """
    is_of_triton = type(real).__module__.partition(".")[0] == "triton"
    has_tensor = hasattr(real, "base") or hasattr(real, "value")
    return isinstance(real, FunctionType | type) or (is_of_triton and not has_tensor)
