"""Whole groups against eager: reductions, locals, masks, indirect and turned reads, odd shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fusewright.kernels.llvm import plan
from fusewright.kernels.llvm.tiles import STRIP
from fusewright.runtime.llvm_engine import cpu_target
from tests.kernels.llvm.harness import build
from tests.threads import with_threads

WIDTHS = ["auto", "avx2", "scalar"]
LENGTHS = [1, 3, 16, 49, 64, 100, 128, 769, 5000]
"""Row lengths: under a vector, one, a masked step, whole steps, tails, long sums."""


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def reduce_rows(
    kind: str, rows: int, columns: int, result: str = "f32", source: str = "f32"
) -> str:
    """Reduce each row of x[rows, columns] into y[rows]."""
    return f"""group reduce [i0<{rows}]
  read x: {source}[{rows}, {columns}]
  write y: {result}[{rows}]
  local m: {result}
  stage over [r0<{columns}]
    t0 = load x[{columns}*i0 + r0]
    reduce m = {kind} t0
  stage
    t0 = load m[0]
    store y[i0] = t0
"""


def reduce_columns(kind: str, rows: int, columns: int, result: str = "f32") -> str:
    """Reduce each column of x[rows, columns] into y[columns]."""
    return f"""group reduce [i0<{columns}]
  read x: f32[{rows}, {columns}]
  write y: {result}[{columns}]
  local m: {result}
  stage over [r0<{rows}]
    t0 = load x[{columns}*r0 + i0]
    reduce m = {kind} t0
  stage
    t0 = load m[0]
    store y[i0] = t0
"""


EAGER: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, d: x.double().sum(d).float(),
    "prod": lambda x, d: x.double().prod(d).float(),
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_reductions(kind: str, along: str, width: str) -> None:
    result = "i64" if kind.startswith("arg") else "f32"
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        shape = (7, length) if along == "rows" else (length, 37)
        x = torch.randn(shape, generator=generator)
        if kind == "prod":
            x = 1 + x / 100
        write = reduce_rows if along == "rows" else reduce_columns
        kernel = build(write(kind, *shape, result), cpu_target(width))
        y = torch.empty(
            7 if along == "rows" else 37,
            dtype=getattr(torch, {"f32": "float32", "i64": "int64"}[result]),
        )
        kernel({"x": x, "y": y})
        close(y, EAGER[kind](x, 1 if along == "rows" else 0))


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_extremes_find_nan_and_the_first_of_equals(kind: str, along: str) -> None:
    result = "i64" if kind.startswith("arg") else "f32"
    x = torch.zeros(100, 100)
    for place in range(50):
        x[place, 2 * place] = math.nan
        x[2 * place, place] = math.nan
    x[:, 97] = math.inf if "max" in kind else -math.inf
    x[::3, 11] = x[::3, 97]
    y = torch.empty(100, dtype=torch.int64 if result == "i64" else torch.float32)
    write = reduce_rows if along == "rows" else reduce_columns
    build(write(kind, 100, 100, result))({"x": x, "y": y})
    close(y, EAGER[kind](x, 1 if along == "rows" else 0))


def test_long_sums_stay_exact() -> None:
    x = torch.randn(4, 200_003, generator=torch.Generator().manual_seed(0))
    y = torch.empty(4)
    build(reduce_rows("sum", 4, 200_003))({"x": x, "y": y})
    assert float((y - x.double().sum(1)).abs().max()) < 2e-4
    ones = torch.ones(30_000_000)
    build(reduce_rows("sum", 1, 30_000_000))({"x": ones, "y": y})
    assert float(y[0]) == 30_000_000  # one by one, single precision stops at 2^24


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("length", LENGTHS)
def test_welford(length: int, width: str) -> None:
    text = f"""group variance [i0<5]
  read x: f32[5, {length}]
  write mean: f32[5]
  write squares: f32[5]
  local m: f32
  local s: f32
  stage over [r0<{length}]
    t0 = load x[{length}*i0 + r0]
    reduce m, s = welford t0
  stage
    t0 = load m[0]
    store mean[i0] = t0
    t1 = load s[0]
    store squares[i0] = t1
"""
    x = torch.randn(5, length, generator=torch.Generator().manual_seed(0)) + 1000
    mean, squares = torch.empty(5), torch.empty(5)
    build(text, cpu_target(width))({"x": x, "mean": mean, "squares": squares})
    wanted = x.double()
    torch.testing.assert_close(mean.double(), wanted.mean(1), rtol=1e-6, atol=0)
    deviations = (wanted - wanted.mean(1, keepdim=True)).square().sum(1)
    torch.testing.assert_close(squares.double(), deviations, rtol=1e-4, atol=1e-5)


def softmax(length: str, size: str = "") -> str:
    """Softmax over rows, the exponentials kept in a row local."""
    return f"""group softmax [i0<6]{size}
  read x: f32[6, {length}]
  write y: f32[6, {length}]
  local m: f32
  local e: f32[{length}]
  local s: f32
  stage over [r0<{length}]
    t0 = load x[{length}*i0 + r0]
    reduce m = max t0
  stage over [r0<{length}]
    t0 = load x[{length}*i0 + r0]
    t1 = load m[0]
    t2 = sub t0, t1
    t3 = exp t2
    store e[r0] = t3
    reduce s = sum t3
  stage over [r0<{length}]
    t0 = load e[r0]
    t1 = load s[0]
    t2 = div t0, t1
    store y[{length}*i0 + r0] = t2
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("length", LENGTHS)
def test_softmax(length: int, width: str) -> None:
    x = torch.randn(6, length, generator=torch.Generator().manual_seed(length))
    y = torch.empty_like(x)
    build(softmax(str(length)), cpu_target(width))({"x": x, "y": y})
    close(y, x.softmax(1))


@pytest.mark.parametrize("width", WIDTHS)
def test_one_kernel_serves_every_size(width: str) -> None:
    kernel = build(softmax("s0", "\n  size s0 in [2, 100000]"), cpu_target(width))
    for length in (2, 16, 49, 300):
        x = torch.randn(6, length)
        y = torch.empty_like(x)
        kernel({"x": x, "y": y}, s0=length)
        close(y, x.softmax(1))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_s_size_may_be_computed_from_symbols(width: str) -> None:
    """The row's memory is made at the function's entry, before the test of any loop."""
    size = "\n  size s0 in [2, 100000]"
    kernel = build(softmax("(1 + s0)", size), cpu_target(width))
    for length in (3, 17, 50):
        x = torch.randn(6, length)
        y = torch.empty_like(x)
        kernel({"x": x, "y": y}, s0=length - 1)
        close(y, x.softmax(1))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_two_loops_share_stands_before_the_test_of_either(width: str) -> None:
    """The whole vectors of a symbolic row and its tail both read the row's number, spread."""
    text = """group causal [i0<s0, i1<s0]
  size s0 in [2, 100000]
  write y: f32[s0, s0]
  stage
    t0 = index i1: i64
    t1 = index i0: i64
    t2 = le t0, t1
    t3 = where t2, f32(1.0), f32(0.0)
    store y[s0*i0 + i1] = t3
"""
    kernel = build(text, cpu_target(width))
    for length in (2, 16, 35):
        y = torch.full((length, length), 7.0)
        kernel({"y": y}, s0=length)
        close(y, torch.ones(length, length).tril())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 16), (33, 45), (96, 300), (64, 256)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "bf16", "bool"])
def test_transposed_read(
    rows: int, columns: int, dtype: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole tiles and parts, in one strip of columns or several, which here are large enough to ask
    for memory ahead.
    """
    is_large = columns > STRIP
    monkeypatch.setattr(plan, "WALKED_ELEMENTS", 0 if is_large else 1 << 40)
    text = f"""group turn [i0<{columns}, i1<{rows}]
  read x: {dtype}[{rows}, {columns}]
  write y: {dtype}[{columns}, {rows}]
  stage
    t0 = load x[{columns}*i1 + i0]
    store y[{rows}*i0 + i1] = t0
"""
    names = {"f32": "float32", "f64": "float64", "i64": "int64", "bf16": "bfloat16", "bool": "bool"}
    x = (torch.randn(rows, columns) * 3).to(getattr(torch, names[dtype]))
    y = torch.zeros(columns, rows, dtype=x.dtype)
    kernel = build(text, cpu_target(width))
    kernel({"x": x, "y": y})
    assert torch.equal(y, x.t())
    assert ("prefetch" in kernel.source) == (is_large and width != "scalar")


def test_constants_that_read_alike_have_types_of_their_own() -> None:
    text = """group small [i0<40]
  read x: i64[40]
  write y: bool[40]
  stage
    t0 = load x[i0]
    t1 = cast t0: i32
    t2 = lt t0, 5
    t3 = lt t1, 5
    t4 = bitwise_and t2, t3
    store y[i0] = t4
"""
    x, y = torch.arange(40), torch.zeros(40, dtype=torch.bool)
    build(text, cpu_target("auto"))({"x": x, "y": y})
    assert torch.equal(y, x < 5)


@pytest.mark.parametrize("width", WIDTHS)
def test_transposed_read_beside_one_that_follows_the_tile(width: str) -> None:
    """Inside a tile the loop variable is another than around it."""
    text = """group add [i0<64, i1<32]
  read x: f32[32, 64]
  read bias: f32[64]
  write y: f32[64, 32]
  stage
    t0 = load x[64*i1 + i0]
    t1 = load bias[i0]
    t2 = add t0, t1
    store y[32*i0 + i1] = t2
"""
    x, bias, y = torch.randn(32, 64), torch.randn(64), torch.zeros(64, 32)
    build(text, cpu_target(width))({"x": x, "bias": bias, "y": y})
    assert torch.equal(y, x.t() + bias[:, None])


@pytest.mark.parametrize("width", WIDTHS)
def test_masked_reads_stay_inside(width: str) -> None:
    """A padded copy whose reads outside of the mask would lie a terabyte away."""
    far = 2**38
    text = f"""group pad [i0<9, i1<23]
  read x: f32[5, 20]
  write y: f32[9, 23]
  stage
    t0 = index i0 - 2: i64
    t1 = ge t0, 0
    t2 = lt t0, 5
    t3 = bitwise_and t1, t2
    t4 = index i1 - 1: i64
    t5 = ge t4, 0
    t6 = lt t4, 20
    t7 = bitwise_and t5, t6
    t8 = bitwise_and t3, t7
    t9 = load x[{far}*((i0 + 7) // 9) - {far} + {far}*((i0 + 2) // 9) + 20*i0 + i1 - 41]
    t10 = masked t8, t9, 7.0
    store y[23*i0 + i1] = t10
"""
    x = torch.randn(5, 20)
    y = torch.empty(9, 23)
    build(text, cpu_target(width))({"x": x, "y": y})
    close(y, torch.nn.functional.pad(x, (1, 2, 2, 2), value=7.0))


EMBEDDING = """group embedding [i0<12, i1<50]
  read table: f32[9, 50]
  read index: i64[12]
  write y: f32[12, 50]
  stage
    t0 = load index[i0]
    k0 = indirect t0 below 9 wrap check
    t1 = load table[50*k0 + i1]
    store y[50*i0 + i1] = t1
"""

GATHER = """group gather [i0<12, i1<50]
  read table: f32[12, 9]
  read index: i64[12, 50]
  write y: f32[12, 50]
  stage
    t0 = load index[50*i0 + i1]
    k0 = indirect t0 below 9 wrap check
    t1 = load table[9*i0 + k0]
    store y[50*i0 + i1] = t1
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_indirect_reads_wrap_and_are_checked(width: str) -> None:
    embedding, gather = build(EMBEDDING, cpu_target(width)), build(GATHER, cpu_target(width))
    table, y = torch.randn(9, 50), torch.empty(12, 50)
    index = torch.randint(-9, 9, (12,))
    embedding({"table": table, "index": index, "y": y})
    assert torch.equal(y, table[index])
    wide_table, wide_index = torch.randn(12, 9), torch.randint(0, 9, (12, 50))
    gather({"table": wide_table, "index": wide_index, "y": y})
    assert torch.equal(y, wide_table.gather(1, wide_index))
    for bad in (9, -10, 2**40):
        index[5] = bad
        with pytest.raises(IndexError):
            embedding({"table": table, "index": index, "y": y})
        wide_index[3, 49] = bad
        with pytest.raises(IndexError):
            gather({"table": wide_table, "index": wide_index, "y": y})
        wide_index[3, 49] = 0
    index[5] = 0
    embedding({"table": table, "index": index, "y": y})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [5, 40])
def test_an_index_is_loaded_anew_under_a_mask(count: int, width: str) -> None:
    """Where the mask does not hold, what was loaded under it stands for no index of others."""
    text = f"""group both [i0<{count}]
  read index: i64[{count}]
  read x: f32[9]
  write y: f32[{count}]
  stage
    t0 = index i0: i64
    t1 = lt t0, 3
    t2 = load index[i0]
    k0 = indirect t2 below 9 wrap check
    t3 = load x[k0]
    t4 = masked t1, t3, 100.0
    t5 = add t4, t3
    store y[i0] = t5
"""
    index, x, y = torch.randint(1, 9, (count,)), torch.randn(9), torch.empty(count)
    build(text, cpu_target(width))({"index": index, "x": x, "y": y})
    close(y, torch.where(torch.arange(count) < 3, x[index], 100.0) + x[index])


def test_a_scatter_under_masked_reads_of_its_index() -> None:
    text = """group scatter [i0<40]
  read index: i64[40]
  read x: f32[9]
  write y: f32[9]
  stage
    t0 = load index[i0]
    k0 = indirect t0 below 9 wrap check
    t1 = index i0: i64
    t2 = lt t1, 7
    t3 = load x[k0]
    t4 = masked t2, t3, 1.0
    accumulate add y[k0] = t4
"""
    index, x, y = torch.randint(1, 9, (40,)), torch.randn(9), torch.zeros(9)
    build(text)({"index": index, "x": x, "y": y})
    added = torch.where(torch.arange(40) < 7, x[index], 1.0)
    close(y, torch.zeros(9).index_add(0, index, added))


STORED_ROWS = """group rows [{loops}]
  read rows: f32[4, {count}, 50]
  read index: i64[{count}]
  write y: f32[4, 800, 50]
  stage
    t0 = load index[i1]
    k0 = indirect t0 below 800 wrap check
    t1 = load rows[50*{count}*i0 + 50*i1 + i2]
    accumulate store y[40000*i0 + 50*k0 + i2] = t1
"""


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("loops", ["i0<4, i1<{count}, i2<50", "i1<{count}, i0<4, i2<50"])
@pytest.mark.parametrize("count", [3, 800])
def test_no_row_is_stored_where_one_has_no_place(count: int, loops: str, threads: int) -> None:
    """Whichever row it is, and whichever thread has it."""
    store = build(STORED_ROWS.format(count=count, loops=loops.format(count=count)))
    rows, index = torch.randn(4, count, 50), torch.randperm(800)[:count]
    with with_threads(threads):
        for place in (0, count // 2, count - 1):
            for bad in (800, -801, 2**40):
                y = torch.zeros(4, 800, 50)
                wrong = index.clone()
                wrong[place] = bad
                with pytest.raises(IndexError):
                    store({"rows": rows, "index": wrong, "y": y})
                assert not y.any()
        store({"rows": rows, "index": index, "y": y})
    assert torch.equal(y, torch.zeros(4, 800, 50).index_copy(1, index, rows))


@pytest.mark.parametrize("width", WIDTHS)
def test_parts_of_an_index_that_are_known_around_a_loop(width: str) -> None:
    """The first index is known inside the loop, the second one, which shares a part, around it."""
    text = """group windows [i0<64]
  write y: f32[64]
  local m: f32
  stage over [r0<49]
    t0 = index 7*((i0 // 4) % 4) + (r0 // 7): i64
    t1 = index 7*((i0 // 4) % 4) + (i0 // 7): i64
    t2 = lt t0, t1
    t3 = cast t2: f32
    reduce m = sum t3
  stage
    t0 = load m[0]
    store y[i0] = t0
"""
    y = torch.empty(64)
    build(text, cpu_target(width))({"y": y})
    point, inner = torch.arange(64)[:, None], torch.arange(49)
    row = 7 * (point // 4 % 4)
    close(y, (row + inner // 7 < row + point // 7).sum(1).float())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 3, 16, 37])
def test_a_local_that_is_set_again_is_read_again(count: int, width: str) -> None:
    text = f"""group twice [i0<{count}]
  read x: f32[{count}]
  write y: f32[{count}]
  write z: f32[{count}]
  local m: f32
  stage
    t0 = load x[i0]
    store m[0] = t0
  stage
    t0 = load m[0]
    store y[i0] = t0
  stage
    t0 = load x[i0]
    t1 = add t0, t0
    store m[0] = t1
  stage
    t0 = load m[0]
    store z[i0] = t0
"""
    x, y, z = torch.randn(count), torch.empty(count), torch.empty(count)
    build(text, cpu_target(width))({"x": x, "y": y, "z": z})
    assert torch.equal(y, x)
    assert torch.equal(z, x + x)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4096, 100_003])
def test_pointwise_tails(count: int, width: str) -> None:
    text = f"""group line [i0<{count}]
  read x: f32[{count}]
  write y: f32[{count}]
  stage
    t0 = load x[i0]
    t1 = mul t0, t0
    store y[i0] = t1
"""
    x = torch.randn(count + 64)
    y = torch.full((count + 64,), 3.0)
    build(text, cpu_target(width))({"x": x, "y": y})
    close(y[:count], x[:count].square())
    assert bool((y[count:] == 3.0).all())  # nothing past the end is written


@pytest.mark.parametrize("width", WIDTHS)
def test_strided_reversed_and_broadcast_reads(width: str) -> None:
    text = """group mix [i0<7, i1<37]
  read x: f32[7, 111]
  read y: f32[37]
  read z: f32[7]
  write w: f32[7, 37]
  stage
    t0 = load x[111*i0 + 3*i1 + 1]
    t1 = load y[36 - i1]
    t2 = load z[i0]
    t3 = mul t0, t1
    t4 = add t3, t2
    store w[37*i0 + i1] = t4
"""
    x, y, z = torch.randn(7, 111), torch.randn(37), torch.randn(7)
    w = torch.empty(7, 37)
    build(text, cpu_target(width))({"x": x, "y": y, "z": z, "w": w})
    close(w, x[:, 1::3] * y.flip(0) + z[:, None])


@pytest.mark.parametrize("width", WIDTHS)
def test_scalar_group(width: str) -> None:
    text = """group one []
  read x: f32[]
  write y: f32[]
  stage
    t0 = load x[0]
    t1 = exp t0
    store y[0] = t1
"""
    x, y = torch.tensor(1.0), torch.empty(())
    build(text, cpu_target(width))({"x": x, "y": y})
    close(y, x.exp())


@pytest.mark.parametrize("width", WIDTHS)
def test_in_place(width: str) -> None:
    text = """group half [i0<1000]
  read x: f32[1000]
  write y: f32[1000]
  reuse x for y
  stage
    t0 = load x[i0]
    t1 = mul t0, 0.5
    store y[i0] = t1
"""
    x = torch.randn(1000)
    wanted = x * 0.5
    build(text, cpu_target(width))({"x": x, "y": x})
    assert torch.equal(x, wanted)


def test_scatter_adds_in_order() -> None:
    text = """group scatter [i0<500]
  read index: i64[500]
  read x: f32[500]
  write y: f32[10]
  stage
    t0 = load index[i0]
    k0 = indirect t0 below 10 wrap check
    t1 = load x[i0]
    accumulate add y[k0] = t1
"""
    index, x = torch.randint(0, 10, (500,)), torch.randn(500)
    y = torch.zeros(10)
    build(text)({"index": index, "x": x, "y": y})
    assert torch.equal(y, torch.zeros(10).index_add(0, index, x))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mode", ["add", "min", "max", "store"])
@pytest.mark.parametrize("columns", [1, 5, 16, 37, 200])
@pytest.mark.parametrize("varies", [False, True])
def test_scatters_of_rows(varies: bool, columns: int, mode: str, width: str) -> None:
    """Vectors along columns, which are at one row, or each at its own; rows that meet in order."""
    place = f"{columns}*r0 + i0" if varies else "r0"
    text = f"""group scatter [i0<{columns}]
  read index: i64[100, {columns if varies else 1}]
  read x: f32[100, {columns}]
  write y: f32[10, {columns}]
  stage over [r0<100]
    t0 = load index[{place}]
    k0 = indirect t0 below 10 wrap check
    t1 = load x[{columns}*r0 + i0]
    accumulate {mode} y[{columns}*k0 + i0] = t1
"""
    index = torch.randint(-10, 10, (100, columns if varies else 1))
    x, y = torch.randn(100, columns), torch.randn(10, columns)
    wanted = y.clone()
    combine = {"add": torch.add, "min": torch.minimum, "max": torch.maximum}
    for row, places in zip(x, index.expand(100, columns), strict=True):
        old = wanted.gather(0, (places % 10)[None])[0]
        new = row if mode == "store" else combine[mode](old, row)
        wanted.scatter_(0, (places % 10)[None], new[None])
    build(text, cpu_target(width))({"index": index, "x": x, "y": y})
    assert torch.equal(y, wanted)
