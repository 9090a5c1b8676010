"""Compare eager, torch.compile and fusewright on whole models, every model in processes of its own.

    python -m benchmarks.compare [--mode inference|train] [--models NAME …] [--frozen]
        [--peers openvino onnxruntime] [--processor-time]
        [--dropout off|on …] [--front-end own|torch] [--json FILE]

For each model: a cold first call of each compiler, with empty caches, in a fresh process (imports
after `import torch` count, building the model does not); then one process in which the columns take
turns, for median times a call, errors against eager, launches of generated kernels and the bytes
that these move. The exit status is 1 if anything failed, fell back, or strayed from eager by more
than 1e-5.

`--frozen`: fusewright takes weights for constants, in inference. `--peers`: OpenVINO and ONNX
Runtime, which do so always, are compared, too (`pip install 'fusewright[peers]'`).

`--processor-time`: calls are measured in processor time of one thread, the least of all turns,
for machines that do other work meanwhile; first calls are left out.

`--mode train`: the same of training steps (forward, loss, backward), for models in eval and in
train mode; the errors are of the gradients, which `training.py` explains, and are left out where
dropout is on; the bytes are those that the forward half keeps for the backward half.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.compilers import (
    EAGER,
    FROZEN,
    ONNX_RUNTIME,
    OPENVINO,
    OURS,
    PEER,
    peer_is_available,
)
from benchmarks.models import MODELS
from benchmarks.report import is_wrong, summarise, table
from benchmarks.sampling import PROCESSOR_TIME

ROOT = Path(__file__).parents[1]
PROCESS_SECONDS = 900


@dataclass(slots=True)
class Row:
    """What was measured of one model."""

    model: str
    front_end: str
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By column: `first_call` and `call` in seconds, `error`, `launches`, `bytes`, …, or
    `failure`."""

    dropout: str | None = None
    """`off` or `on` in training, None in inference."""

    @property
    def title(self) -> str:
        """The model, and how it is trained."""
        return self.model if self.dropout is None else f"{self.model}, dropout {self.dropout}"

    def measurement(self, kind: str, columns: str) -> list[str]:
        """What `benchmarks.measure` is asked; `kind`: `cold` or `steady`."""
        if self.dropout is None:
            return [kind, columns, self.front_end, self.model]
        kind = {"cold": "cold-step", "steady": "steady-steps"}[kind]
        return [kind, columns, self.front_end, self.model, self.dropout]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison that the command line asks for; return the exit status."""
    options = _parse(arguments)
    console = Console()
    rows = []

    with _progress(console) as progress:
        dropouts = options.dropout if options.mode == "train" else [None]
        wanted = [(model, dropout) for model in options.models for dropout in dropouts]
        task = progress.add_task("", total=len(wanted) * len(options.columns))
        for model, dropout in wanted:
            front_end = FROZEN if options.frozen else _front_end(model, options.front_end)
            row = Row(model, front_end, dropout=dropout)
            for step in _measure(row, options.columns, of_processor=options.processor_time):
                progress.update(task, description=f"{row.title}: {step}")
                progress.advance(task)
            rows.append(row)

    call = "step" if options.mode == "train" else "call"
    console.print(table(rows, call))
    summary = summarise(rows)
    for line in summary.sentences(call):
        console.print(line)
    if options.json is not None:
        report = {
            "environment": environment(),
            "rows": [asdict(row) for row in rows],
            "summary": asdict(summary),
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(_failed(row) for row in rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", choices=["cpu"], default="cpu")
    parser.add_argument("--mode", choices=["inference", "train"], default="inference")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--dropout",
        nargs="+",
        choices=["off", "on"],
        default=["off", "on"],
        help="of training: models in eval mode (gradients are compared), in train mode, or both",
    )
    parser.add_argument(
        "--front-end",
        choices=["own", "torch"],
        default="own",
        help="what captures for fusewright; models that its own capture does not take yet "
        "use torch.compile's either way",
    )
    parser.add_argument(
        "--columns", nargs="+", choices=[EAGER, PEER, OURS], default=[EAGER, PEER, OURS]
    )
    parser.add_argument(
        "--peers", nargs="+", choices=[OPENVINO, ONNX_RUNTIME], default=[], help="of inference"
    )
    parser.add_argument("--frozen", action="store_true", help="fusewright freezes weights")
    parser.add_argument("--processor-time", action="store_true", help="of one thread, least")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)
    if options.frozen and (options.mode == "train" or options.front_end == "torch"):
        parser.error("--frozen is for inference, with fusewright's own front end")
    if options.peers and options.mode == "train":
        parser.error("--peers is for inference")
    options.columns = [*options.columns, *options.peers]
    return options


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _front_end(model: str, wanted: str) -> str:
    return wanted if MODELS[model].own_front_end else "torch"


def _measure(row: Row, columns: Sequence[str], *, of_processor: bool = False) -> Iterator[str]:
    """Fill in `row`, naming each step when it begins. `of_processor`: with processor time."""
    row.columns = {column: {} for column in columns}
    with fresh_caches() as caches:  # each compiler has its own; the second process may find them
        for column in columns:
            if column == EAGER or of_processor:
                continue
            if column == PEER and not peer_is_available():
                row.columns[PEER] = {"failure": "not available: there is no C++ compiler"}
                continue
            yield f"first call of {column}"
            row.columns[column] |= run(row.measurement("cold", column), caches)

        yield "calls in turns"
        working = [column for column in columns if "failure" not in row.columns[column]]
        variables = caches | GENERATES_AGAIN | (ONE_THREAD if of_processor else {})
        steady = run(row.measurement("steady", ",".join(working)), variables)
        for column in working:
            row.columns[column] |= steady if "failure" in steady else steady[column]


GENERATES_AGAIN = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""Has torch.compile generate its code again, which is counted then, and take what its C++ compiler
made of it from the caches.
"""


ONE_THREAD = {PROCESSOR_TIME: "1", "OMP_NUM_THREADS": "1"}
"""Has calls measured in processor time, of one thread."""


@contextmanager
def fresh_caches() -> Iterator[dict[str, str]]:
    """Environment variables that lead every cache to an empty folder."""
    with tempfile.TemporaryDirectory(prefix="fusewright-benchmark-") as folder:
        names = (
            "FUSEWRIGHT_CACHE_DIR",
            "TMPDIR",
            "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "XDG_CACHE_HOME",
        )
        variables = {name: str(Path(folder, name.lower())) for name in names}
        for path in variables.values():
            Path(path).mkdir()
        yield variables


def run(
    arguments: list[str],
    variables: dict[str, str],
    module: str = "benchmarks.measure",
    seconds: float = PROCESS_SECONDS,
) -> dict[str, Any]:
    """The JSON object that a module prints, or the reason why there is none as `failure`."""
    command = [sys.executable, "-m", module, *arguments]
    settings = {**os.environ, "FUSEWRIGHT_STRICT": "1", "HF_HUB_OFFLINE": "1", **variables}
    try:
        finished = subprocess.run(
            command,
            cwd=ROOT,
            env=settings,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"took more than {seconds:.0f} s"}

    lines = finished.stdout.strip().splitlines()
    if finished.returncode == 0 and lines:
        measured: dict[str, Any] = json.loads(lines[-1])
        return measured
    said = finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"]
    return {"failure": said[-1], "output": said[-40:]}


def environment() -> dict[str, Any]:
    """Where and with what the figures were measured."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": processor_name(),
        "load_average": os.getloadavg()[0],
    }


def processor_name() -> str:
    """The processor's model, as Linux tells it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _failed(row: Row) -> bool:
    ours = row.columns.get(OURS, {})
    return "failure" in ours or is_wrong(ours)


if __name__ == "__main__":
    sys.exit(main())
