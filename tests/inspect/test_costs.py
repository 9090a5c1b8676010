"""`fusewright profile`: what costs most, how that is counted, and what would be worth changing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app
from fusewright.inspect.costs import CostRow, MachineRates, Profile, profile_of
from fusewright.inspect.operations import Operations, operations_of_call
from fusewright.ir.dtype import DType
from fusewright.records import replace
from fusewright.runtime.profiling import Label, Spent, recording

MACHINE = MachineRates(
    bytes_per_second=10e9, operations_per_second={DType.F32: 100e9}, threads=2, cores=2
)
GIGA = Operations(count=1e9, dtype=DType.F32)
PROGRAM = """\
import sys
import torch
import fusewright


def program(x, w):
    y = torch.tanh(x @ w)
    return torch.nn.functional.conv2d(y[None, None], torch.ones(2, 1, 3, 3)).sum()


compiled = fusewright.compile(program)
w = torch.randn(64, 64, requires_grad=True)
for _ in range(3):
    compiled(torch.randn(64, 64), w).backward()
print(w.grad.shape)
raise SystemExit(len(sys.argv))
"""


def cost(name: str, seconds: float, **more: Any) -> CostRow:
    is_kernel = name.startswith("cpu_")
    label = Label(kernel=name * is_kernel, operators=() if is_kernel else (name,), places=())
    facts = {"count": 10, "bytes": 0.0, "operations": None, **more}
    return CostRow(label=label, seconds=seconds, **facts)


def told(*parts: CostRow, seconds: float = 1.0, **more: Any) -> str:
    facts = {"compile_seconds": 0.0, "explanations": (), "machine": MACHINE, **more}
    return str(Profile(costs=parts, seconds=seconds, **facts))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(MachineRates, "measured", classmethod(lambda cls, dtypes: MACHINE))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = CliRunner().invoke(app, ["profile", str(program), "--x"])
    assert result.exit_code == 2, result.output
    assert result.output.startswith("torch.Size([64, 64])\n\nprogram.py  ")
    assert "in kernels and library calls of compiled code" in result.output
    # The product: as a kernel or as a library call, 2 * 64**3 operations.
    (row,) = re.findall(r".*mm\S* program.py:7.*524.3 kFLOP.*", result.output)[:1]
    assert " 3 " in row and "GFLOP/s" in row
    assert re.search(r"aten.convolution\S* program.py:8 .* [kM]FLOP", result.output)
    assert re.search(r"cpu_\S+ program.py:\d.* 3 .* [kM]B +\S+ [MG]B/s", result.output)

    program.write_text("import fusewright\n")
    result = CliRunner().invoke(app, ["profile", str(program)])
    assert result.exit_code == 0 and "no compiled graph was run" in result.output


def test_bytes_are_those_of_the_record() -> None:
    compiled = fusewright.compile(lambda x: torch.exp(x) + 1, options={"strict": True})
    x = torch.ones(1024)
    compiled(x)
    with recording() as spent:
        compiled(x)
    explanation = fusewright.explain(compiled).history
    profile = profile_of(spent, [explanation], 1e9)
    (found,) = profile.costs
    assert found.bytes == 2 * 4 * 1024 and found.count == 1
    assert found.operations is None and found.bytes_per_second > 0


def test_products_are_counted() -> None:
    from fusewright.ir.parse import parse_program

    program = parse_program(
        "program p(a: f32[5, 7], b: f32[7, 3], c: f32[2, 5, 7], d: f32[2, 7, 3], e: f32[3])\n"
        "  m: f32[5, 3] = extern aten.mm.default(a, b)\n"
        "  n: f32[2, 5, 3] = extern aten.bmm.default(c, d)\n"
        "  o: f32[5, 3] = extern aten.addmm.default(e, a, view(b, f32[7, 3]))\n"
        "  p: f32[5, 7] = extern aten.cumsum.default(a, 0)\n"
        "  return m, n, o, p\n"
    )
    calls = [operations_of_call(one, program.buffers(), {}) for one in program.statements]
    assert [call and call.count for call in calls] == [
        2 * 5 * 7 * 3, 2 * 2 * 5 * 7 * 3, 2 * 5 * 7 * 3, None,
    ]  # fmt: skip


def test_the_table() -> None:
    parts = [cost(f"cpu_k{n}_ff", 0.09 - n / 1000, bytes=1e6, count=100) for n in range(12)]
    text = told(*parts, cost("aten.mm.default", 0.01, operations=GIGA, count=1))
    assert text.count("cpu_k") == 10 and "3 others take" in text
    assert re.search(r"cpu_k0_ff +100 +90 ms +9.0% +900 µs +1 MB +1.111 GB/s +11%", text)
    assert "best: a large copy, 10.0 GB/s" in text
    assert "a large product, 100 GFLOP/s in float32" in text


@pytest.mark.parametrize(
    ("parts", "facts", "advice"),
    [
        ([cost("cpu_a_1", 0.1)], {}, "90% of the time is spent outside of compiled code"),
        (
            [cost("aten.mm.default", 0.9, operations=GIGA)],
            {},
            "aten.mm.default take 100% of compiled code's time and reach less than 40%",
        ),
        ([cost("cpu_a_1", 0.9, bytes=1e3)], {}, "10 launches move less than 32 KiB each"),
        ([cost("cpu_a_1", 0.9, bytes=1e7)], {}, "cpu_a_1 reach less than 30% of a copy's speed"),
        ([cost("aten.clone.default", 0.9)], {}, "aten.clone.default copies: another layout"),
        (
            [cost("cpu_a_1", 0.9)],
            {"machine": replace(MACHINE, threads=1, cores=8)},
            "1 thread runs on 8 cores",
        ),
    ],
)  # fmt: skip
def test_advice(parts: list[CostRow], facts: dict[str, Any], advice: str) -> None:
    text = told(*parts, **facts)
    assert advice in text and text.count("\n- ") == 1, text


def test_breaks_and_recompiles() -> None:
    def program(x: Any, n: int) -> Any:
        y = torch.exp(x) * n
        print(end="")
        return y + 1

    explain = fusewright.explain(program)
    for n in range(3):
        explain(torch.ones(3 + n), n)
    text = told(
        cost("cpu_a_1", 0.6), explanations=(explain.so_far,), compile_seconds=0.4, seconds=1.0
    )
    assert "1 × graph break: " in text and "times it was done again" in text
    assert Spent().count == 0


def test_nothing_to_advise() -> None:
    text = told(cost("cpu_a_1", 0.9, bytes=1e9, count=9))
    assert "worth changing" not in text
