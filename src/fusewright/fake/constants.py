"""The values of small fakes: of those made from numbers, and of all that is computed of those."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.containers import mapped
from fusewright.fake.arguments import written_tensors
from fusewright.fake.tensor import FakeTensor, constant_of, is_known
from fusewright.fake_rules.arguments import flat
from fusewright.symbolic.nodes import SYMBOLIC
from fusewright.torch_compat import OpOverload

CONSTANT_LIMIT = 1024
"""Elements up to which the value of a constant tensor is kept."""


class Constants:
    """The fakes of one mode whose values are known."""

    def __init__(self) -> None:
        self._fakes: list[weakref.ref[FakeTensor]] = []

    def keep(self, fake: FakeTensor, value: torch.Tensor) -> None:
        """Remember that `fake` holds `value`, until something unknown is written to its storage.
        Wherever the fake is, the value is on the CPU, so that values can be computed with others.
        """
        if value.numel() <= CONSTANT_LIMIT:
            fake.constant = value if value.device.type == "meta" else value.cpu()
            self._fakes.append(weakref.ref(fake))

    def follow(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Where every tensor argument is a known constant run `op` on the values too, which stay
        where they are, whatever the device asked for; forget values overwritten.
        """
        if not self._fakes:
            return
        given = list(flat((*args, *kwargs.values())))
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        known = tensors and all(map(is_known, tensors))
        known = known and not any(isinstance(value, SYMBOLIC) for value in given)
        if known and torch.Tag.nondeterministic_seeded not in op.tags:
            kwargs = {name: value for name, value in kwargs.items() if name != "device"}
            values = op(*mapped(constant_of, args), **mapped(constant_of, kwargs))
            for fake, value in zip(flat((result,)), flat((values,)), strict=True):
                if isinstance(fake, FakeTensor) and fake.constant is None:
                    self.keep(fake, value)
            return
        written = written_tensors(op, args, kwargs)
        keys = {
            torch_compat.storage_key(t.meta_tensor) for t in written if isinstance(t, FakeTensor)
        }
        for reference in self._fakes if keys else ():
            fake = reference()
            if fake is not None and torch_compat.storage_key(fake.meta_tensor) in keys:
                fake.constant = None
