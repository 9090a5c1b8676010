"""Every kind of body as Triton: its source, and its results in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.golden import Case, golden, read_cases
from tests.kernels.triton.interpreter import run_program, scheduled, write_group

from fusewright.ir.group import Group  # isort: skip
from fusewright.ir.parse import parse_program  # isort: skip
from fusewright.ir.program import Buffer  # isort: skip
from fusewright.ir.reference import evaluate  # isort: skip

CASES = read_cases(Path(__file__).parent / "cases" / "sources.txt")
TOO_LARGE = "indices that need 64 bits"
LIMITS = {"n": 10}
"""Inputs of this name are indices below the number."""


@golden("cases/sources.txt")
def test_source(text: str) -> str:
    groups = [step for step in scheduled(text).steps if isinstance(step, Group)]
    kernels = [write_group(group) for group in groups]
    return "\n".join(kernel.source for kernel in kernels)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("persistent", [None, False], ids=["chosen", "walked"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name != TOO_LARGE], ids=lambda case: case.name
)
def test_results(case: Case, persistent: bool | None, tmp_path: Path) -> None:
    program = parse_program(case.input)
    sizes = {fact.symbol.name: fact.hint for fact in program.sizes}
    inputs = [_input(buffer, sizes) for buffer in program.inputs]
    wanted = evaluate(program, [tensor.clone() for tensor in inputs], sizes=sizes)
    found = run_program(case.input, inputs, tmp_path, sizes=sizes, persistent=persistent)
    for made, right in zip(found, wanted, strict=True):
        assert made.dtype == right.dtype
        # The interpreter truncates to bf16, where hardware rounds: one unit in the last place.
        rtol = 1 / 128 if made.dtype is torch.bfloat16 else 3e-6
        torch.testing.assert_close(made, right, equal_nan=True, rtol=rtol, atol=1e-6)


def _input(buffer: Buffer, sizes: dict[str, int]) -> torch.Tensor:
    """Numbers that tell: no two alike, a NaN in the first rows of a matrix, indices in range."""
    generator = torch.Generator().manual_seed(len(buffer.name))
    size = [index.evaluate(sizes) for index in buffer.layout.size]
    dtype = getattr(torch, buffer.layout.dtype.torch_name)
    if buffer.layout.dtype.is_integer or dtype is torch.bool:
        high = 2 if dtype is torch.bool else LIMITS.get(buffer.name, 60)
        return torch.randint(0, high, size, generator=generator).to(dtype)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("persistent", [True, False])
def test_nan_wins(kind: str, persistent: bool, tmp_path: Path) -> None:
    result = "i64" if kind.startswith("arg") else "f32"
    text = f"""program nan(x: f32[4, 20])
  y: {result}[4] = reduce {kind} [i0<4] over [r0<20]
    t0 = load x[20*i0 + r0]
    yield t0
  return y
"""
    values = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    values[0, 7] = float("nan")
    values[1, 3] = values[1, 11] = float("nan")
    values[2] = float("-inf")
    values[3] = float("inf")
    (wanted,) = evaluate(parse_program(text), [values])
    (found,) = run_program(text, [values], tmp_path, persistent=persistent)
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_an_index_out_of_range_stops_the_kernel(tmp_path: Path) -> None:
    text = next(case.input for case in CASES if case.name.startswith("a gather, as an embedding"))
    weight, indices = torch.randn(10, 16), torch.tensor([0, 1, -10, 9, 10, 2, 3])
    with pytest.raises(Exception, match="out of range"):
        run_program(text, [weight, indices], tmp_path)
