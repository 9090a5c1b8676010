"""Everything that can be seen of a run, flattened to a dictionary from paths to facts that compare.

    result[0]           Tensor(dtype, shape, strides, values, which memory)
    argument 1.items    Plain("list", 3)

Objects and memory are numbered in the order in which they are met, so that two runs have equal
numbers exactly where they share alike.
"""

from __future__ import annotations

import collections
import re
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy
import torch
from torch import nn

from fusewright.fake_rules.geometry import extent
from fusewright.records import record

DEEPEST: Final = 12

_ADDRESS: Final = re.compile(r"0x[0-9a-f]{4,}")
_SAVED_RESULT: Final = re.compile(
    r"(modified by an inplace operation: \[\S+) \[[\d, ]*\]\](, which is output \d+ of \S+,)?"
)
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)


@record(eq=False)
class Tensor:
    """A tensor as it was at the end of a call."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    values: torch.Tensor
    """A copy on the CPU, without gradient."""

    identity: int
    """A number of the object, and of its memory, each in order of appearance."""
    memory: int | None
    offset: int
    """Elements between this one's first and that of the first tensor met in this memory."""


@record
class PlainObservation:
    """Anything but a tensor: what kind, and its value, or its length."""

    kind: str
    value: Any
    identity: int | None = None
    """A number in order of appearance, for objects that can be told apart."""


Fact = Tensor | PlainObservation
Facts = dict[str, Fact]


def error_text(error: BaseException) -> str:
    """The message of an exception, without addresses, nor which operator has written last to a
    tensor that backward needs: that may be the compiled graph, or gone. Nor its sizes, which are
    those of the view that was saved, and may have been changed in place.
    """
    return _SAVED_RESULT.sub(r"\1]", _ADDRESS.sub("0x…", str(error)))


class Observer:
    """Collects facts about the values of one run; it keeps them alive, since it tells them apart by
    their address.
    """

    def __init__(self) -> None:
        self.facts: Facts = {}
        self._objects: dict[int, int] = {}
        self._memories: dict[int, tuple[int, int]] = {}
        self._gradients: list[tuple[int, int]] = []
        """Where in memory gradients begin and end."""
        self._kept: list[Any] = []

    def add(self, path: str, value: Any, depth: int = 0) -> None:
        """Note a value, and what it consists of."""
        if isinstance(value, torch.Tensor):
            self._add_tensor(path, value)
            attributes = vars(value)
            if attributes:
                self._add_parts(path, attributes.items(), ".{}", depth)
        elif isinstance(value, numpy.ndarray):
            self.facts[path] = PlainObservation(
                "ndarray", (value.shape, value.dtype.str, value.tolist())
            )
        elif isinstance(value, _PLAIN) and type(value) in _PLAIN:
            self.facts[path] = PlainObservation(type(value).__name__, value)
        elif depth > DEEPEST:
            self.facts[path] = PlainObservation(type(value).__name__, "deep")
        else:
            self._add_object(path, value, depth)

    def add_gradient(self, path: str, gradient: torch.Tensor | None) -> None:
        """Note a gradient. Two of them share memory where they overlap: whether autograd made them
        as parts of one tensor is nothing that a program can rely on.
        """
        if gradient is None or gradient.layout != torch.strided or not gradient.numel():
            self.add(path, gradient)
            return
        begin = gradient.data_ptr()
        end = begin + gradient.itemsize * extent(gradient.shape, gradient.stride())
        overlapping = (first for first, last in self._gradients if begin < last and first < end)
        address = gradient.untyped_storage().data_ptr()
        if address not in self._memories:
            address = -next(overlapping, begin)  # not to be taken for a whole storage
        self._gradients.append((begin, end))
        self._add_tensor(path, gradient, address)

    def add_memory(self, path: str, tensor: torch.Tensor) -> None:
        """Note all the memory that a tensor lies in, with the parts that it does not show."""
        if tensor.layout == torch.strided and not tensor.is_conj() and not tensor.is_neg():
            whole = tensor.detach().new_empty(0)
            with torch.no_grad():
                whole.set_(tensor.untyped_storage())
            self.facts[path] = Tensor(
                tensor.dtype,
                tensor.device,
                tuple(whole.shape),
                (1,),
                False,
                True,
                _copied(whole),
                -1,
                None,
                0,
            )

    def _number(self, value: Any) -> tuple[int, bool]:
        """A number for an object, and whether it is met for the first time."""
        key = id(value)
        is_new = key not in self._objects
        if is_new:
            self._objects[key] = len(self._objects)
            self._kept.append(value)
        return self._objects[key], is_new

    def _add_tensor(self, path: str, tensor: torch.Tensor, address: int | None = None) -> None:
        """Note a tensor, and the memory at an address: where its storage begins, unless given."""
        identity, _ = self._number(tensor)
        memory, offset = None, 0
        strided = tensor.layout == torch.strided
        if strided and tensor.numel():
            address = tensor.untyped_storage().data_ptr() if address is None else address
            self._kept.append(tensor)
            first = self._memories.setdefault(address, (len(self._memories), tensor.data_ptr()))
            memory, offset = first[0], tensor.data_ptr() - first[1]
        values = tensor.detach().resolve_conj().resolve_neg()
        self.facts[path] = Tensor(
            tensor.dtype,
            tensor.device,
            tuple(tensor.shape),
            tuple(tensor.stride()) if strided else (),
            tensor.requires_grad,
            tensor.is_leaf,
            _copied(values if strided else values.to_dense()),
            identity,
            memory,
            offset,
        )

    def _add_object(self, path: str, value: Any, depth: int) -> None:
        kind = type(value).__qualname__
        identity, is_new = self._number(value)
        if not is_new:
            self.facts[path] = PlainObservation(kind, "as before", identity)
            return
        match value:
            case dict():
                self.facts[path] = PlainObservation(
                    kind, [repr_key(key) for key in value], identity
                )
                self._add_parts(path, ((repr_key(k), v) for k, v in value.items()), "[{}]", depth)
            case list() | tuple() | collections.deque():
                kept = identity if isinstance(value, list | collections.deque) else None
                self.facts[path] = PlainObservation(kind, len(value), kept)
                self._add_parts(path, enumerate(value), "[{}]", depth)
            case set() | frozenset():
                self.facts[path] = PlainObservation(kind, sorted(map(repr_key, value)), identity)
            case BaseException():
                self.facts[path] = PlainObservation(kind, error_text(value), identity)
            case weakref.ReferenceType():
                self.facts[path] = PlainObservation(
                    kind, "alive" if value() is not None else "dead"
                )
            case nn.Module():
                self.facts[path] = PlainObservation(kind, value.training, identity)
                self._add_parts(path, _module_state(value), ".{}", depth)
            case torch.optim.Optimizer():
                self.facts[path] = PlainObservation(kind, len(value.param_groups), identity)
                self._add_parts(path, value.state_dict().items(), ".{}", depth)
            case _:
                self._add_other(path, value, identity, depth)

    def _add_other(self, path: str, value: Any, identity: int, depth: int) -> None:
        kind = type(value).__qualname__
        if isinstance(value, type | types.ModuleType | types.FunctionType | torch.dtype):
            self.facts[path] = PlainObservation(
                kind, getattr(value, "__name__", str(value)), identity
            )
            return
        parts = dict(getattr(value, "__dict__", {}))
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, slot) and not slot.startswith("__"):
                    parts[slot] = getattr(value, slot)
        self.facts[path] = PlainObservation(kind, sorted(parts), identity)
        self._add_parts(path, parts.items(), ".{}", depth)

    def _add_parts(
        self, path: str, parts: Iterable[tuple[Any, Any]], form: str, depth: int
    ) -> None:
        for name, part in parts:
            self.add(path + form.format(name), part, depth + 1)


def _copied(values: torch.Tensor) -> torch.Tensor:
    return values.to("cpu", copy=True)


def _module_state(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Parameters with their gradients, buffers, modules inside, and plain attributes."""
    for name, parameter in module._parameters.items():
        yield name, parameter
        if parameter is not None:
            yield f"{name}.grad", parameter.grad
    yield from module._buffers.items()
    yield from module._modules.items()
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training":
            yield name, value


def repr_key(key: Any) -> str:
    """A key of a dictionary, or an element of a set, in words."""
    if isinstance(key, (*_PLAIN, tuple)):
        return repr(key)
    if isinstance(key, torch.Tensor):
        return f"tensor of {tuple(key.shape)}"
    return getattr(key, "__qualname__", type(key).__qualname__)
