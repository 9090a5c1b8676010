"""Some of the tensors that no graph, or no kernel, holds, where programs meet them; all of them:
`python -m tests.end_to_end.unusual_tensors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import mkldnn

import fusewright
from fusewright.errors import Unsupported, UnsupportedOperator
from fusewright.fake import FakeMode
from tests.end_to_end.tensor_subclasses import Labelled
from tests.end_to_end.unusual_tensors import KINDS, PLACES, PROGRAMS, check, x

pytestmark = pytest.mark.filterwarnings("ignore")

SOME = ("scale", "dense", "float", "row", "questions", "branch", "linear")
"""What the programs of the sample do: one of them with each kind of tensor in each place."""

SAMPLE = [
    (kind, place, SOME[(row + 2 * column) % len(SOME)])
    for row, kind in enumerate(KINDS)
    for column, place in enumerate(PLACES)
]


@pytest.mark.parametrize(("kind", "place", "program"), SAMPLE, ids=lambda name: name)
def test_a_sample(kind: str, place: str, program: str) -> None:
    assert list(check(kind, place, program)) == []


FOUND = [
    ("quantised", "inside", "scale"),  # torch's meta kernel gave an ordinary tensor, never written
    ("quantised", "trained inside", "relu"),
    ("nested", "inside", "add"),  # tracing ended with an error of torch's own
    ("labelled", "inside", "sum"),
    ("conjugate", "trained inside", "sum"),  # a view of what is computed had strides of the source
    ("jagged", "input", "questions"),
]
"""What went wrong once."""


@pytest.mark.parametrize(("kind", "place", "program"), FOUND)
def test_what_went_wrong(kind: str, place: str, program: str) -> None:
    assert program in PROGRAMS
    assert list(check(kind, place, program)) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda x: torch.quantize_per_tensor(x, torch.tensor(0.1), torch.tensor(0), torch.qint8),
        lambda x: torch.empty(4, dtype=torch.quint8),
        lambda x: x.to_sparse(),
    ],
)
def test_fakes_are_plain_tensors(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    mode = FakeMode()
    with mode, pytest.raises((UnsupportedOperator, NotImplementedError)):
        make(mode.fake(x()))


# -- modules --------------------------------------------------------------------------------------


def dynamically_quantised() -> nn.Module:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    return torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)


class Quantised(nn.Module):
    """A layer with packed weights between the two ends of quantised inference."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.ao.nn.quantized.Linear(4, 3)
        self.relu = torch.ao.nn.quantized.ReLU6()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quantised = torch.quantize_per_tensor(x * 2, 0.1, 3, torch.quint8)
        return self.relu(self.linear(quantised)).dequantize() + 1


class SparseWeight(nn.Module):
    """A parameter in compressed rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(x().relu().to_sparse_csr())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.weight @ (x + 1)) * 2


class LabelledWeight(nn.Module):
    """A parameter of a class of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(x().as_subclass(Labelled))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.exp(), self.weight).tanh()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "dynamically quantised": dynamically_quantised,
    "quantised": Quantised,
    "for mkldnn": lambda: mkldnn.to_mkldnn(nn.Linear(4, 4)),
    "sparse weight": SparseWeight,
    "labelled weight": LabelledWeight,
    "half": lambda: nn.Linear(4, 4).half(),
    "bfloat16": lambda: nn.Linear(4, 4).bfloat16(),
    "complex": lambda: nn.Linear(4, 4, dtype=torch.complex64),
    "on meta": lambda: nn.Linear(4, 4, device="meta"),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    given = x().to_mkldnn() if name == "for mkldnn" else x()
    for weight in module.parameters():
        given = given.to(weight.device, weight.dtype)
    compiled = fusewright.compile(module)
    with torch.no_grad():
        for _ in range(2):
            same(compiled(given), module(given))


@pytest.mark.parametrize("name", ["sparse weight", "labelled weight", "bfloat16", "complex"])
def test_gradients_of_modules(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    given = x().to(next(module.parameters()).dtype)

    def gradients(call: Any) -> list[torch.Tensor]:
        result = call(given)
        (result.abs() if result.is_complex() else result).sum().backward()
        found = [weight.grad for weight in module.parameters()]
        module.zero_grad()
        return found

    expected = gradients(module)
    compiled = fusewright.compile(module)
    for _ in range(2):
        for one, other in zip(gradients(compiled), expected, strict=True):
            same(one, other)


def test_a_sparse_gradient() -> None:
    """Of rows that were looked up: kept sparse, as optimisers for it ask."""
    table = nn.EmbeddingBag(10, 4, sparse=True, mode="sum")
    rows, offsets = torch.tensor([1, 2, 2, 7]), torch.tensor([0, 2])

    def step(call: Any) -> torch.Tensor:
        call(rows, offsets).pow(2).sum().backward()
        assert table.weight.grad is not None
        found, table.weight.grad = table.weight.grad, None
        return found

    expected = step(table)
    found = step(fusewright.compile(table))
    assert found.layout is expected.layout is torch.sparse_coo
    same(found, expected)


def test_the_reason_names_the_kind() -> None:
    sparse = torch.eye(3).to_sparse()
    compiled = fusewright.compile(lambda x: sparse * x, fullgraph=True)
    with pytest.raises(Unsupported, match="sparse coo") as caught:
        compiled(torch.ones(3, 3))
    assert caught.value.location is not None and caught.value.remedy


def test_capture_asks_a_subclass_nothing() -> None:
    """What it is asked by name of the program alone: it may keep a record."""
    asked: list[Any] = []

    class Recording(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    def program(recording: torch.Tensor, other: torch.Tensor) -> Any:
        return (recording * 2 + other).sum(), other.relu()

    arguments = x().as_subclass(Recording), x()
    program(*arguments)
    expected = list(asked)
    asked.clear()
    fusewright.compile(program)(*arguments)
    assert asked == expected


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert type(found) is type(expected)
    assert (found.layout, found.dtype) == (expected.layout, expected.dtype)
    if expected.device.type == "meta":
        assert found.device == expected.device and found.shape == expected.shape
        return
    if expected.layout is not torch.strided:
        found, expected = found.to_dense(), expected.to_dense()
    plain = found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor)
    torch.testing.assert_close(*plain, rtol=1e-2 if found.element_size() < 4 else 1e-5, atol=1e-5)
