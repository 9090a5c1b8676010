"""Tensors: a node of the graph with a fake tensor that knows everything but the data.

Operators, methods and torch functions become calls in the graph. What depends on metadata alone
(shape, dtype, device, strides) is a constant, read from the fake tensor, and puts nothing in the
graph.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.sources import AttributeSource, Source
from fusewright.capture.values.base import (
    MISSING,
    Machine,
    Rebuilder,
    Value,
    raise_no_attribute,
)
from fusewright.capture.values.mappings import InstanceDictValue
from fusewright.capture.values.objects import ObjectValue
from fusewright.errors import Unsupported

IN_GRAPH: Final = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
"""Attributes that are tensors themselves: reading one is an operation."""

OF_THE_OBJECT: Final = frozenset(
    {"is_leaf", "grad_fn", "_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad"}
)
"""Attributes of an existing tensor that no tensor guard covers, and that a fake does not have."""

UNREADABLE: Final = frozenset({"_base", "_version", "_cdata", "__cuda_array_interface__"})
"""Attributes that speak of the object in memory."""


class TensorValue(ObjectValue):
    """A tensor of the traced program."""

    __slots__ = ("_create", "_fake", "_node", "is_observed")

    def __init__(
        self,
        cls: type,
        node: Any = None,
        fake: Any = None,
        *,
        object: Any = MISSING,
        source: Source | None = None,
        create: Callable[[TensorValue], tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(cls, object, source)
        self._node: torch.fx.Node = node
        self._fake = fake
        self._create = create
        self.is_observed = False
        """Whether something depends on which tensor this is, or on its class."""

    def forget(self) -> None:
        super().forget()
        self._create = None

    def _ensure(self) -> None:
        if self._create is not None:
            create, self._create = self._create, None
            self._node, self._fake = create(self)

    @property
    def node(self) -> torch.fx.Node:
        """The graph's node. An input enters the graph when its node is first asked for."""
        self._ensure()
        return self._node

    @property
    def fake(self) -> torch.Tensor:
        """The fake tensor."""
        self._ensure()
        return self._fake  # type: ignore[no-any-return]

    @property
    def is_used_input(self) -> bool:
        """Whether this is a graph input that was used."""
        return self.object is not MISSING and self._create is None

    def python_type(self) -> type:
        self.is_observed = True
        return super().python_type()

    def real(self) -> Any:
        self.is_observed = True
        return super().real()

    def key(self) -> Hashable:
        self.is_observed = True
        return self if self.object is MISSING else self.object

    def describe(self) -> str:
        return f"a tensor ({self.source})" if self.source else "a tensor"

    def get_attribute(self, machine: Machine, name: str) -> Value:
        if name in IN_GRAPH:
            return machine.call_graph(getattr, [self, machine.new(name)], {})
        if name == "grad":
            return self._gradient(machine)
        if name in OF_THE_OBJECT and self.object is not MISSING and self.source is not None:
            return machine.wrap(getattr(self.object, name), AttributeSource(self.source, name))
        raw, source = machine.class_attribute(self.cls, name)
        if raw is MISSING:
            return self._own_attribute(machine, name)
        if isinstance(
            raw, types.FunctionType | types.MethodDescriptorType | types.WrapperDescriptorType
        ):
            return TensorMethodValue(self, name)
        match name:
            case "__class__":
                return machine.new(self.cls)
            case "__dict__":
                return InstanceDictValue.of(machine, self)
            case "grad_fn" if self.fake.grad_fn is None:
                return machine.new(None)
        if name in UNREADABLE or name == "grad_fn":
            raise self._unsupported(machine, name)
        if isinstance(raw, types.GetSetDescriptorType | property):
            return machine.tensor_metadata(self, name)
        return machine.bind(raw, source, self, self.cls)

    def _gradient(self, machine: Machine) -> Value:
        """`tensor.grad`: what an existing tensor has; None for one that the program computed."""
        written = self.known.get("grad")
        if written is not None:
            return written  # type: ignore[no-any-return]
        if self.object is MISSING or self.source is None:
            return machine.new(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tensors that are no leaves; the guard reads too
            gradient = self.object.grad
        return machine.wrap(gradient, AttributeSource(self.source, "grad"))

    def _own_attribute(self, machine: Machine, name: str) -> Value:
        """An attribute that the program or its user set on this very tensor."""
        attribute = self.field(machine, name)
        if attribute is None:
            raise_no_attribute(machine, self.cls, name)
        return attribute

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        match name:
            case "requires_grad":
                machine.call_tensor_method(self, "requires_grad_", [value], {})
                return
            case "grad":
                self._check_gradient(machine, value)
            case "data" if value is self:  # as in `module.to(dtype)` of what has that type
                return
            case _ if hasattr(self.cls, name):
                raise self._unsupported(machine, name)
        self.store(machine, name, value)

    def _check_gradient(self, machine: Machine, value: Value) -> None:
        """Let torch object to a gradient that does not fit, as it would to the real one."""
        gradient = value.fake if isinstance(value, TensorValue) else value.constant()
        try:
            self.fake.grad = gradient
        except (RuntimeError, TypeError) as error:
            machine.raise_error(type(error), *error.args)

    def _unsupported(self, machine: Machine, name: str) -> Unsupported:
        return machine.unsupported(reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe())

    def rebuild(self, code: Rebuilder) -> None:
        code.tensor(self)


class TensorMethodValue(Value):
    """A method of a tensor, bound to it."""

    __slots__ = ("name", "tensor")

    def __init__(self, tensor: TensorValue, name: str) -> None:
        super().__init__(None)
        self.tensor = tensor
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def describe(self) -> str:
        return f"the tensor method {self.name}"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.call_tensor_method(self.tensor, self.name, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        return machine.new(getattr(getattr(torch.Tensor, self.name), name))

    def parts(self) -> Sequence[Value]:
        return (self.tensor,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(getattr, self.tensor, self.name)


class GraphObjectValue(Value):
    """A result of a call in the graph that is no tensor, and lives in the graph alone: the function
    that `torch.func.vjp` makes.
    """

    __slots__ = ("fake", "node")

    def __init__(self, node: torch.fx.Node, fake: Any) -> None:
        super().__init__(None)
        self.node = node
        self.fake = fake
        """The object that the call gave on fakes."""

    def python_type(self) -> type:
        return type(self.fake)

    def describe(self) -> str:
        return f"a {type(self.fake).__name__} made in the graph"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.call_graph(call_object, [self, *arguments], keywords)


def call_object(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function that the graph has computed."""
    return function(*arguments, **keywords)


class ForeignTensorValue(Value):
    """A tensor of a kind that no graph holds: a subclass, sparse, quantised, nested. It may be
    passed on and stored.
    """

    __slots__ = ("object",)

    def __init__(self, object: Any, source: Source | None) -> None:
        super().__init__(source)
        self.object = object

    def python_type(self) -> type:
        return type(self.object)

    def real(self) -> Any:
        return self.object

    def describe(self) -> str:
        with torch_compat.without_torch_functions():  # the program may count what it is asked
            kind = ["quantised"] * self.object.is_quantized + ["nested"] * self.object.is_nested
            if self.object.layout is not torch.strided:
                kind.append(str(self.object.layout).removeprefix("torch.").replace("_", " "))
        return f"a {' '.join(kind)} {type(self.object).__name__} ({self.source})".replace("  ", " ")

    def get_attribute(self, machine: Machine, name: str) -> Value:
        raise machine.unsupported(reasons.TENSOR_KIND, operation=f".{name}", tensor=self.describe())

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        self.get_attribute(machine, name)


class UnknownValue(Value):
    """A number that is drawn when the call has run, a text with a tensor's value in it, or that of
    an error that an operator raised on fakes, which eager may word otherwise: looking at it breaks
    the graph.
    """

    __slots__ = ("cls", "on_fakes", "refusal")

    def __init__(
        self, cls: type, refusal: Callable[[], Unsupported], on_fakes: str | None = None
    ) -> None:
        super().__init__(None)
        self.cls = cls
        self.refusal = refusal
        """Makes the error for the graph break."""
        self.on_fakes = on_fakes
        """The value on fakes, for reports."""

    def describe(self) -> str:
        return super().describe() if self.on_fakes is None else repr(self.on_fakes)

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> Any:
        raise self.refusal()

    def key(self) -> Hashable:
        """Break the graph: the entry of a dict that it names is unknown."""
        raise self.refusal()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        raise self.refusal()
