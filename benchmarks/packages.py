"""Packages beside torch's AOTInductor: seconds to build, milliseconds to load, a call, file size,
memory of the process that loads, and the error against eager.

    python -m benchmarks.packages [MODEL ...] [--peer] [--seconds N] [--processor-time]
        [--json FILE]

Each build and each load has a process of its own, with one thread; calls take turns in one.
Frozen packages hold what is computed of weights alone in their place. `--peer` adds AOTInductor,
which needs g++ and some minutes; without it, figures of the last file
`torch_compile_packages_*.json` stand in its columns, which are of that day and machine.
`--processor-time`: processor time in place of what a clock says, of calls the least, where other
processes hold the cores; a build by AOTInductor goes by the clock, since g++ is another process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.compare import environment
from benchmarks.measure import relative_error
from benchmarks.models import tensors_of
from benchmarks.sampling import PROCESSOR_TIME, clock, take_turns, typical

OURS, FROZEN, EAGER = "fusewright", "fusewright, frozen", "eager"
PEER, FROZEN_PEER = "AOTInductor", "AOTInductor, frozen"
PEERS = (PEER, FROZEN_PEER)

FIGURES = {
    "build": "build s", "load": "load ms", "call": "call ms", "size": "file MB",
    "memory": "memory MB", "error": "error",
}  # fmt: skip

Program = tuple[torch.nn.Module, dict[str, torch.Tensor], Any]
"""A module in eval mode, the keyword arguments that it is called with, and which sizes vary."""


def bert() -> Program:
    """BERT-base: 12 layers, 4 × 128 tokens."""
    from transformers import BertConfig, BertModel

    ids = torch.randint(0, 30000, (4, 128))
    return BertModel(BertConfig()), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None


def resnet() -> Program:
    """ResNet-50: 4 images."""
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()), {"pixel_values": torch.randn(4, 3, 224, 224)}, None


def llama() -> Program:
    """A Llama of four layers, any number of tokens up to 512."""
    from transformers import LlamaConfig, LlamaModel

    configuration = LlamaConfig(
        num_hidden_layers=4, hidden_size=512, intermediate_size=1408, num_attention_heads=8,
        num_key_value_heads=8, use_cache=False, vocab_size=32000,
    )  # fmt: skip
    length = torch.export.Dim("length", max=512)
    ids = torch.randint(0, 32000, (1, 96))
    return LlamaModel(configuration), {"input_ids": ids}, {"input_ids": {1: length}}


PROGRAMS: dict[str, Callable[[], Program]] = {
    "BERT-base": bert,
    "ResNet-50": resnet,
    "Llama, any length": llama,
}


def program(name: str) -> Program:
    """A program with the same weights and inputs in each process."""
    torch.manual_seed(0)
    module, inputs, shapes = PROGRAMS[name]()
    return module.eval(), inputs, shapes


# Each in a process of its own -------------------------------------------------------------------


def build(column: str, name: str, path: str) -> dict[str, float]:
    """Seconds to build a package of a module that is there, and its size in MB."""
    module, inputs, shapes = program(name)
    now = clock() if column in (OURS, FROZEN) else time.perf_counter
    began = now()
    with torch.no_grad():
        if column in (OURS, FROZEN):
            import fusewright

            options = {"freeze": column == FROZEN}
            fusewright.aot_compile(module, (), inputs, path, dynamic_shapes=shapes, options=options)
        else:
            torch._inductor.config.freezing = column == FROZEN_PEER
            exported = torch.export.export(module, (), inputs, dynamic_shapes=shapes)
            torch._inductor.aoti_compile_and_package(exported, package_path=path)
    return {"build": now() - began, "size": Path(path).stat().st_size / 1e6}


def loaded(column: str, path: str) -> Callable[..., Any]:
    """A package of either kind, ready to be called."""
    if column in (OURS, FROZEN):
        import fusewright

        return fusewright.load(path)
    return torch._inductor.aoti_load_package(path)


def load(column: str, name: str, path: str) -> dict[str, float]:
    """Milliseconds to load a package, imports included, and MB that the process holds more when it
    has been called.
    """
    torch.manual_seed(0)
    inputs = torch.load(f"{path}.inputs", weights_only=True)
    if column in PEERS:
        import transformers.modeling_outputs  # noqa: F401  else it cannot make its results
    before = resident_megabytes()
    now = clock()
    began = now()
    package = loaded(column, path)
    seconds = now() - began
    with torch.no_grad():
        package(**inputs)
    return {"load": 1e3 * seconds, "memory": resident_megabytes() - before}


def resident_megabytes() -> float:
    """What of this process is in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def call(name: str, paths: dict[str, str], seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of a call, and the error against eager, of each column."""
    module, inputs, _ = program(name)
    calls: dict[str, Callable[[], Any]] = {EAGER: lambda: module(**inputs)}
    for column, path in paths.items():
        package = loaded(column, path)
        calls[column] = lambda package=package: package(**inputs)
    with torch.no_grad():
        expected = tensors_of(calls[EAGER]())
        figures = {
            column: {"error": relative_error(tensors_of(run()), expected)}
            for column, run in calls.items()
        }
        for column, samples in take_turns(calls, seconds).items():
            figures[column]["call"] = 1e3 * typical(samples)
    return figures


def in_process(function: str, *arguments: Any) -> Any:
    """What one of the functions above gives in a fresh process of one thread."""
    text = (
        "import json, torch; torch.set_num_threads(1)\n"
        f"from benchmarks import packages\n"
        f"print('\\n' + json.dumps(packages.{function}(*{arguments!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode != 0:
        raise RuntimeError(f"{function}{arguments}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# Report -----------------------------------------------------------------------------------------


def measure(name: str, columns: list[str], seconds: float) -> dict[str, dict[str, float]]:
    """All figures of one program, by column."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {column: f"{folder}/{column}.pt2" for column in columns}
        figures: dict[str, dict[str, float]] = {}
        for column, path in paths.items():
            figures[column] = in_process("build", column, name, path)
            torch.save(program(name)[1], f"{path}.inputs")
            figures[column] |= in_process("load", column, name, path)
        for column, found in in_process("call", name, paths, seconds).items():
            figures[column] = figures.get(column, {}) | found
    return figures


def kept_peer() -> tuple[str, dict[str, Any]]:
    """The peer's figures of the last file, by program, with its date."""
    files = sorted(Path(__file__).parent.glob("torch_compile_packages_*.json"))
    if not files:
        return "", {}
    content = json.loads(files[-1].read_text())
    return content["date"], {
        name: {column: row[column] for column in PEERS if column in row}
        for name, row in content["rows"].items()
    }


def table(rows: dict[str, dict[str, dict[str, float]]], title: str) -> Table:
    """A line a program and column."""
    drawn = Table(title=title)
    drawn.add_column("program")
    drawn.add_column("")
    for heading in FIGURES.values():
        drawn.add_column(heading, justify="right")
    for name, columns in rows.items():
        for column, figures in columns.items():
            cells = [f"{figures[one]:.3g}" if one in figures else "" for one in FIGURES]
            drawn.add_row(name, column, *cells)
    return drawn


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processor-time", action="store_true", help="calls: least")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.processor_time:
        os.environ[PROCESSOR_TIME] = "1"  # The processes that measure inherit it.
    columns = [OURS, FROZEN, *(PEERS if chosen.peer else ())]
    rows = {
        name: measure(name, columns, chosen.seconds) for name in chosen.models or list(PROGRAMS)
    }
    day, peer = ("", {}) if chosen.peer else kept_peer()
    for name, row in rows.items():
        row.update({f"{column}, {day}": one for column, one in peer.get(name, {}).items()})
    Console(width=110).print(table(rows, f"{environment()}"))
    if chosen.json:
        content = {"date": str(date.today()), **environment(), "rows": rows}
        chosen.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
