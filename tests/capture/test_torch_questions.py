"""Questions about a tensor that read none of its data: the answer compiled for one tensor is not
given for another that answers differently.
"""

# ruff: noqa: E711

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from tests.capture.agreement import assert_same


class Subclass(torch.Tensor):
    pass


ONES = torch.ones(2)
LEAF = torch.ones(2, requires_grad=True)


def with_gradient() -> torch.Tensor:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    return x


def with_tag() -> torch.Tensor:
    x = torch.ones(2)
    x.tag = 5  # type: ignore[attr-defined]
    return x


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


Question = tuple[Callable[[Any], Any], Any, Any]

QUESTIONS: dict[str, Question] = {
    "isinstance": (lambda x: isinstance(x, torch.Tensor), ONES, 3),
    "isinstance of a dtype": (lambda x: isinstance(x, torch.FloatTensor), ONES, ONES.double()),
    "isinstance of a subclass": (
        lambda x: isinstance(x, Subclass), ONES, ONES.as_subclass(Subclass),
    ),
    "isinstance of containers": (lambda x: isinstance(x, (list, tuple)), ONES, [1]),
    "is_tensor": (lambda x: torch.is_tensor(x), ONES, 3),
    "type": (lambda x: type(x).__name__, ONES, torch.nn.Parameter(ONES)),
    "is None": (lambda x: x is None, ONES, None),
    "== None": (lambda x: x == None, ONES, None),
    "callable": (lambda x: callable(x), ONES, len),
    "hasattr": (lambda x: hasattr(x, "tag"), ONES, with_tag()),
    "own attribute": (lambda x: x.tag if hasattr(x, "tag") else 0, ONES, with_tag()),
    "vars": (lambda x: dict(vars(x)), ONES, with_tag()),
    "shape": (lambda x: x.shape, ONES, torch.ones(3)),
    "dim": (lambda x: x.dim(), ONES, torch.ones(2, 2)),
    "len": (lambda x: len(x), ONES, torch.ones(3)),
    "dtype": (lambda x: x.dtype, ONES, ONES.double()),
    "element size": (lambda x: x.element_size(), ONES, ONES.double()),
    "device": (lambda x: x.device, ONES, torch.ones(2, device="meta")),
    "layout": (lambda x: x.layout, ONES, ONES.to_sparse()),
    "is_sparse": (lambda x: x.is_sparse, ONES, ONES.to_sparse()),
    "stride": (lambda x: x.stride(), torch.ones(2, 2), torch.ones(2, 2).t()),
    "is_contiguous": (lambda x: x.is_contiguous(), torch.ones(2, 3), torch.ones(3, 2).t()),
    "storage offset": (lambda x: x.storage_offset(), torch.ones(2, 3)[0], torch.ones(2, 3)[1]),
    "storage": (lambda x: x.untyped_storage().nbytes(), ONES, torch.ones(6)[:2]),
    "is a view": (lambda x: x._is_view(), ONES, torch.ones(6)[:2]),
    "data pointer": (lambda x: x.data_ptr() == 0, ONES, torch.zeros(0)),
    "is_shared": (lambda x: x.is_shared(), torch.ones(2), torch.ones(2).share_memory_()),
    "is_conj": (lambda x: x.is_conj(), ONES + 0j, (ONES + 0j).conj()),
    "is_neg": (lambda x: x.is_neg(), ONES, (ONES + 1j).conj().imag),
    "is_inference": (lambda x: x.is_inference(), ONES, inference_tensor()),
    "requires_grad": (lambda x: x.requires_grad, ONES, LEAF),
    "is_leaf": (lambda x: x.is_leaf, LEAF, LEAF * 2),
    "grad": (lambda x: x.grad is None, LEAF, with_gradient()),
    "grad_fn": (lambda x: x.grad_fn is None, LEAF, LEAF * 2),
    "version": (lambda x: x._version, torch.ones(2), torch.ones(2).add_(1)),
    "identity": (lambda pair: pair[0] is pair[1], [ONES, ONES], [ONES, ONES.clone()]),
    "as a key": (lambda pair: len({*pair}), [ONES, ONES], [ONES, ONES.clone()]),
    "membership": (
        lambda pair: any(one is pair[0] for one in pair[1:]), [ONES, ONES], [ONES, ONES.clone()],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUESTIONS)
def test_each_tensor_is_asked(name: str) -> None:
    question, one, other = QUESTIONS[name]
    compiled = api.compile(question, backend="eager")
    for subject in (one, other, one, other):
        assert_same(compiled(subject), question(subject))
