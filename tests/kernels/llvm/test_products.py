"""Kernels of matrix products against double precision: every form, width, layout and edge, between
guard pages and in memory full of garbage.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch

from fusewright.ir.dtype import DType
from fusewright.ir.limits import ProductSizes, cpu_limits
from fusewright.ir.parse import parse_group
from fusewright.ir.products import matrix_product
from fusewright.kernels.llvm.pairs import paired
from fusewright.kernels.llvm.product_plan import Form, tiling_of
from fusewright.records import replace
from fusewright.runtime.llvm_engine import CpuTarget, cpu_target, join_modules
from fusewright.runtime.memory_checks import MemoryChecks
from tests.kernels.llvm.harness import assembly, build, write_group

TARGETS = ["auto", "avx2", "neon", "scalar"]
GUARDED = MemoryChecks(guard_pages="both", garbage=True)

RELU = "maximum t3, f32(0.0)"

SIZES = [
    (1, 1, 1),
    (1, 64, 64),
    (2, 3, 5),
    (5, 17, 16),
    (7, 130, 129),
    (16, 96, 33),
    (17, 65, 300),
    (101, 70, 40),
    (300, 33, 7),
]
"""Rows, columns and depth: single ones, whole tiles, and what is left beside them."""


@dataclass(frozen=True)
class Operand:
    """A matrix as it lies in memory: `rows` x `columns`, or turned."""

    name: str
    rows: int
    columns: int
    is_turned: bool = False

    @property
    def size(self) -> tuple[int, int]:
        return (self.columns, self.rows) if self.is_turned else (self.rows, self.columns)

    def at(self, row: str, column: str) -> str:
        if self.is_turned:
            return f"{self.rows}*{column} + {row}"
        return f"{self.columns}*{row} + {column}"

    def matrix(self, memory: torch.Tensor) -> torch.Tensor:
        return memory.t() if self.is_turned else memory


def group(left: Operand, right: Operand, result: Operand, dtype: str = "f32") -> str:
    """The product of two operands, with a bias, an activation and another matrix, all cast to the
    type that `dtype` is computed in, and back.
    """
    compute = "f32" if dtype == "bf16" else dtype
    extents = {"row": left.rows, "column": right.columns}
    loops = [name for name, extent in extents.items() if extent > 1]
    i, j = (f"i{loops.index(name)}" if name in loops else "0" for name in extents)
    outer = ", ".join(f"i{number}<{extents[name]}" for number, name in enumerate(loops))
    size = {operand.name: "{}[{}, {}]".format(dtype, *operand.size) for operand in (left, right)}
    whole = "{}[{}, {}]".format(dtype, *result.size)
    return f"""group product [{outer}]
  read a: {size["a"]}
  read b: {size["b"]}
  read bias: {dtype}[{right.columns}]
  read d: {whole}
  write c: {whole}
  local t: {compute}
  stage over [r0<{left.columns}]
    t0 = load a[{left.at(i, "r0")}]
    t1 = load b[{right.at("r0", j)}]
    t2 = cast t0: {compute}
    t3 = cast t1: {compute}
    t4 = mul t2, t3
    reduce t = dot t4
  stage
    t0 = load t[0]
    t1 = load bias[{j}]
    t2 = cast t1: {compute}
    t3 = add t0, t2
    t4 = maximum t3, {compute}(0.0)
    t5 = load d[{result.at(i, j)}]
    t6 = cast t5: {compute}
    t7 = add t4, t6
    t8 = cast t7: {dtype}
    store c[{result.at(i, j)}] = t8
"""


def check(
    left: Operand,
    right: Operand,
    result: Operand,
    target: str,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Compute the group, and compare with double precision."""
    torch.manual_seed(left.columns)
    names = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}
    compute = torch.float32 if dtype == torch.bfloat16 else dtype
    text = group(left, right, result, names[dtype])
    a, b = torch.randn(left.size).to(dtype), torch.randn(right.size).to(dtype)
    bias, d = torch.randn(right.columns).to(dtype), torch.randn(result.size).to(dtype)
    c = torch.full(result.size, torch.nan, dtype=dtype)
    build(text, cpu_target(target), GUARDED)({"a": a, "b": b, "bias": bias, "d": d, "c": c})
    x, y = left.matrix(a).double(), right.matrix(b).double()
    wanted = (x @ y + bias).clamp(min=0) + result.matrix(d)
    unit = torch.finfo(dtype).eps
    sums = torch.finfo(compute).eps * left.columns**0.5 * 3 * (x.abs() @ y.abs())
    bound = sums + 4 * unit * (wanted.abs() + 1)
    assert ((result.matrix(c).double() - wanted).abs() <= bound).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_products(size: tuple[int, int, int], target: str) -> None:
    """Right operands that are contiguous along the columns, and along the depth."""
    rows, columns, depth = size
    for is_turned in (False, True):
        left, result = Operand("a", rows, depth), Operand("c", rows, columns)
        check(left, Operand("b", depth, columns, is_turned), result, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [*itertools.product([False, True], repeat=3)], ids=str)
def test_layouts(turned: tuple[bool, bool, bool], target: str) -> None:
    """Each of left operand, right operand and result as it is written or turned."""
    for rows, columns, depth in ((6, 40, 20), (37, 70, 150)):
        check(
            Operand("a", rows, depth, turned[0]),
            Operand("b", depth, columns, turned[1]),
            Operand("c", rows, columns, turned[2]),
            target,
        )


PAIRS = CpuTarget(name="znver4", features="+avx512bf16", vector_bytes=64, has_scalef=True)


@pytest.mark.parametrize("size", SIZES[1:6], ids=str)
def test_pairs_of_bfloat16(size: tuple[int, int, int]) -> None:
    """Computed where the processor has the instruction; compiled for one that has, wherever."""
    rows, columns, depth = size
    left, right = Operand("a", rows, depth), Operand("b", depth, columns, is_turned=True)
    result = Operand("c", rows, columns)
    check(left, right, result, "auto", torch.bfloat16)
    product = matrix_product(parse_group(group(left, right, result, "bf16")))
    tiling = None if product is None else tiling_of(product, PAIRS)
    assert tiling is not None and tiling.pairs and tiling.form is Form.ALONG_DEPTH
    assert "vdpbf16ps" in assembly(group(left, right, result, "bf16"), PAIRS)


PACKED_SIZES = [
    (17, 40, 20),
    (48, 64, 64),
    (37, 70, 150),
    (50, 130, 420),
    (300, 20, 194),
    (20, 33, 2),
]


@pytest.mark.parametrize("size", PACKED_SIZES, ids=str)
def test_panels_of_pairs(size: tuple[int, int, int]) -> None:
    """More rows than vectors along the depth are good for: packed, pair by pair."""
    rows, columns, depth = size
    left, right = Operand("a", rows, depth), Operand("b", depth, columns, is_turned=True)
    check(left, right, Operand("c", rows, columns), "auto", torch.bfloat16)
    text = group(left, right, Operand("c", rows, columns), "bf16")
    assert "vdpbf16ps" in assembly(text, PAIRS)


@pytest.mark.parametrize("turned", [(False, False), (True, True), (True, False)], ids=str)
@pytest.mark.parametrize("depth", [64, 63])
def test_what_lies_in_no_pairs(turned: tuple[bool, bool], depth: int) -> None:
    """Operands whose pairs are not side by side, and an odd number of products."""
    left, right = Operand("a", 20, depth, turned[0]), Operand("b", depth, 40, turned[1])
    check(left, right, Operand("c", 20, 40), "auto", torch.bfloat16)
    text = group(left, right, Operand("c", 20, 40), "bf16")
    assert "vdpbf16ps" not in assembly(text, PAIRS)


def test_an_odd_depth_of_pairs() -> None:
    left, right = Operand("a", 20, 63), Operand("b", 63, 40, is_turned=True)
    check(left, right, Operand("c", 20, 40), "auto", torch.bfloat16)
    text = group(left, right, Operand("c", 20, 40), "bf16")
    assert "vdpbf16ps" not in assembly(text, PAIRS)
    product = matrix_product(parse_group(text))
    assert product is not None and paired(product) is None


@pytest.mark.parametrize(
    ("sizes", "is_ours"),
    [
        ((8, 768, 768), True),
        ((16, 4096, 4096), True),
        ((32, 768, 768), False),
        ((32, 128, 128), True),
        ((64, 768, 768), True),
        ((64, 768, 4096), False),
        ((128, 768, 4096), True),
    ],
)
def test_products_of_pairs_that_kernels_are_faster_at(
    sizes: tuple[int, int, int], is_ours: bool
) -> None:
    """Rows, columns and depth of weights that lie along the depth; elsewhere up to 8 rows."""
    rows, columns, depth = sizes
    product = ProductSizes(
        dtype=DType.BF16,
        batches=1,
        rows=rows,
        columns=columns,
        depth=depth,
        lies_along_depth=True,
        has_aligned_operands=True,
    )
    types = frozenset({DType.BF16})
    limits = cpu_limits(types, few_half_rows=8, has_pairs=True)
    assert limits.multiplies(product) is is_ours
    for other in (
        replace(product, depth=depth + 1),
        replace(product, has_aligned_operands=False),
        replace(product, lies_along_depth=False),
    ):
        assert limits.multiplies(other) is (rows <= 8)
    assert cpu_limits(types, few_half_rows=8).multiplies(product) is (rows <= 8)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_vary(target: str, is_turned: bool) -> None:
    """One kernel for all sizes, which chooses its form in each call."""
    text = f"""group product [i0<s0, i1<s1]
  size s0 in [0, 100000]
  size s1 in [0, 100000]
  size s2 in [0, 100000]
  read a: f32[s0, s2]
  read b: f32[{"s1, s2" if is_turned else "s2, s1"}]
  write c: f32[s0, s1]
  local t: f32
  stage over [r0<s2]
    t0 = load a[s2*i0 + r0]
    t1 = load b[{"s2*i1 + r0" if is_turned else "s1*r0 + i1"}]
    t2 = mul t0, t1
    reduce t = dot t2
  stage
    t0 = load t[0]
    t1 = neg t0
    store c[s1*i0 + i1] = t1
"""
    kernel = build(text, cpu_target(target), GUARDED)
    for rows, columns, depth in (
        (2, 5, 3),
        (16, 70, 33),
        (300, 65, 130),
        (0, 4, 4),
        (4, 0, 4),
        (3, 4, 0),
    ):
        a = torch.randn(rows, depth)
        b = torch.randn(columns, depth) if is_turned else torch.randn(depth, columns)
        c = torch.full((rows, columns), torch.nan)
        kernel({"a": a, "b": b, "c": c}, s0=rows, s1=columns, s2=depth)
        torch.testing.assert_close(c, -(a @ (b.t() if is_turned else b)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_types(dtype: torch.dtype, target: str) -> None:
    for rows, is_turned in itertools.product((1, 5, 40), (False, True)):
        left, right = Operand("a", rows, 45), Operand("b", 45, 39, is_turned)
        check(left, right, Operand("c", rows, 39), target, dtype)


def test_forms_are_chosen_by_size_and_layout() -> None:
    def form(rows: int, is_turned: bool) -> Form:
        left, right = Operand("a", rows, 64), Operand("b", 64, 64, is_turned)
        product = matrix_product(parse_group(group(left, right, Operand("c", rows, 64))))
        assert product is not None
        tiling = tiling_of(product, cpu_target("avx512"))
        assert tiling is not None
        return tiling.form

    assert form(4, is_turned=True) is Form.ALONG_DEPTH
    assert form(4, is_turned=False) is Form.IN_PLACE
    assert form(256, is_turned=True) is form(256, is_turned=False) is Form.PACKED


@pytest.mark.parametrize(
    ("size", "is_turned", "lines"),
    [
        ((256, 128, 96), True, 6),  # Of each column, 96 steps of the depth.
        ((256, 128, 96), False, 4),  # Of each step of the depth, 64 columns.
        ((256, 64, 97), True, 6),
        ((256, 64, 96), True, 0),  # The panel is the only one.
        ((16, 128, 192), False, 0),  # The right operand is read where it lies.
    ],
    ids=str,
)
def test_the_next_panel_is_prefetched(
    size: tuple[int, int, int], is_turned: bool, lines: int
) -> None:
    rows, columns, depth = size
    left, right = Operand("a", rows, depth), Operand("b", depth, columns, is_turned)
    text = assembly(group(left, right, Operand("c", rows, columns)), cpu_target("avx512"))
    assert text.count("prefetcht0") == lines


def test_products_of_many_shapes_share_their_code() -> None:
    """What LLVM compiles longest is one function: a kernel of its own has units and an epilogue."""
    sources = {
        f"product{rows}": write_group(
            group(Operand("a", rows, 192), Operand("b", 192, columns), Operand("c", rows, columns)),
            cpu_target("avx512"),
        )[0]
        for rows, columns in ((256, 128), (258, 640), (300, 64))
    }
    text = join_modules(sources)
    assert text.count("define i64 @product") == 3
    assert text.count("define internal void @product_unit-") == 1
    assert text.count("define internal void @product_tile-") == 1


def test_a_sum_of_products_is_none() -> None:
    left, right = Operand("a", 8, 64), Operand("b", 64, 64)
    text = group(left, right, Operand("c", 8, 64)).replace("dot", "sum")
    assert matrix_product(parse_group(text)) is None


@pytest.mark.parametrize("target", TARGETS)
def test_operands_that_are_computed(target: str) -> None:
    """No kernel for the CPU computes them tile by tile: it is a sum like any other."""
    left, right, result = Operand("a", 6, 20), Operand("b", 20, 9), Operand("c", 6, 9)
    text = group(left, right, result).replace("t2 = cast t0: f32", "t2 = exp t0")
    product = matrix_product(parse_group(text))
    assert product is not None and not product.loads_operands
    a, b, bias, d = torch.randn(6, 20), torch.randn(20, 9), torch.randn(9), torch.zeros(6, 9)
    c = torch.full((6, 9), torch.nan)
    build(text, cpu_target(target), GUARDED)({"a": a, "b": b, "bias": bias, "d": d, "c": c})
    torch.testing.assert_close(c, (a.exp() @ b + bias).clamp(min=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 12, 40])
@pytest.mark.parametrize("is_turned", [False, True])
def test_special_values_stay_in_their_rows_and_columns(rows: int, is_turned: bool) -> None:
    """NaN and infinity reach the results that they are factors of, and no others: what lies past
    the last row and column of a tile never does.
    """
    left, right = Operand("a", rows, 50), Operand("b", 50, 37, is_turned)
    a, b = torch.randn(left.size), torch.randn(right.size)
    a[rows - 1, 49], right.matrix(b)[49, 36] = torch.nan, torch.inf
    zeros, c = torch.zeros(37), torch.zeros(rows, 37)
    d = torch.zeros(rows, 37)
    text = group(left, right, Operand("c", rows, 37)).replace(RELU, "neg t3")
    build(text, cpu_target(), GUARDED)({"a": a, "b": b, "bias": zeros, "d": d, "c": c})
    torch.testing.assert_close(c, -(a @ right.matrix(b)), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("size", [(8, 256, 3072), (256, 128, 768), (12, 64, 768)], ids=str)
def test_no_less_exact_than_eager(size: tuple[int, int, int]) -> None:
    rows, columns, depth = size
    torch.manual_seed(0)
    for is_turned in (False, True):
        left, right = Operand("a", rows, depth), Operand("b", depth, columns, is_turned)
        a, b = torch.randn(left.size), torch.randn(right.size)
        zeros, d = torch.zeros(columns), torch.zeros(rows, columns)
        c = torch.empty(rows, columns)
        text = group(left, right, Operand("c", rows, columns)).replace(RELU, "neg t3")
        build(text)({"a": a, "b": b, "bias": zeros, "d": d, "c": c})
        wanted = a.double() @ right.matrix(b).double()
        error = (-c.double() - wanted).square().mean().sqrt()
        assert error <= 1.05 * (a @ right.matrix(b) - wanted).square().mean().sqrt()
