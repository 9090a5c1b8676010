"""Packages run by a C++ program without Python, built by g++ alone: results, refusals, damage; and
the section that it reads.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop

import fusewright
from fusewright.packages.container import read_package, write_package
from tests.packages.branches import Branches
from tests.packages.in_c import SOURCES, TORCH, CLibrary, Refused

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program."""
    program = tmp_path_factory.mktemp("host") / "run_package"
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        objects.append(program.parent / f"{source.stem}.o")
        flags = [
            "-x",
            "c",
            "-std=c11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=undefined",
        ]
        subprocess.run(["g++", *flags, "-c", source, "-o", objects[-1]], check=True)
    subprocess.run(
        [
            "g++", "-std=c++17", "-fsanitize=undefined", ROOT / "examples" / "run_package.cpp",
            *objects, f"-I{SOURCES}", f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}",
            "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH / 'lib'}", "-o", program,
        ],
        check=True,
    )  # fmt: skip
    return program


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    return CLibrary(tmp_path_factory.mktemp("library"))


class Model(torch.nn.Module):
    """Tokens to scores: kernels, products, attention (a library call), a constant, a view."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.inner = torch.nn.Linear(16, 48)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        x = self.table(input_ids) * torch.linspace(0, 1, 16)
        q, k, v = self.inner(x).reshape(*input_ids.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = attention_mask[:, None, None] != 0
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        y = torch.cat([self.norm(y.transpose(1, 2).reshape(x.shape)), x], -1)
        return {"scores": y, "sorted": y.sort(-1)[0], "length": input_ids.shape[1]}


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def path(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "model.fwp"
    ids = torch.randint(0, 50, (1, 5))
    length = torch.export.Dim("length", max=20)
    shapes = {"input_ids": {1: length}, "attention_mask": {1: length}}
    return fusewright.aot_compile(
        model, (ids, torch.ones_like(ids)), None, path, dynamic_shapes=shapes
    )


def run(host: Path, path: Path, tokens: list[int]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [host, path, *map(str, tokens)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"OMP_NUM_THREADS": "2", "PATH": ""},
    )


@pytest.mark.parametrize("count", [2, 5, 20])
def test_results_are_eagers(host: Path, path: Path, model: Model, count: int) -> None:
    tokens = random.Random(count).choices(range(50), k=count)
    done = run(host, path, tokens)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    first, second, *numbers = done.stdout.split("\n")[:-1]
    assert (first, second) == ("input input_ids", "input attention_mask")
    ids = torch.tensor([tokens])
    with torch.no_grad():
        expected = model(ids, torch.ones_like(ids))["scores"].flatten()
    torch.testing.assert_close(torch.tensor(list(map(float, numbers))), expected)


def test_no_python_is_linked(host: Path) -> None:
    linked = subprocess.run(["ldd", host], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu" in linked and "python" not in linked.replace(str(TORCH), "")


def test_arguments_are_checked(host: Path, path: Path) -> None:
    done = run(host, path, [1] * 21)
    assert done.returncode == 1 and "package was made for 20 >= input_ids.size(1)" in done.stdout
    done = run(host, path, [7, 50])
    assert done.returncode == 1 and "index out of range in compiled kernel cpu_" in done.stdout


def test_damage_is_refused(host: Path, path: Path, tmp_path: Path) -> None:
    content, damaged = path.read_bytes(), tmp_path / "damaged"
    generator = random.Random(0)
    places = [*range(0, 96, 9), *(generator.randrange(len(content)) for _ in range(25))]
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << generator.randrange(8)
        damaged.write_bytes(flipped)
        done = run(host, damaged, [1, 2])
        assert done.returncode == 1 and done.stdout.startswith(f"{damaged}: "), place
    for size in (0, 50, 96, 1000, len(content) - 1):
        damaged.write_bytes(content[:size])
        assert run(host, damaged, [1, 2]).returncode == 1
    assert "cannot be opened" in run(host, tmp_path / "none", [1]).stdout


def altered(path: Path, target: Path, change: Any) -> Path:
    """The package with another section for programs without Python, and right digests."""
    file = read_package(path, b"")
    manifest = {name: value for name, value in file.manifest.items() if name != "sections"}
    sections = []
    for row in file.manifest["sections"]:
        content = bytes(file.section(row["name"]))
        is_it = row["name"].endswith(".standalone")
        sections.append((row["name"], change(content) if is_it else content))
    write_package(target, manifest, sections, b"")
    return target


def test_packages_for_others_are_refused(host: Path, path: Path, tmp_path: Path) -> None:
    other = altered(path, tmp_path / "p", lambda one: one.replace(b"x86_64", b"riscv6"))
    assert "it is for riscv6" in run(host, other, [1, 2]).stdout
    other = altered(path, tmp_path / "p", lambda one: one.replace(b"popcnt", b"popcmt"))
    if b"popcnt" in read_package(path, b"").memory[:]:
        assert "this processor lacks popcmt" in run(host, other, [1, 2]).stdout


class Stepping(torch.nn.Module):
    """Tokens to numbers by a loop with a condition in it."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            even = torch.cond(carry > 9, lambda c: c - 9, lambda c: c * 2, (carry,))
            return even + row, even * 1

        return scan(step, attention_mask[0, 0], input_ids[0])[1].float()


@pytest.fixture(scope="module")
def path_of_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "blocks.fwp"
    ids = torch.randint(0, 50, (1, 5))
    return fusewright.aot_compile(Stepping().eval(), (ids, torch.ones_like(ids)), None, path)


def test_blocks_in_a_program(host: Path, path_of_blocks: Path) -> None:
    done = run(host, path_of_blocks, [5, 1, 2, 3, 4])
    assert done.returncode == 0, done.stdout + done.stderr
    assert [*map(float, done.stdout.split("\n")[2:-1])] == [2, 14, 6, 16, 10]


@pytest.mark.parametrize("package", ["path", "path_of_blocks"])
def test_a_malformed_plan_touches_no_memory_outside(
    host: Path, package: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Any word of it may be wrong: it is refused, or does something else; it ends no process by a
    signal before it is run.
    """
    path = request.getfixturevalue(package)
    generator = random.Random(1)
    refused = 0
    for _ in range(16):

        def change(content: bytes) -> bytes:
            words = bytearray(content)
            place = generator.randrange(len(words) // 8) * 8
            wrong = generator.choice([-1, 1 << 40, 3, -(1 << 50), generator.randrange(100)])
            words[place : place + 8] = struct.pack("<q", wrong)
            return bytes(words)

        done = run(host, altered(path, tmp_path / "p", change), [])
        assert done.returncode >= 0, done.stdout + done.stderr
        done = subprocess.run(
            [host, tmp_path / "p", "1", "2", "3", "4", "5"],
            capture_output=True,
            text=True,
            check=False,
        )
        refused += done.returncode == 1
    assert refused > 2


class Counter(torch.nn.Module):
    """Writes to a buffer that it reads, and to an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = torch.nn.Buffer(torch.ones(3))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.calls *= 2
        attention_mask += input_ids
        return self.calls * attention_mask[0]


def test_writes_are_made(host: Path, tmp_path: Path) -> None:
    ids = torch.ones(1, 3, dtype=torch.int64)
    path = fusewright.aot_compile(Counter().eval(), (ids, ids.clone()), None, tmp_path / "p")
    done = run(host, path, [1, 2, 3])
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert [*map(float, done.stdout.split("\n")[2:-1])] == [4.0, 6.0, 8.0]


class Keeping(torch.nn.Module):
    """Writes to two arguments and a buffer; reads one more."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.nn.Buffer(torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        self.kept += z
        x += 1
        y *= 2
        return x + y


def test_memory_that_is_written_is_not_shared(library: CLibrary, tmp_path: Path) -> None:
    tensors = [torch.ones(4) for _ in range(3)]
    package = library.load(fusewright.aot_compile(Keeping().eval(), tensors, None, tmp_path / "p"))

    def refusal(*inputs: torch.Tensor) -> str:
        with pytest.raises(Refused) as refused:
            package(*inputs)
        return str(refused.value)

    memory, apart = torch.ones(12), torch.ones(4)
    words = "input {} lies in memory of a tensor that is written to"
    package(memory[:4], memory[4:8], memory[8:])
    assert memory.tolist() == [2.0] * 8 + [1.0] * 4
    assert refusal(memory[:4], memory[3:7], apart) == words.format("y")
    assert refusal(apart, memory[:4], memory[3:7]) == words.format("z")
    assert memory.tolist() == [2.0] * 8 + [1.0] * 4
    package.free()


class Resizing(torch.nn.Module):
    """Library calls that take lists of sizes."""

    def forward(self, x: torch.Tensor) -> Any:
        resize = torch.nn.functional.interpolate
        larger = resize(x, size=(16, 16), mode="bilinear")
        return larger + 1, resize(x, size=(5, 5), mode="bicubic", antialias=True)


@pytest.mark.parametrize("tensors", ["plain", "inference"])
@pytest.mark.parametrize("mode", ["plain", "inference"])
def test_inference_mode(mode: str, tensors: str, library: CLibrary, tmp_path: Path) -> None:
    x = torch.rand(2, 3, 8, 8)
    path = fusewright.aot_compile(Resizing().eval(), (x,), None, tmp_path / "p")
    with torch.inference_mode(tensors == "inference"):
        x = x.clone()
    with torch.inference_mode(mode == "inference"):
        results, expected = library.load(path)(x), Resizing()(x)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)
        assert result.is_inference() == wanted.is_inference()


# Sizes that depend on data ------------------------------------------------------------------------


def picked(x: torch.Tensor, index: torch.Tensor) -> Any:
    return torch.nonzero(x > 0), x[x > 0.5].cumsum(0), x.unique(), x[:, index].sin()


def test_what_is_picked_by_values(library: CLibrary, tmp_path: Path) -> None:
    index = torch.tensor([2, 0, -1])
    path = fusewright.aot_compile(picked, (torch.randn(4, 3), index), None, tmp_path / "p")
    package = library.load(path)
    for row in (torch.linspace(-1, 1, 12), torch.zeros(12), torch.full((12,), 2.0)):
        x = row.reshape(4, 3)
        for result, expected in zip(package(x, index), picked(x, index), strict=True):
            torch.testing.assert_close(result, expected)
    package.free()


def in_rows(x: torch.Tensor) -> torch.Tensor:
    indices = torch.nonzero(x > 0).squeeze(1)
    torch._check(indices.shape[0] <= 5, lambda: "more than five are positive")
    return x[indices].new_zeros(3) + indices.numel()


def test_facts_about_data_are_checked(library: CLibrary, tmp_path: Path) -> None:
    path = fusewright.aot_compile(in_rows, (torch.ones(8),), None, tmp_path / "p")
    package = library.load(path)
    for first in (-5, -4, -9):
        x = torch.arange(first, first + 8.0)
        torch.testing.assert_close(package(x), [in_rows(x)])
    for run in (package, fusewright.load(path)):
        with pytest.raises((Refused, RuntimeError), match="above 5: the program promised"):
            run(torch.ones(8))
    package.free()


def test_the_device_of_what_is_drawn(library: CLibrary, tmp_path: Path) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(5)

    path = fusewright.aot_compile(noisy, (torch.ones(5),), None, tmp_path / "p")
    package, x = library.load(path), torch.ones(5)
    torch.manual_seed(3)
    (result,) = package(x)
    torch.manual_seed(3)
    torch.testing.assert_close(result, noisy(x))
    package.free()


# Conditions and loops ---------------------------------------------------------------------------


def test_conditions_and_loops(library: CLibrary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Branches().eval()
    inputs = (torch.randn(5, 4), torch.tensor(2))
    shapes = {"x": {0: torch.export.Dim("rows")}, "steps": None}
    path = fusewright.aot_compile(model, inputs, None, tmp_path / "p", dynamic_shapes=shapes)
    package = library.load(path)
    for rows, shift, steps in ((5, 0.5, 2), (3, 9.0, 0), (7, -3.0, 3), (2, 5.0, 1)):
        x = torch.randn(rows, 4) + shift
        with torch.no_grad():
            expected = model(x, torch.tensor(steps))
        for result, value in zip(package(x, torch.tensor(steps)), expected, strict=True):
            torch.testing.assert_close(result, value)
    package.free()


def running(x: torch.Tensor, w: torch.Tensor) -> Any:
    carry, (sums, steps) = scan(
        lambda c, a: (torch.tanh(c @ w + a), (c.sum(), c * 2)), x.new_zeros(x.shape[1:]), x
    )
    return carry, sums, steps


def from_the_end(x: torch.Tensor, w: torch.Tensor) -> Any:
    def step(carry: Any, a: torch.Tensor) -> Any:
        total, count = carry
        return (total * a + a @ w, count + 1), total * 1

    (total, count), totals = scan(step, (w[0], torch.zeros((), dtype=torch.int64)), x, reverse=True)
    return total, count, totals


def swapped(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Values that change places, and one that stays."""
    count = torch.zeros((), dtype=torch.int64)
    return while_loop(
        lambda n, a, b: n < x.shape[0], lambda n, a, b: (n + 1, b.clone(), a + 1), (count, w, w * 2)
    )


@pytest.mark.parametrize("function", [running, from_the_end, swapped])
def test_loops(function: Callable[..., Any], library: CLibrary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 4), torch.randn(4, 4)
    shapes = {"x": {0: torch.export.Dim("steps")}, "w": None}
    path = fusewright.aot_compile(function, (x, w), None, tmp_path / "p", dynamic_shapes=shapes)
    package = library.load(path)
    for steps in (5, 2, 9):
        x, before = torch.randn(steps, 4), w.clone()
        expected = function(x, w)
        for result, value in zip(package(x, w), expected, strict=True):
            torch.testing.assert_close(result, value)
        assert w.equal(before)
    package.free()


def test_faults_inside_of_a_block(library: CLibrary, tmp_path: Path) -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, i: x[i] * 2, lambda x, i: x[:1] * 1.0, (x, index))

    index = torch.tensor([1])
    path = fusewright.aot_compile(function, (torch.ones(3), index), None, tmp_path / "p")
    package = library.load(path)
    assert package(torch.ones(3), index)[0].tolist() == [2.0]
    with pytest.raises(Refused, match="index out of range in compiled kernel cpu_"):
        package(torch.ones(3), torch.tensor([7]))
    assert package(-torch.ones(3), torch.tensor([7]))[0].tolist() == [-1.0]
    package.free()


def test_frozen_weights(library: CLibrary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    ).eval()
    layers[1].running_mean.normal_()
    x = torch.randn(2, 3, 9, 9)
    options = {"freeze": True}
    for shapes in (None, {"input": {0: torch.export.Dim("rows")}}):
        path = fusewright.aot_compile(
            layers, (x,), None, tmp_path / "p", dynamic_shapes=shapes, options=options
        )
        package = library.load(path)
        x = torch.randn(2 if shapes is None else 5, 3, 9, 9)
        with torch.no_grad():
            torch.testing.assert_close(package(x)[0], layers(x), rtol=1e-4, atol=1e-5)
        package.free()


def test_what_needs_python_has_no_such_section(host: Path, tmp_path: Path) -> None:
    def function(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return torch.nonzero(input_ids > attention_mask).float().histc(3)

    ids = torch.ones(1, 3, dtype=torch.int64)
    path = fusewright.aot_compile(function, (ids, ids), None, tmp_path / "p")
    fusewright.load(path)(ids, ids)
    done = run(host, path, [1, 2, 3])
    assert done.returncode == 1
    assert "no entry point 'forward' that runs without Python" in done.stdout
