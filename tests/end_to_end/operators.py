"""Every operator of torch's own sample database, compiled to machine code and compared with eager.

    python -m tests.end_to_end.operators [--samples N] [--dtype float32] [--dynamic] [--from NAME]
        [--triton | --device cuda] [NAME ...]

prints one row an operator that fails, and the totals. With `--dynamic` every size is symbolic, and
the code made is run for the sizes of the sample. A run that was stopped goes on with `--from`,
at the last operator it named. With `--triton` and
`TRITON_INTERPRET=1` in the environment kernels are Triton's, which its interpreter runs.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import Unsupported
from fusewright.ir.sizes import size_symbol
from fusewright.kernels import KernelLanguage
from fusewright.pipeline import compile_graph
from fusewright.symbolic.facts import ShapeFacts
from tests.lower.operator_samples import compare, database, examples, name_of
from tests.lower.support import graph_of
from tests.symbolic_inputs import SymbolicInputs


@dataclass
class Outcome:
    """What became of the samples of one operator."""

    launches: int = 0
    library_calls: int = 0
    refused: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    symbols: int = 0
    fixed: int = 0
    """How many sizes were symbolic, and how many of them became numbers while compiling."""

    @property
    def status(self) -> str:
        if self.failures:
            return "fails"
        if self.launches or self.library_calls:
            return "compiled" if self.launches else "library"
        return "refused" if self.refused else "nothing to do"


def try_operator(
    info: Any,
    dtype: torch.dtype,
    count: int,
    dynamic: bool = False,
    language: KernelLanguage | None = None,
    device: str = "cpu",
) -> Outcome:
    """Compile each sample as a graph of its own, and run it."""
    outcome = Outcome()
    for args, kwargs, wanted in examples(info, dtype, count, device):
        module, tensors = graph_of(info.op, args, kwargs)
        given, facts = tensors, ShapeFacts()
        if dynamic and all(tensor.layout is torch.strided for tensor in tensors):
            inputs = SymbolicInputs.of(tensors)
            given, facts = inputs.fakes, inputs.facts
        try:
            context = CompileContext(Options(verify=True))
            compiled = compile_graph(module, given, context, language)
        except Unsupported as error:
            outcome.refused.append(str(error))
            continue
        except Exception as error:
            outcome.failures.append(f"{type(error).__name__}: {error}")
            continue
        sizes = [size_symbol(name) for name in facts.hints]
        outcome.symbols += len(sizes)
        outcome.fixed += sum(facts.resolve(size.index).is_constant for size in sizes)
        outcome.launches += len(compiled.record.launches)
        outcome.library_calls += len(compiled.record.extern_calls)
        try:
            compare(compiled(*tensors), wanted, info.op, args, kwargs, dtype)
        except Exception as error:
            outcome.failures.append(f"{type(error).__name__}: {str(error)[:300]}")
    return outcome


def interpreted_triton() -> KernelLanguage:
    """Triton's language under its interpreter, which is chosen when triton is first imported: by
    the database of operators, before anything here is run.
    """
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    from tests.kernels.triton import interpreted

    return interpreted.language


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--from", dest="first", default="")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    language = interpreted_triton() if options.triton else None
    dtype = getattr(torch, options.dtype)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    statuses: Counter[str] = Counter()
    symbols = fixed = 0
    waiting = bool(options.first)
    for info in database():
        waiting = waiting and name_of(info) != options.first
        wanted = not options.names or info.name in options.names
        if waiting or not wanted or dtype not in info.supported_dtypes(options.device):
            continue
        with torch.no_grad():
            outcome = try_operator(
                info, dtype, options.samples, options.dynamic, language, options.device
            )
        symbols += outcome.symbols
        fixed += outcome.fixed
        statuses[outcome.status] += 1
        if outcome.failures or outcome.refused:
            reason = (outcome.failures or outcome.refused)[0].replace("\n", " ")
            print(f"{outcome.status.upper()} {name_of(info)}: {reason[:240]}", flush=True)
    print(dict(statuses))
    if options.dynamic:
        print(f"{symbols} symbolic sizes, {fixed} of which became numbers")


if __name__ == "__main__":
    main()
