"""Finds programs that write twice to one place: on a GPU it is open which write stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from fusewright.fuzz.watched_calls import WatchedCalls


class RepeatedWrites(WatchedCalls):
    """A mode in which functions run as they are; `met` says whether one of them wrote different
    values to one place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        test = _TESTS.get(name)
        if test is not None and test(*args, **kwargs):
            self.met = True


def _scatter(x: Any, dim: Any, index: Any, src: Any = None, **_: Any) -> bool:
    """Whether `x.scatter(dim, index, src)` has an index twice along `dim`; a number may be written
    any number of times.
    """
    if not isinstance(src, torch.Tensor) or not index.dim():
        return False
    places = index.sort(dim).values
    return bool((places.diff(dim=dim) == 0).any())


def _index_copy(x: torch.Tensor, dim: Any, index: torch.Tensor, source: Any) -> bool:
    return _repeat((index,))


def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> bool:
    return not accumulate and _several(values) and _repeat(indices)


def _setitem(x: Any, item: Any, value: Any) -> bool:
    return _several(value) and _repeat(item if isinstance(item, tuple) else (item,))


def _several(values: Any) -> bool:
    return isinstance(values, torch.Tensor) and values.numel() > 1


def _repeat(indices: Any) -> bool:
    """Whether integer tensors, broadcast together, hold one position twice. Negative ones count as
    a repetition of any: the sizes that they are counted from are not looked at.
    """
    positions = [
        index.cpu()
        for index in indices
        if isinstance(index, torch.Tensor) and index.dtype != torch.bool
    ]
    if not positions:
        return False
    together = torch.stack([index.flatten() for index in torch.broadcast_tensors(*positions)])
    count = together.shape[1]
    return count > 1 and bool(
        (together < 0).any() or torch.unique(together, dim=1).shape[1] < count
    )


_TESTS: Final[dict[str, Callable[..., bool]]] = {
    "scatter": _scatter,
    "scatter_": _scatter,
    "index_copy": _index_copy,
    "index_copy_": _index_copy,
    "index_put": _index_put,
    "index_put_": _index_put,
    "__setitem__": _setitem,
}
