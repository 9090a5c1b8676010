"""What is said of results with symbolic sizes holds for whatever sizes the guards admit: operators
run on fakes once, and on tensors of many sizes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.ir.sizes import size_symbol
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of
from tests.lower.operator_samples import samples
from tests.symbolic_inputs import SymbolicInputs
from tests.test_fake_rules import CHECKED, KNOWN_TO_DIFFER

EVERYTHING = os.environ.get("FUSEWRIGHT_TEST_ALL") == "1"

SAMPLES_EACH = 10 if EVERYTHING else 4

OTHER_SIZES = range(2, 12)

READS_DATA = {
    "argwhere", "nonzero", "masked_select", "unique", "repeat_interleave", "histogramdd",
    "linalg.eig", "nn.functional.ctc_loss", "_segment_reduce", "index_put",
    "_unsafe_masked_index_put_accumulate", "cholesky", "cov", "hash_tensor", "linalg.cholesky",
    "linalg.inv", "linalg.ldl_factor", "linalg.ldl_solve", "linalg.lu_factor", "linalg.lu_solve",
    "linalg.solve", "linalg.tensorinv", "linalg.tensorsolve", "lu_solve", "lu_unpack",
    "multinomial",
}  # fmt: skip
"""Their sizes, or whether they run at all, depend on what stands in their inputs."""


class Trial:
    """One call on fakes of symbolic sizes."""

    def __init__(self, operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.operator = operator
        self.leaves, self.structure = tree_flatten((tuple(args), kwargs))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        inputs = SymbolicInputs.of(self.tensors)
        self.facts: ShapeFacts = inputs.facts
        self.fakes = inputs.fakes
        with torch.no_grad(), self.fakes[0].fake_mode:
            self.results = self.run(self.fakes)

    def run(self, tensors: Sequence[Any]) -> list[Tensor]:
        """The tensors among the results, with other tensors as arguments."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.structure)
        found = tree_leaves(self.operator(*args, **kwargs))
        return [one for one in found if isinstance(one, Tensor)]

    def sizes(self, choice: st.DataObject) -> dict[str, int] | None:
        """Other sizes that the guards admit; None where those drawn are not."""
        names = self.facts.hints
        resolved = {name: self.facts.resolve(size_symbol(name).index) for name in names}
        free = sorted({symbol.name for index in resolved.values() for symbol in index.free()})
        drawn = {name: choice.draw(st.sampled_from(OTHER_SIZES), label=name) for name in free}
        values = {name: index.evaluate(drawn) for name, index in resolved.items()}
        admitted = all(each.relation.holds(values) for each in self.facts.assumptions)
        return values if admitted and min(values.values(), default=2) >= 2 else None

    def check(self, values: dict[str, int]) -> None:
        """Eager's results have the sizes and strides that the fakes' have for these values."""
        made = [self.made(*each, values) for each in zip(self.fakes, self.tensors, strict=True)]
        with torch.no_grad():
            try:
                expected = self.run(made)
            except IndexError:
                return  # a number in the sample points past the end of a smaller dimension
        assert len(expected) == len(self.results)
        for fake, real in zip(self.results, expected, strict=True):
            assert self.numbers(fake.shape, values) == list(real.shape)
            assert fake.dtype == real.dtype
            if real.numel():
                found = self.numbers(fake.stride(), values)
                strides = zip(found, real.stride(), real.shape, strict=True)
                assert all(a == b or size == 1 for a, b, size in strides), (
                    f"strides {fake.stride()}, for {values} {real.stride()}"
                )

    def numbers(self, extents: Sequence[Any], values: dict[str, int]) -> list[int]:
        return [self.facts.resolve(index_of(one)).evaluate(values) for one in extents]

    def made(self, fake: Any, like: Tensor, values: dict[str, int]) -> Tensor:
        """A tensor of another size: of one number of the sample's, or of zeros, which are indices
        nearly everywhere.
        """
        sizes, strides = (self.numbers(each, values) for each in (fake.shape, fake.stride()))
        result = torch.empty_strided(sizes, strides, dtype=like.dtype)
        if like.is_floating_point() and like.numel():
            return result.fill_(like.detach().flatten()[0])
        return result.zero_()


@pytest.mark.parametrize(
    "name", [name for name in CHECKED if name not in KNOWN_TO_DIFFER and name not in READS_DATA]
)
@settings(max_examples=25 if EVERYTHING else 5, deadline=None)
@given(choice=st.data())
def test_geometry_for_other_sizes(name: str, choice: st.DataObject) -> None:
    for trial in trials(name):
        values = trial.sizes(choice)
        if values is not None:
            trial.check(values)


_TRIALS: dict[str, list[Trial]] = {}


def trials(name: str) -> list[Trial]:
    """The operator's samples on fakes, made once."""
    if name not in _TRIALS:
        _TRIALS[name] = []
        for operator in (op for op in op_db if op.name == name and torch.float32 in op.dtypes):
            for args, kwargs in samples(operator, torch.float32, SAMPLES_EACH):
                if not any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
                    continue
                try:
                    _TRIALS[name].append(Trial(operator.op, args, kwargs))
                except (DataDependent, UnsupportedOperator, NotImplementedError):
                    continue
    return _TRIALS[name]
