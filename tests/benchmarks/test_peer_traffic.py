"""Launches and bytes of torch.compile's kernels, where one can count them by hand. Its C++ is not
compiled: what is counted is the code around it.
"""

from __future__ import annotations

import unittest.mock

import pytest
import torch

from benchmarks.compilers import peer_is_available
from benchmarks.peer_traffic import PeerTraffic

ROWS, WIDTH, TABLE = 4, 16, 1000


def program(
    table: torch.Tensor, positions: torch.Tensor, bias: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    hidden = torch.nn.functional.gelu(table[positions] + bias)
    return torch.sin(hidden @ weight)


@pytest.mark.skipif(not peer_is_available(), reason="torch.compile needs a C++ compiler")
def test_two_kernels_around_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import async_compile, cpu_vec_isa

    kernel = unittest.mock.Mock(return_value=None)
    monkeypatch.setattr(async_compile.AsyncCompile, "cpp_pybinding", lambda *_: kernel)
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda *_: True)
    inputs = (
        torch.randn(TABLE, WIDTH),
        torch.randint(0, TABLE, (ROWS,)),
        torch.randn(WIDTH),
        torch.randn(WIDTH, WIDTH),
    )
    compiled = torch.compile(program, fullgraph=True)
    traffic = PeerTraffic()
    with torch.no_grad(), torch.compiler.config.patch(force_disable_caches=True):
        with traffic.recording():
            compiled(*inputs)
        launches = traffic.count_launches(lambda: compiled(*inputs))

    gathered = ROWS * WIDTH * 4  # the rows that are looked up, not the whole table
    first = gathered + ROWS * 8 + WIDTH * 4 + ROWS * WIDTH * 4
    second = 2 * ROWS * WIDTH * 4  # sin reads the product and writes the result, in place or not
    assert traffic.bytes == first + second
    assert traffic.extern_calls == 1
    assert launches == 2
    assert kernel.call_count == 4  # in the first call, too
