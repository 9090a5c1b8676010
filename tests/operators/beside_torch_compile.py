"""Torch's operator samples compiled by `fusewright.compile` and by `torch.compile`, beside eager.

    python -m tests.operators.beside_torch_compile COLUMN RESULTS [--device cuda] [--samples N]
        [--dtypes float32,bfloat16] [--part K/N] [NAME ...]
    python -m tests.operators.beside_torch_compile table RESULTS [RESULTS]

A column is `fusewright` or `torch.compile`. Each sample is compiled as one graph that may not
break (fusewright's strictly: no fall-back), called under `no_grad`, and again for the gradients of
its floating arguments; both columns are judged alike: values and types as eager's, or nearer to the
results in double precision. RESULTS keeps a JSON line for each operator and type; those that have
one are left out, so that a run that was stopped goes on. `table` counts what two such files have in
common; the second is by default torch.compile's of torch 2.11 on an H200, which stands here by the
date of that run. A line is `right`, `wrong` (other values), `raises` or `refused`, with the first
reason; operators without a sample that gives the same in every eager call are left out.

A process whose GPU is lost to a fault ends with status 3, after it has written that line: begin
again, and the rest follows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, fx
from torch.testing._internal import common_methods_invocations

import fusewright
from fusewright.errors import DataDependent, Unsupported, UnsupportedOperator
from tests.end_to_end.gradients import unseeded
from tests.lower.support import leaves
from tests.operators.gradient_stage import Compiler, check_gradients, graph_of_call
from tests.operators.samples import (
    RANDOM,
    is_more_exact,
    name_of,
    picks_other_equals,
    sample_inputs,
    tolerance,
)
from tests.operators.walk import operators

PEERS = "torch_compile_cuda_*.jsonl"
"""Files of torch.compile's results, beside this one, by date."""

REFUSALS = (DataDependent, Unsupported, UnsupportedOperator)
PEERS_REFUSALS = ("Unsupported", "UserError")

LOST_GPU = 3
"""The exit status of a process that can launch nothing more."""


def own(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """fusewright, without a fall-back."""
    return fusewright.compile(module, fullgraph=True, options={"strict": True})


def peer(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """torch.compile with its default backend."""
    torch.compiler.reset()
    return torch.compile(module, fullgraph=True)


COLUMNS: Mapping[str, Compiler] = {"fusewright": own, "torch.compile": peer}


def check_results(compiler: Compiler, info: Any, sample: Any, dtype: torch.dtype) -> bool:
    """AssertionError unless the compiled results are eager's, or more exact. False where eager
    refuses the sample, or gives something else than tensors and numbers.
    """
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    try:
        expected = info.op(*args, **kwargs)
    except Exception:
        return False
    if not all(isinstance(leaf, (Tensor, int, float, bool)) for leaf in leaves(expected)):
        return False
    module, tensors = graph_of_call(info.op, args, kwargs)
    found = compiler(module, tensors)(*tensors)
    try:
        assert_close(found, expected, dtype)
    except AssertionError:
        call = (info.op, args, kwargs)
        if not (
            is_more_exact(found, expected, *call, dtype)
            or picks_other_equals(found, expected, *call)
        ):
            raise
    return True


def assert_close(found: Any, expected: Any, dtype: torch.dtype) -> None:
    """AssertionError unless results have the same values and types."""
    ours, theirs = leaves(found), leaves(expected)
    assert len(ours) == len(theirs), f"{len(ours)} results, eager has {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other, equal_nan=True, **tolerance(dtype))
        else:
            assert one == other or (one != one and other != other), f"{one}, eager has {other}"


def outcome(compiler: Compiler, info: Any, dtype: torch.dtype, count: int, device: str) -> Any:
    """What became of the first `count` samples of an operator: a word, its reason and how many
    samples were compared; None where there is none.
    """
    compared = 0
    for number, sample in enumerate(sample_inputs(info, dtype, count, device)):
        stage = "results"
        try:
            with torch.no_grad():
                if not check_results(compiler, info, sample, dtype):
                    continue
            compared += 1
            stage = "gradients"
            if info.supports_autograd and dtype.is_floating_point:
                unique = sample.output_process_fn_grad
                args = (sample.input, *sample.args)
                check_gradients(compiler, info.op, unique, args, sample.kwargs, dtype)
        except Exception as error:
            words = f"sample {number}, {stage}: {type(error).__name__}: {str(error)[:300]}"
            return status_of(error), words, compared
    return ("right", "", compared) if compared else None


def status_of(error: Exception) -> str:
    """`wrong`, `refused` or `raises`: other errors of a compiler's own are its faults."""
    if isinstance(error, AssertionError):
        return "wrong"
    is_refusal = isinstance(error, REFUSALS) or type(error).__name__ in PEERS_REFUSALS
    return "refused" if is_refusal else "raises"


def gpu_is_lost() -> bool:
    """Whether a fault of an earlier kernel makes every launch fail."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def run(column: str, file: Path, options: argparse.Namespace) -> None:
    """Append the lines that `file` lacks."""
    rows = read(file)
    first, step = map(int, options.part.split("/"))
    wanted = [
        (info, dtype)
        for info in operators(options.names)
        if info.name not in RANDOM
        for dtype in options.dtypes.split(",")
        if getattr(torch, dtype) in info.supported_dtypes(options.device)
    ]
    random.Random(0).shuffle(wanted)  # so that parts take equally long
    for info, dtype in islice(wanted, first - 1, None, step):
        name = name_of(info)
        if (name, dtype) in rows:
            continue
        compiler = COLUMNS[column]
        # The database's wrapper that seeds in a call is nothing that is to be compiled.
        with patch.object(common_methods_invocations, "wrapper_set_seed", unseeded):
            found = outcome(compiler, info, getattr(torch, dtype), options.samples, options.device)
        status, reason, compared = found or ("nothing to compare", "", 0)
        row = {"operator": name, "dtype": dtype, "status": status, "samples": compared}
        with file.open("a") as stream:
            print(json.dumps({**row, "reason": reason.replace("\n", " ")}), file=stream)
        if status in ("wrong", "raises"):
            print(f"{column} {status} {name} {dtype} {reason[:200]}", flush=True)
        if options.device == "cuda" and gpu_is_lost():
            sys.exit(LOST_GPU)


def read(file: Path) -> dict[tuple[str, str], Any]:
    """The lines of a file, by operator and type."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["operator"], row["dtype"]): row for row in rows}


def table(ours: Path, theirs: Path) -> None:
    """Print how many operators are right in each file, of those that both have, by type; and each
    that is right in the second alone, with the reason.
    """
    one, other = read(ours), read(theirs)
    both = [key for key in one if key in other and one[key]["status"] != "nothing to compare"]
    for dtype in sorted({dtype for _, dtype in both}):
        keys = [key for key in both if key[1] == dtype]
        for file, rows in ((ours, one), (theirs, other)):
            print(dtype, file.name, dict(Counter(rows[key]["status"] for key in keys)))
    for key in sorted(both):
        if one[key]["status"] != "right" and other[key]["status"] == "right":
            print(*key, one[key]["status"], one[key]["reason"][:300])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("column", choices=[*COLUMNS, "table"])
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_intermixed_args(arguments)
    if options.column == "table":
        newest = max(Path(__file__).parent.glob(PEERS))
        table(options.results, Path(options.names[0]) if options.names else newest)
    else:
        run(options.column, options.results, options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    main()
