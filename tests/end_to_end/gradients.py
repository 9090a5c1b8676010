"""Gradients of every differentiable operator of torch's sample database, compared with eager's.

    python -m tests.end_to_end.gradients aot_eager [--samples N] [NAME ...]
    python -m tests.end_to_end.gradients fusewright     compiled to machine code
    python -m tests.end_to_end.gradients peer           under torch.compile(backend="aot_eager")
    python -m tests.end_to_end.gradient_table           writes docs/operator-gradients.md from all

Each operator runs in a process of its own, and is one line of a file of results. A run that was
stopped goes on where it was; operators that are named are run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import multiprocessing
import re
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db

import fusewright
from fusewright.backends.aot_eager import aot_eager
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import Unsupported
from fusewright.pipeline import compile_graph
from tests.lower.support import graph_of, leaves
from tests.operators.samples import name_of

DTYPES = (torch.float32, torch.float64, torch.complex64)
TOLERANCE = {
    torch.float32: {"rtol": 1e-3, "atol": 1e-4},
    torch.float64: {"rtol": 1e-7, "atol": 1e-8},
    torch.complex64: {"rtol": 1e-3, "atol": 1e-4},
}
TIME_LIMIT = 300.0
"""Seconds for one operator."""

OURS = "build/operator_gradients_{sweep}.jsonl"
PEERS = Path(__file__).parent
PEER_NAME = "torch_compile_gradients_{date}.jsonl"

Backend = Callable[[fx.GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]
Line = dict[str, Any]
"""Results of one operator: its name, and by way and dtype what became of its samples."""


def one_graph(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The module captured as one graph, and differentiated ahead of time."""
    return fusewright.compile(module, backend="aot_eager", fullgraph=True)


def with_breaks(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The same, where parts may run eagerly."""
    return fusewright.compile(module, backend="aot_eager")


def compiled_whole(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The whole compiler, to machine code."""
    options = Options(verify=True, strict=True)
    compiled = compile_graph(module, inputs, CompileContext(options))
    return lambda *tensors: compiled(*tensors)


def peer(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """torch.compile as far as its own ahead-of-time autograd, in one graph."""
    torch._dynamo.reset()
    return torch.compile(module, backend="aot_eager", fullgraph=True)


def peer_with_breaks(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The same, where parts may run eagerly."""
    torch._dynamo.reset()
    return torch.compile(module, backend="aot_eager")


SWEEPS: dict[str, dict[str, Backend]] = {
    "aot_eager": {
        "aot_eager": aot_eager,
        "one_graph": one_graph,
        "aot_eager_with_breaks": with_breaks,
    },
    "fusewright": {"fusewright": compiled_whole},
    "peer": {"peer": peer, "peer_with_breaks": peer_with_breaks},
}
"""By sweep: the ways in which it runs each sample."""

NARROWER = {
    "one_graph": "aot_eager",
    "aot_eager_with_breaks": "one_graph",
    "peer_with_breaks": "peer",
}
"""By way: the one that gives the same wherever it succeeds, so that this one is not tried there."""


def passes(outcomes: Line, way: str) -> bool:
    """Whether samples pass in a way, or in one that gives the same."""
    narrower = NARROWER.get(way)
    passed: bool = outcomes.get(way, [""])[0] == "passes"
    return passed or (narrower is not None and passes(outcomes, narrower))


def differentiable() -> list[Any]:
    """Operators of the database that eager differentiates in some dtype of `DTYPES`."""
    return [info for info in op_db if info.supports_autograd and dtypes_of(info)]


def dtypes_of(info: Any) -> list[torch.dtype]:
    supported = info.supported_backward_dtypes("cpu")
    return [dtype for dtype in DTYPES if dtype in supported]


def cases(
    info: Any, dtype: torch.dtype, count: int
) -> list[tuple[fx.GraphModule, list[torch.Tensor]]]:
    """`count` of the operator's samples, from all over its list, each as a graph and its inputs."""
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=True))
    chosen = samples[:: max(1, -(-len(samples) // count))]
    return [_case(info.op, sample) for sample in chosen]


def _case(operator: Callable[..., Any], sample: Any) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    unique = sample.output_process_fn_grad  # of an SVD, say, what its gradient is defined for
    options = {name: value for name, value in sample.kwargs.items() if not is_writable(value)}
    keywords = {name: value for name, value in sample.kwargs.items() if name not in options}

    def function(*args: Any, **kwargs: Any) -> Any:
        return unique(operator(*args, **kwargs, **options))

    module, tensors = graph_of(function, (sample.input, *sample.args), keywords)
    return module, [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]


def is_writable(value: Any) -> bool:
    """Whether the text of a graph can hold `value`."""
    return value is None or isinstance(value, (*fx.node.base_types, list, tuple, slice))


def outputs_and_gradients(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> tuple[list[Any], tuple[torch.Tensor | None, ...]]:
    """Results of a call, and the gradients of the inputs for some random gradient of the results.
    RuntimeError: no result has a gradient.
    """
    torch.manual_seed(1)
    outputs = leaves(function(*inputs))
    tracked = [value for value in outputs if _is_tracked(value)]
    torch.manual_seed(2)
    tangents = [
        torch.randn_like(value) if value.layout == torch.strided else value.detach().clone()
        for value in tracked
    ]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    return outputs, torch.autograd.grad(tracked, wanted, tangents, allow_unused=True)


def _is_tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def compare(found: Any, wanted: Any, tolerance: dict[str, float]) -> None:
    """AssertionError unless results, what of them has a history, and gradients are eager's."""
    (outputs, gradients), (eager_outputs, eager_gradients) = found, wanted
    assert len(outputs) == len(eager_outputs), "another number of results"
    for a, b in zip(outputs, eager_outputs, strict=True):
        assert _is_tracked(a) == _is_tracked(b), "requires_grad of a result"
        assert isinstance(b, torch.Tensor) or a == b, f"{a!r} is not {b!r}"
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
    for a, b in zip(gradients, eager_gradients, strict=True):
        assert (a is None) == (b is None), "a gradient is missing, or one too many"
        if b is not None:
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)


def try_operator(info: Any, dtype: torch.dtype, count: int, ways: dict[str, Backend]) -> Line:
    """By way, a status and the reason of the first failure; `passes` where all samples do."""
    outcomes: Line = {}
    for number, (module, inputs) in enumerate(cases(info, dtype, count)):
        with patch.object(common_methods_invocations, "wrapper_set_seed", unseeded):
            try:
                wanted = outputs_and_gradients(module, inputs)
            except Exception:  # a sample without a gradient, or one that eager itself refuses
                continue
            for way, backend in ways.items():
                covered = way in NARROWER and passes(outcomes, NARROWER[way])
                if not covered and outcomes.get(way, ["passes"])[0] == "passes":
                    status, reason = try_sample(backend, module, inputs, wanted, TOLERANCE[dtype])
                    outcomes[way] = [status, f"sample {number}: {reason}" if reason else ""]
    return outcomes


def unseeded(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Stands in for the wrapper by which the database seeds inside of a call, and not around it."""
    return operator(*args, **kwargs)


def try_sample(
    backend: Backend,
    module: fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    wanted: Any,
    tolerance: dict[str, float],
) -> tuple[str, str]:
    """A status, and a reason unless that is `passes`."""
    try:
        compare(outputs_and_gradients(backend(module, inputs), inputs), wanted, tolerance)
    except Unsupported as error:
        return "refused", _words(error)
    except AssertionError as error:
        return "differs", _words(error)
    except Exception as error:
        return "raises", f"{type(error).__name__}: {_words(error)}"
    return "passes", ""


def _words(error: Exception) -> str:
    """What an error says, in one line, without addresses."""
    return re.sub(r"0x[0-9a-f]+|\s+", " ", str(error)).strip()[:300]


def run_operator(info: Any, count: int, ways: dict[str, Backend], results: Connection) -> None:
    """Send the line of one operator."""
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    line: Line = {"operator": name_of(info)}
    for dtype in dtypes_of(info):
        line[str(dtype).removeprefix("torch.")] = try_operator(info, dtype, count, ways)
    results.send(line)


def run_apart(info: Any, count: int, ways: dict[str, Backend]) -> Line:
    """The line of one operator, from a process that may crash or hang."""
    processes = multiprocessing.get_context("fork")
    ours, theirs = processes.Pipe(duplex=False)
    worker = processes.Process(target=run_operator, args=(info, count, ways, theirs))
    worker.start()
    theirs.close()
    try:
        if ours.poll(TIME_LIMIT):
            return ours.recv()  # type: ignore[no-any-return]
        reason = f"no result after {TIME_LIMIT:.0f} s"
    except EOFError:
        worker.join()
        reason = f"exit code {worker.exitcode}"
    finally:
        worker.kill()
        worker.join()
    outcome = {way: ["crashes", reason] for way in ways}
    dtypes = (str(dtype).removeprefix("torch.") for dtype in dtypes_of(info))
    return {"operator": name_of(info), **dict.fromkeys(dtypes, outcome)}


def sweep(file: Path, names: Sequence[str], count: int, ways: dict[str, Backend]) -> None:
    """Append to `file` the lines of the operators that it lacks, or of those named."""
    known = {line["operator"] for line in read(file)} if file.exists() else set()
    if not known:
        file.parent.mkdir(exist_ok=True)
        header = {"torch": torch.__version__, "date": str(datetime.date.today()), "samples": count}
        file.write_text(json.dumps(header) + "\n")
    try_operator(next(info for info in op_db if info.name == "sin"), torch.float32, 1, ways)
    # Whatever that imported need not be imported again by the process of each operator.
    for info in differentiable():
        name = name_of(info)
        if (name not in names and info.name not in names) if names else name in known:
            continue
        line = run_apart(info, count, ways)
        with file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        for dtype, outcomes in list(line.items())[1:]:
            for way, (status, reason) in outcomes.items():
                if status != "passes" or names:
                    print(f"{name} {dtype} {way} {status} {reason}", flush=True)


def read(file: Path) -> list[Line]:
    """The lines of a file of results, the last one of each operator."""
    lines = map(json.loads, file.read_text().splitlines()[1:])
    return list({line["operator"]: line for line in lines}.values())


def results_file(sweep: str) -> Path:
    """Where the results of a sweep are kept; torch.compile's in the newest file of theirs."""
    if sweep != "peer":
        return Path(OURS.format(sweep=sweep))
    today = PEERS / PEER_NAME.format(date=datetime.date.today())
    return max(PEERS.glob(PEER_NAME.format(date="*")), default=today)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", choices=list(SWEEPS))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=4)
    given = parser.parse_intermixed_args()
    sweep(results_file(given.sweep), given.names, given.samples, SWEEPS[given.sweep])


if __name__ == "__main__":
    main()
