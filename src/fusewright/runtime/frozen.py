"""Calls of a graph whose weights are frozen: what it computes of them is kept from call to call.

A weight has changed where the module holds another tensor, the tensor other memory, or its memory
was written to by operators, which count their writes. The memory is kept meanwhile, so that none of
its addresses is given to another tensor. A write that torch does not count, through `.data` or by
NumPy, is not noticed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.errors import FrozenWeightChanged
from fusewright.logs import warn
from fusewright.records import record

Call = Callable[[list[Any]], Any]


@record(kw_only=True)
class _Kept:
    """The results of computing with the weights as they were at one time."""

    weights: tuple[tuple[int, weakref.ref[torch.Tensor], int, int], ...]
    """By position among the inputs: the tensor, its version, and its address."""

    memory: tuple[torch.UntypedStorage, ...]
    values: tuple[torch.Tensor, ...]

    def changed(self, inputs: Sequence[torch.Tensor]) -> int | None:
        """The position of the first weight that has changed; None: all are as they were."""
        for position, reference, version, address in self.weights:
            tensor = inputs[position]
            if (
                reference() is not tensor
                or tensor._version != version
                or tensor.data_ptr() != address
            ):
                return position
        return None


class FrozenCall:
    """Runs a graph with the values that `prepare` gives for its frozen inputs."""

    def __init__(
        self,
        run: Call,
        prepare: Callable[[list[torch.Tensor]], tuple[torch.Tensor, ...]],
        positions: Sequence[int],
        names: Sequence[str],
        *,
        refuses: bool,
    ) -> None:
        """`run` takes the inputs and the values; `prepare` the inputs at `positions`, whose `names`
        reports use. `refuses`: a change is an error.
        """
        self._run = run
        self._prepare = prepare
        self._positions = tuple(positions)
        self._names = tuple(names)
        self._refuses = refuses
        self._kept: _Kept | None = None
        self._is_told = False

    def __call__(self, inputs: list[Any]) -> Any:
        """Run the graph. FrozenWeightChanged: a weight has, and that is an error."""
        kept = self._kept  # Another thread may put another there.
        changed = None if kept is None else kept.changed(inputs)
        if changed is not None:
            self._tell(self._names[self._positions.index(changed)])
        if kept is None or changed is not None:
            kept = self._freeze(inputs)
            # Torch does not count writes to tensors that were made in inference mode.
            is_counted = not any(inputs[position].is_inference() for position in self._positions)
            self._kept = kept if is_counted else None
        inputs.extend(kept.values)
        return self._run(inputs)

    def _tell(self, name: str) -> None:
        if self._refuses:
            raise FrozenWeightChanged(name)
        if not self._is_told:
            self._is_told = True
            warn(str(FrozenWeightChanged(name)))

    def _freeze(self, inputs: Sequence[Any]) -> _Kept:
        weights = [inputs[position] for position in self._positions]
        # Before values are computed: a write in the midst of that is noticed by the next call.
        facts = [
            (position, weakref.ref(weight), _version(weight), weight.data_ptr())
            for position, weight in zip(self._positions, weights, strict=True)
        ]
        with torch.inference_mode(False), torch.no_grad():
            values = self._prepare(list(weights))
        for device in {value.device for value in values if value.is_cuda}:
            torch.cuda.synchronize(device)  # Later calls may be on other streams.
        return _Kept(
            weights=tuple(facts),
            memory=tuple(weight.untyped_storage() for weight in weights),
            values=values,
        )


def _version(tensor: torch.Tensor) -> int:
    """The number of writes to a tensor; of one that was made in inference mode, none is known."""
    return -1 if tensor.is_inference() else tensor._version
