"""Matrix products of many shapes: the library's, and those that kernels compute.

    python -m benchmarks.products [--shapes TEXT] [--threads N] [--seconds S] [--json FILE]

Each shape is a product as models have them: weights as `nn.Linear` keeps them (`linear`) and as
they are multiplied (`plain`), turned left operands of gradients (`turned`), batches, few rows, odd
sizes, half types. Both columns write into memory that is there already, and take turns; figures are
of the best turn, which other processes disturb least: GFLOP/s, and GB/s of the right operand for at
most eight rows. `choice` is what a compile uses. Errors are root mean squares against double
precision, ours as a multiple of the library's.

The exit status is 1 where a choice is slower than the library by more than `TOLERANCE`, or less
exact by more than that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.compare import environment
from benchmarks.sampling import take_turns
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.dtype import BY_TORCH_NAME
from fusewright.ir.limits import ProductSizes
from fusewright.ir.parse import parse_program
from fusewright.kernels import Languages, define_kernels
from fusewright.records import replace
from fusewright.runtime.cpu import KernelSource, load_kernels
from fusewright.schedule import schedule

LIMITS = Languages(Options(multi_kernel="off")).limits_of("cpu")
"""What scheduling knows of this machine."""

TOLERANCE = 0.05
"""Part of a time that is taken for noise."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One product, or a batch of them."""

    name: str
    rows: int
    columns: int
    depth: int
    layout: str = "linear"
    """linear: the right operand is a transposed view; turned: the left one is; plain: neither."""

    batches: int = 0
    """0 for a product of two matrices."""

    dtype: str = "float32"

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Random operands, in the layout."""
        dtype = getattr(torch, self.dtype)
        outside = (self.batches,) if self.batches else ()

        def matrix(rows: int, columns: int, turned: bool) -> torch.Tensor:
            size = (columns, rows) if turned else (rows, columns)
            made = torch.randn(*outside, *size).to(dtype)
            return made.transpose(-1, -2) if turned else made

        left = matrix(self.rows, self.depth, self.layout == "turned")
        return left, matrix(self.depth, self.columns, self.layout == "linear")

    @property
    def operations(self) -> int:
        return 2 * max(1, self.batches) * self.rows * self.columns * self.depth

    @property
    def sizes(self) -> ProductSizes:
        return ProductSizes(
            dtype=BY_TORCH_NAME[self.dtype],
            batches=max(1, self.batches),
            rows=self.rows,
            columns=self.columns,
            depth=self.depth,
        )


def _models() -> list[Shape]:
    """Products of models: a sequence of 128 to 512 tokens, some classifiers."""
    sizes = {
        "BERT attention": (256, 768, 768),
        "BERT up": (256, 3072, 768),
        "BERT down": (256, 768, 3072),
        "BERT vocabulary": (256, 30522, 768),
        "GPT-2 heads": (128, 2304, 768),
        "Llama gate": (128, 5632, 2048),
        "Llama down": (128, 2048, 5632),
        "ViT up": (197, 3072, 768),
        "T5 attention": (64, 512, 512),
        "T5 up": (64, 2048, 512),
        "perceptron": (64, 1024, 784),
        "classifier": (64, 10, 512),
    }
    return [
        Shape(name, *size, layout=layout)
        for name, size in sizes.items()
        for layout in ("linear", "plain")
        if layout == "linear" or size[1] < 10_000
    ]


def _skinny() -> list[Shape]:
    """Few rows: the tokens of a decode, which reads weights and does little else."""
    return [
        Shape(f"{rows} tokens" if rows > 1 else "1 token", rows, columns, depth, layout=layout)
        for rows in (1, 2, 4, 8, 16)
        for columns, depth, layout in ((3072, 768, "linear"), (768, 3072, "plain"))
    ] + [
        Shape("1 token, vocabulary", 1, 50257, 768),
        Shape("1 token, Llama", 1, 8192, 2048),
        Shape("1 token, Llama", 1, 8192, 2048, layout="plain"),
        Shape("tiny", 1, 64, 64),
        Shape("tiny", 8, 64, 64),
    ]


SHAPES = [
    *_models(),
    *_skinny(),
    *(Shape("square", size, size, size, layout="plain") for size in (32, 100, 256, 500, 1024)),
    Shape("ragged", 37, 129, 211),
    Shape("ragged", 131, 257, 65, layout="plain"),
    Shape("ragged", 7, 1001, 333),
    Shape("long", 4096, 64, 64),
    Shape("deep", 32, 32, 8192, layout="plain"),
    Shape("gradient of weights", 768, 3072, 256, layout="turned"),
    Shape("gradient of weights", 3072, 768, 256, layout="turned"),
    Shape("gradient of weights", 512, 512, 64, layout="turned"),
    Shape("gradient of vocabulary", 30522, 768, 256, layout="turned"),
    Shape("scores", 128, 128, 64, batches=24),
    Shape("values", 128, 64, 128, layout="plain", batches=24),
    Shape("scores of one token", 1, 512, 64, batches=12),
    Shape("values of one token", 1, 64, 512, layout="plain", batches=12),
    Shape("turned batch", 64, 64, 128, layout="turned", batches=16),
    Shape("half", 256, 768, 768, dtype="bfloat16"),
    Shape("half", 256, 3072, 768, layout="plain", dtype="bfloat16"),
    Shape("half", 1, 3072, 768, dtype="bfloat16"),
    Shape("half", 8, 768, 3072, dtype="bfloat16"),
    Shape("half", 256, 768, 768, dtype="float16"),
    Shape("half", 1, 3072, 768, dtype="float16"),
]


@dataclass(frozen=True, slots=True)
class Row:
    """What a shape takes; times in seconds."""

    shape: Shape
    library: float
    kernel: float
    choice: str
    """kernel or library."""

    error: float
    """The kernel's as a multiple of the library's."""

    @property
    def speed(self) -> float:
        """Of the choice, as a multiple of the library's."""
        return self.library / self.kernel if self.choice == "kernel" else 1.0

    @property
    def is_bad(self) -> bool:
        is_worse = self.speed < 1 - TOLERANCE or self.error > 1 + TOLERANCE
        return self.choice == "kernel" and is_worse


def kernel_of(left: torch.Tensor, right: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """What computes a product by a kernel, whatever a compile would choose."""
    dtype = BY_TORCH_NAME[str(left.dtype).removeprefix("torch.")]

    def operand(name: str, tensor: torch.Tensor) -> tuple[str, str]:
        size = ", ".join(map(str, tensor.shape))
        if tensor.is_contiguous():
            return f"{name}: {dtype}[{size}]", name
        memory = ", ".join(map(str, tensor.transpose(-1, -2).shape))
        stride = ", ".join(map(str, tensor.stride()))
        return f"{name}: {dtype}[{memory}]", f"view({name}, {dtype}[{size}] stride [{stride}])"

    (left_input, left_operand), (right_input, right_operand) = (
        operand("a", left),
        operand("b", right),
    )
    size = ", ".join(map(str, (*left.shape[:-1], right.shape[-1])))
    operator = "mm" if left.ndim == 2 else "bmm"
    program = parse_program(
        f"program product({left_input}, {right_input})\n"
        f"  c: {dtype}[{size}] = extern aten.{operator}.default({left_operand}, {right_operand})\n"
        "  return c\n"
    )
    context = CompileContext()
    limits = replace(LIMITS, multiplies=lambda product: True)
    kernels = define_kernels(schedule(program, context, lambda device: limits), context)
    ((_, launch),) = kernels.launches.items()
    (kernel,) = kernels.definitions
    source = KernelSource(
        language="cpu", key=kernel.key, tensors=len(launch.buffers), sizes=0, text=kernel.source
    )
    (run,) = load_kernels({kernel.name: source})
    units, grain = launch.units.constant, kernel.facts.grain

    def call(result: torch.Tensor) -> None:
        tensors = {"a": left, "b": right, "c": result}
        run(*(tensors[name] for name in launch.buffers), units, grain)

    return call


def measure(shape: Shape, seconds: float) -> Row:
    """The row of a shape."""
    torch.manual_seed(0)
    left, right = shape.operands()
    wanted = left.double() @ right.double()
    multiply = torch.bmm if shape.batches else torch.mm
    kernel = kernel_of(left, right)
    ours, eager = (torch.empty(wanted.shape, dtype=left.dtype) for _ in range(2))
    samples = take_turns(
        {
            "library": partial(multiply, left, right, out=eager),
            "kernel": partial(kernel, ours),
        },
        seconds,
    )
    errors = [float((one - wanted).square().mean().sqrt()) for one in (ours, eager)]
    return Row(
        shape=shape,
        library=min(samples["library"]),
        kernel=min(samples["kernel"]),
        choice="kernel" if LIMITS.multiplies(shape.sizes) else "library",
        error=errors[0] / max(errors[1], 1e-30),
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows as people read them."""
    shown = Table("shape", "size", "layout", title="GFLOP/s (GB/s of the right operand)")
    for heading in ("library", "kernel", "faster", "error"):
        shown.add_column(heading, justify="right")
    shown.add_column("choice")
    for row in rows:
        shape = row.shape
        size = f"{shape.rows} x {shape.depth} x {shape.columns}"
        shown.add_row(
            shape.name,
            f"{shape.batches} x {size}" if shape.batches else size,
            shape.layout if shape.dtype == "float32" else f"{shape.layout}, {shape.dtype}",
            _rate(shape, row.library),
            _rate(shape, row.kernel),
            f"{row.library / row.kernel:.2f}x",
            f"{row.error:.2f}",
            row.choice,
        )
    return shown


def _rate(shape: Shape, seconds: float) -> str:
    rate = f"{shape.operations / seconds / 1e9:.0f}"
    if shape.rows > 8:
        return rate
    item = getattr(torch, shape.dtype).itemsize
    moved = max(1, shape.batches) * shape.columns * shape.depth * item
    return f"{rate} ({moved / seconds / 1e9:.0f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.products", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--shapes", default="", help="those whose names hold this")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5, help="for one shape")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    chosen = [shape for shape in SHAPES if options.shapes in shape.name]
    if not chosen:
        parser.error(f"no shape's name holds {options.shapes!r}")
    rows = [measure(shape, options.seconds) for shape in chosen]
    Console(width=120).print(table(rows))
    if options.json:
        kept = {"environment": environment(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return int(any(row.is_bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
