"""Private names of autograd: its engine, the nodes of a history, and what they save."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def is_stale_history(error: Exception) -> bool:
    """Whether the engine raised an error because a tensor that it needs was written to."""
    return isinstance(error, RuntimeError) and str(error).startswith(_STALE_HISTORY)


_STALE_HISTORY = (
    "one of the variables needed for gradient computation has been modified by an inplace"
)


def latest_autograd_number() -> int:
    """The sequence number of the autograd node that this thread made last."""
    return torch._C._autograd._get_sequence_nr() - 1


def running_backward_number() -> int | None:
    """The sequence number of the autograd node that the engine runs in this thread; None outside
    backward.
    """
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def runs_backward_of(kinds: tuple[str, ...]) -> bool:
    """Whether the engine runs, in this thread, the backward of a built-in autograd node whose name
    begins with one of `kinds`.
    """
    node = torch._C._current_autograd_node()
    is_own = isinstance(node, torch.autograd.function.BackwardCFunction)
    return node is not None and not is_own and node.name().startswith(kinds)


def wanted_gradient_size(kind: str, position: int) -> tuple[int, ...] | None:
    """In a backward of an autograd node whose name begins with `kind`: the sizes that its gradient
    number `position` is to have; None elsewhere, and where none is wanted. 2.11 to 2.13.
    """
    if not runs_backward_of((kind,)):
        return None
    node = torch._C._current_autograd_node()
    consumer, number = node.next_functions[position]
    return None if consumer is None else tuple(consumer._input_metadata[number].shape)


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)` without the look at functorch's levels, which costs some 100 ns an
    argument. Not for use inside functorch transforms.
    """
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]


def function_in_c(
    name: str, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """`apply` of an autograd function whose `forward(node, *inputs)`, and whose nodes'
    `backward(node, *gradients)`, a method, are C functions: with nothing around them in Python, and
    without the look at functorch's levels (`apply_function`).

    autograd looks the class's attributes up by names that are new strings in each call, in one base
    class after the other: so all that a function inherits stand in this class itself.
    """
    function: Any = type(name, (torch.autograd.Function,), {})
    inherited = {
        key: value
        for base in reversed(function.__mro__)
        if base not in (object, torch._C._FunctionBase)
        for key, value in vars(base).items()
        if not key.startswith("__") and key != "apply"
    }
    own: Any = type(
        name, (torch._C._FunctionBase,), {**inherited, "forward": staticmethod(forward)}
    )
    members = {"__slots__": ("call",), "apply": backward, "_forward_cls": own}
    own._backward_cls = type(f"{name}Backward", (function._backward_cls,), members)
    return own.apply  # type: ignore[no-any-return]


def formula_of_gradient(node: Any) -> Callable[..., Any]:
    """The formula of an autograd function's node: its `backward`, or `vjp`. 2.11 to 2.13."""
    vjp = node._forward_cls.vjp
    return vjp if vjp is not torch.autograd.Function.vjp else node._forward_cls.backward  # type: ignore[no-any-return]


def geometry_of_edge(node: Any, index: int) -> tuple[list[Any], torch.dtype, torch.device]:
    """Size, dtype and device of the gradient that a node takes as number `index`. 2.11 to 2.13."""
    like = node._input_metadata[index]
    return list(like.shape), like.dtype, like.device


def gradients(outputs: Sequence[Any], tangents: Sequence[Any], edges: Sequence[Any]) -> Any:
    """`torch.autograd.grad(outputs, edges, tangents, allow_unused=True)`, without the comparison of
    sizes for which that imports sympy.
    """
    engine = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        tuple(outputs),
        tuple(tangents),
        False,  # keep_graph
        False,  # create_graph
        tuple(edges),
        allow_unreachable=True,
        accumulate_grad=False,
    )


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Context in which autograd saves tensors themselves, whatever hooks the user has set."""
    before = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(before)


INNERMOST_HOOKS = torch._C._autograd._top_saved_tensors_default_hooks
"""Gives, called with True, the innermost hooks that the user has set for what autograd saves: one
is given each tensor, the other gives it back; None without any. Seen in 2.11 to 2.13.
"""


def saved_tensors(ctx: Any, unread: Container[int]) -> list[torch.Tensor]:
    """`ctx.saved_tensors`, which checks that none of all was written to, without the check of those
    of the numbers `unread` that no hook has packed. Seen in 2.13.
    """
    return [
        saved.data if number in unread and isinstance(saved.data, torch.Tensor) else saved.unpack()
        for number, saved in enumerate(ctx._raw_saved_tensors)
    ]


UNPACKS_ONE_BY_ONE = hasattr(torch._C._autograd.SavedTensor, "unpack")
"""Whether there are `saved_tensors` and `saved_by_node`."""


def saved_by_node(node: Any) -> Iterator[torch.Tensor]:
    """The tensors that an autograd node has saved, unchecked: tensors that share memory and version
    with those that the operator was given, or gave. Seen in 2.13; nothing before.
    """
    if not UNPACKS_ONE_BY_ONE:
        return
    kind: Any = type(node)
    for name in _names_of_saved(kind):
        saved = getattr(node, name)
        for value in saved if isinstance(saved, tuple) else (saved,):
            if isinstance(value.data, torch.Tensor):
                yield value.data


@functools.cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    """The attributes of a kind of autograd node that hold what it has saved."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


@functools.cache
def _no_elements(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of a type without elements, whose memory others may show: a plain one, whatever mode
    the call that first needs it is in.
    """
    with torch._C._DisableTorchDispatch():
        return torch.empty(0, dtype=dtype, device=device)


class SavedVersion:
    """Tells whether a tensor is written to from now on. Keeps no memory alive but that of leaves,
    which somebody else holds more often than not.
    """

    __slots__ = ("_size", "_tensor", "_version", "_witness")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._version = tensor._version
        if tensor.is_leaf:
            self._witness = tensor
            return
        self._tensor, self._size = weakref.ref(tensor), tensor.shape
        self._witness = tensor.detach()  # keeps its version when it is given other memory
        self._witness.data = _no_elements(tensor.dtype, tensor.device)

    def check(self, version: int) -> None:
        """Raise what the engine does with a saved tensor that was written to; the message is to
        call the version that it had `version`.
        """
        writes = self._witness._version - self._version
        if writes:
            raise RuntimeError(
                f"{_STALE_HISTORY} operation: {self._words()} is at version {version + writes}; "
                f"expected version {version} instead. Hint: enable anomaly detection to find the "
                "operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True, check_nan=False)."
            )

    def _words(self) -> str:
        """The tensor as messages have it: as it is now, or if it is gone, as it was."""
        tensor = self._tensor() if hasattr(self, "_tensor") else self._witness
        if tensor is None:
            return f"[{self._witness.type()} {list(self._size)}]"
        node, words = tensor.grad_fn, f"[{tensor.type()} {list(tensor.shape)}]"
        return f"{words}, which is output {tensor.output_nr} of {node.name()}," if node else words


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written to, or one that shows its memory, as autograd counts."""
    return tensor._version


def share_version(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a write to one of two tensors is one to the other, as autograd counts."""
    before = tensor._version
    with torch.autograd._unsafe_preserve_version_counter(other):
        torch.autograd.graph.increment_version([other])
        return tensor._version != before
