"""Tensors: a node of the graph with a fake tensor that knows everything but the data.

Operators, methods and torch functions become calls in the graph. What depends on metadata alone
(shape, dtype, device, strides) is a constant, read from the fake tensor, and puts nothing in the
graph.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from typing import Any, Final

import torch

from fusewright.capture import reasons
from fusewright.capture.sources import Source
from fusewright.capture.values.base import MISSING, Interpreter, Rebuilder, Value

TENSOR_ATTRIBUTES_IN_GRAPH: Final = frozenset(
    {"T", "mT", "H", "mH", "real", "imag", "data", "grad"}
)
"""Attributes that are tensors themselves: reading one is an operation. (`grad` is refused.)"""


class TensorValue(Value):
    """A tensor of the traced program."""

    __slots__ = ("_create", "_fake", "_node", "cls", "object")

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
        super().__init__(source)
        self.cls = cls
        self.object = object
        """The existing tensor of a graph input; MISSING for one that the graph computes."""
        self._node = node
        self._fake = fake
        self._create = create

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
        return self.cls

    def real(self) -> Any:
        return self.object

    def key(self) -> Hashable:
        return self

    def describe(self) -> str:
        return f"a tensor ({self.source})" if self.source else "a tensor"

    def get_attribute(self, interpreter: Interpreter, name: str) -> Value:
        if name in TENSOR_ATTRIBUTES_IN_GRAPH:
            if name == "grad":
                raise interpreter.unsupported(reasons.GRAD_REQUIRED, operation="tensor.grad")
            return interpreter.call_graph(getattr, [self, interpreter.new(name)], {})
        raw, source = interpreter.class_attribute(torch.Tensor, name)
        if raw is MISSING:
            return self._user_attribute(interpreter, name)
        if isinstance(
            raw, types.FunctionType | types.MethodDescriptorType | types.WrapperDescriptorType
        ):
            return TensorMethodValue(self, name)
        if name == "__class__":
            return interpreter.new(self.cls)
        if name in ("__dict__", "grad_fn", "_base"):
            raise interpreter.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe()
            )
        if isinstance(raw, types.GetSetDescriptorType | property):
            return interpreter.tensor_metadata(self, name)
        return interpreter.bind(raw, source, self, self.cls)

    def _user_attribute(self, interpreter: Interpreter, name: str) -> Value:
        if self.object is not MISSING and name in getattr(self.object, "__dict__", {}):
            raise interpreter.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe()
            )
        interpreter.raise_error(AttributeError, f"'Tensor' object has no attribute {name!r}")

    def set_attribute(self, interpreter: Interpreter, name: str, value: Value) -> None:
        raise interpreter.unsupported(
            reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe()
        )

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

    def call(
        self, interpreter: Interpreter, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        return interpreter.call_tensor_method(self.tensor, self.name, arguments, keywords)

    def get_attribute(self, interpreter: Interpreter, name: str) -> Value:
        return interpreter.new(getattr(getattr(torch.Tensor, self.name), name))

    def rebuild(self, code: Rebuilder) -> None:
        code.call(getattr, [self.tensor, lambda: code.constant(self.name)])
