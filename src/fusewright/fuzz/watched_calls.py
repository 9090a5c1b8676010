"""Functions of torch that a program calls, seen while they run as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class WatchedCalls(TorchFunctionMode, ABC):
    """A mode in which `note` is told of each call that has returned; one that raises has said first
    what it has to say of its arguments.
    """

    @abstractmethod
    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """`name`: of the function; empty where it has none."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self.note(getattr(function, "__name__", ""), args, kwargs, result)
        return result
