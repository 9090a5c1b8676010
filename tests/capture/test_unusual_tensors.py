"""Sparse, quantised and nested tensors: what a graph cannot hold breaks it, and the program runs
as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import Unsupported

torch.manual_seed(0)
X = torch.randn(4, 4)
COO, CSR = torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr()
QUANTISED = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
NESTED = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)

PROGRAMS: dict[str, tuple[Callable[[], Any], str]] = {
    "sum of sparse": (lambda: (COO + COO).to_dense() * 2, "tensor-kind"),
    "sparse function": (lambda: torch.sparse.mm(COO, X) + 1, "unknown-callable"),
    "sparse operand": (lambda: (COO @ X).relu(), "tensor-to-unknown"),
    "compressed operand": (lambda: (CSR @ X).relu(), "tensor-to-unknown"),
    "sparse made": (
        lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], X[0, :2] * 2, (4, 4)).to_dense() + 1,
        "fake-execution",
    ),
    "sparse from dense": (lambda: X.relu().to_sparse().to_dense() + 1, "fake-execution"),
    "values": (lambda: COO.coalesce().values() * 2, "tensor-kind"),
    "passed on": (lambda: [COO, X * 2], ""),
    "sparse gradient": (
        lambda: torch.nn.functional.embedding(torch.tensor([1, 2]), X, sparse=True) * 2,
        "",
    ),
    "quantised": (lambda: QUANTISED.dequantize() * 2, "tensor-kind"),
    "integers inside": (lambda: QUANTISED.int_repr().float().mean() + X, "tensor-kind"),
    "quantised operator": (
        lambda: torch.ops.quantized.add(QUANTISED, QUANTISED, 0.2, 0).dequantize() * 2,
        "unknown-callable",
    ),
    "quantised made": (
        lambda: torch.quantize_per_tensor(X * 2, 0.1, 0, torch.quint8).dequantize() + 1,
        "fake-execution",
    ),
    "quantised in float": (
        lambda: torch.fake_quantize_per_tensor_affine(X, 0.1, 0, -128, 127) * 2,
        "",
    ),
    "nested": (lambda: torch.nested.to_padded_tensor(NESTED * 2, 0.0) + 1, "tensor-kind"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, backend: str) -> None:
    program, reason = PROGRAMS[name]
    compiled = fusewright.compile(program, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(dense(compiled()), dense(program()))
    whole = fusewright.compile(program, backend=backend, fullgraph=True)
    if not reason:
        torch.testing.assert_close(dense(whole()), dense(program()))
        return
    with pytest.raises(Unsupported) as caught:
        whole()
    assert caught.value.reason == reason


def dense(value: Any) -> Any:
    if isinstance(value, list):
        return [dense(item) for item in value]
    return value.to_dense() if value.layout in (torch.sparse_coo, torch.sparse_csr) else value
