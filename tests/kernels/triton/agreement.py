"""What Triton kernels have to compute, whoever runs them: what `ir.reference` says of a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from fusewright.ir.dtype import DType
from fusewright.ir.ops import OPERATIONS, ScalarOperation
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Buffer, Program
from fusewright.ir.reference import evaluate
from fusewright.ir.text import print_program
from tests.golden import Case, read_cases
from tests.kernels.triton.operators import inputs_of, program_of, types
from tests.schedule.programs import inputs_of as data_of

Run = Callable[..., list[torch.Tensor]]
"""`run(text, inputs, folder, *, sizes, persistent)`: a program's outputs, by Triton kernels."""

CASES = read_cases(Path(__file__).parent / "cases" / "sources.txt")
"""A program of every kind of body."""

TOO_LARGE = "indices that need 64 bits"
"""The case whose input is 4 GiB."""

RUN_CASES = [case for case in CASES if case.name != TOO_LARGE]

OPERATION_CASES = [
    (operation, dtype) for operation in OPERATIONS.values() for dtype in types(operation)
]

ANY_ZERO = ("sign", "maximum", "minimum")
"""Operations whose zeros have whatever sign: torch's own differ from device to device."""

LIMITS = {"n": 10}
"""Inputs of this name are indices below the number."""


def check_case(run: Run, case: Case, folder: Path, persistent: bool | None) -> None:
    program = parse_program(case.input)
    sizes = {fact.symbol.name: fact.hint for fact in program.sizes}
    inputs = [_input(buffer, sizes) for buffer in program.inputs]
    wanted = evaluate(program, [tensor.clone() for tensor in inputs], sizes=sizes)
    found = run(case.input, inputs, folder, sizes=sizes, persistent=persistent)
    for made, right in zip(found, wanted, strict=True):
        assert made.dtype == right.dtype
        # The interpreter truncates to bf16, where hardware rounds: one unit in the last place.
        rtol = 1 / 128 if made.dtype is torch.bfloat16 else 3e-6
        _assert_close(made, right, rtol=rtol, atol=4e-6)


def _input(buffer: Buffer, sizes: dict[str, int]) -> torch.Tensor:
    """Numbers that tell: no two alike, indices in range."""
    generator = torch.Generator().manual_seed(len(buffer.name))
    size = [index.evaluate(sizes) for index in buffer.layout.size]
    dtype = getattr(torch, buffer.layout.dtype.torch_name)
    if buffer.layout.dtype.is_integer or dtype is torch.bool:
        high = 2 if dtype is torch.bool else LIMITS.get(buffer.name, 60)
        return torch.randint(0, high, size, generator=generator).to(dtype)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def check_nan(run: Run, kind: str, folder: Path, persistent: bool) -> None:
    """Of a NaN and a number, a maximum or minimum is the NaN; of two, the first is the place."""
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
    (found,) = run(text, [values], folder, persistent=persistent)
    _assert_close(found, wanted)


def check_scan(run: Run, kind: str, folder: Path, persistent: bool, length: int = 12) -> None:
    """NaN from the first NaN on, infinities, and zeros by their signs: of sums, from 0, and of
    extremes, of equals the last.
    """
    text = f"""program scan(x: f32[12, {length}])
  y: f32[12, {length}] = scan {kind} [i0<12, i1<{length}] along i1
    t0 = load x[{length}*i0 + i1]
    yield t0
  return y
"""
    nan, infinity = float("nan"), float("inf")
    first = torch.tensor([-0.0, 0.0, -0.0, -infinity, 1, 2, -0.0, 0.5, infinity, 3, nan, -1])
    values = torch.full((12, length), -0.0)
    for shift in range(12):
        values[shift, :12] = first.roll(shift)
    (wanted,) = evaluate(parse_program(text), [values])
    (found,) = run(text, [values], folder, persistent=persistent)
    found = found.cpu()
    _assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    if kind in ("sum", "max", "min"):
        zeros = wanted == 0
        assert torch.equal(torch.signbit(found)[zeros], torch.signbit(wanted)[zeros])


def scan_from_the_end(kind: str, length: int) -> str:
    """A scan of rows from their ends, read by what goes through them forwards, as the gradient of a
    cumulative sum is.
    """
    back = f"{length}*i0 - i1 + {length - 1}"
    rows = f"f32[12, {length}] on cuda:0"
    return f"""program from_the_end(x: {rows}, w: {rows})
  c: {rows} = scan {kind} [i0<12, i1<{length}] along i1
    t0 = load x[{back}]
    yield t0
  y: {rows} = pointwise [i0<12, i1<{length}]
    t0 = load c[{back}]
    t1 = load w[{length}*i0 + i1]
    t2 = mul t0, t1
    yield t2
  return y
"""


def check_scan_from_the_end(run: Run, kind: str, folder: Path, length: int) -> None:
    torch.manual_seed(0)
    values = [torch.randn(12, length), torch.randn(12, length)]
    text = scan_from_the_end(kind, length)
    (wanted,) = evaluate(parse_program(text), values)
    (found,) = run(text, values, folder)
    _assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)


def check_operation(run: Run, operation: ScalarOperation, dtype: DType, folder: Path) -> None:
    text = program_of(operation, dtype)
    inputs = inputs_of(operation, dtype)
    (wanted,) = evaluate(parse_program(text), inputs)
    (found,) = run(text, inputs, folder)
    found = found.cpu()
    assert found.dtype == wanted.dtype
    _assert_close(found, wanted, rtol=2e-6, atol=1e-7)
    if dtype.is_float and wanted.is_floating_point() and operation.name not in ANY_ZERO:
        zeros = (wanted == 0) & (found == 0)
        assert torch.equal(torch.signbit(found)[zeros], torch.signbit(wanted)[zeros])


def check_random_program(run: Run, program: Program, folder: Path, walked: bool) -> None:
    sizes = {fact.symbol.name: fact.hint for fact in program.sizes}
    data = data_of(program)
    inputs = []
    for buffer in program.inputs:
        size = [index.evaluate(sizes) for index in buffer.layout.size]
        stride = [index.evaluate(sizes) for index in buffer.layout.stride]
        flat = torch.tensor(data[buffer.name]).to(getattr(torch, buffer.layout.dtype.torch_name))
        inputs.append(torch.as_strided(flat, size, stride))
    wanted = evaluate(program, [tensor.clone() for tensor in inputs], sizes=sizes)
    text = print_program(program)
    persistent = False if walked else None
    found = run(text, inputs, folder, sizes=sizes, persistent=persistent)
    for made, right in zip(found, wanted, strict=True):
        _assert_close(made, right.to(made.dtype), rtol=1e-4, atol=1e-5)


def embedding_out_of_range(run: Run, folder: Path) -> None:
    """Read a row that a table of ten does not have."""
    text = next(case.input for case in CASES if case.name.startswith("a gather, as an embedding"))
    run(text, [torch.randn(10, 16), torch.tensor([0, 1, -10, 9, 10, 2, 3])], folder)


def _assert_close(
    found: torch.Tensor, wanted: torch.Tensor, rtol: float = 0, atol: float = 0
) -> None:
    torch.testing.assert_close(found.cpu(), wanted, equal_nan=True, rtol=rtol, atol=atol)
