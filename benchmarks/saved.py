"""Bytes that a forward call keeps for backward: eager, torch.compile and fusewright.

    python -m benchmarks.saved [--models NAME …] [--dropout off|on …]

As in `python -m benchmarks.compare --mode train`, but nothing is timed, so that it may run beside
other work: torch.compile's graphs are cut in two as it cuts them, and run by eager operators.

The exit status is 1 if fusewright keeps more than torch.compile of any model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import fx, nn

from benchmarks.compilers import EAGER, OURS, PEER, Compiled, eager, own
from benchmarks.models import MODELS
from benchmarks.training import build_with_loss, saved_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saved", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--dropout", nargs="+", choices=["off", "on"], default=["off", "on"])
    options = parser.parse_args(arguments)

    shown = Table("model", "dropout", EAGER, PEER, OURS, f"of {PEER}'s")
    most = 0.0
    for model in options.models:
        for dropout in options.dropout:
            kept = {name: measure(make, model, dropout) for name, make in COLUMNS.items()}
            share = kept[OURS] / kept[PEER]
            most = max(most, share)
            megabytes = (f"{kept[name] / 1e6:.2f} MB" for name in COLUMNS)
            shown.add_row(model, dropout, *megabytes, f"{share:.4f}")
    Console().print(shown)
    return int(most > 1)


def measure(compiler: Callable[[nn.Module], Compiled], model: str, dropout: str) -> int:
    """Bytes kept by one forward call of the model `model` as `compiler` makes it."""
    torch.compiler.reset()
    module, inputs = build_with_loss(model, dropout)
    call = compiler(module)
    call(**inputs)
    return saved_bytes(module, call, inputs)


def peer_uncompiled(module: nn.Module) -> Compiled:
    """torch.compile up to where it would generate code."""
    from torch._inductor.compile_fx import compile_fx

    def interpreted(graph_module: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        def run(arguments: list[Any]) -> Any:
            taken = list(arguments)
            arguments.clear()
            return graph_module(*taken)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backend(graph_module: fx.GraphModule, inputs: list[Any]) -> Any:
        return compile_fx(graph_module, inputs, inner_compile=interpreted)  # type: ignore[arg-type]

    return torch.compile(module, backend=backend, fullgraph=True)


COLUMNS: dict[str, Callable[[nn.Module], Compiled]] = {
    EAGER: eager,
    PEER: peer_uncompiled,
    OURS: own,
}

if __name__ == "__main__":
    sys.exit(main())
