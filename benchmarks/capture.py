"""Capture and guards beside torch.compile's, with the backend left out on both sides.

    python -m benchmarks.capture [--models NAME …] [--rounds N]

Three figures, each with a bar; the exit status is 1 when one is missed.

1. Seconds to capture a model as one graph, at most a quarter of torch.compile's. The backend of
   both sides runs the graph once and returns a function that gives that result again, so that
   nothing of a call but the front end is left; the time inside the backend is taken off. Every
   round starts from nothing (`reset`), a small capture before the first pays for imports, and the
   sides take turns; the least of the rounds counts.

2. Microseconds of a guard check, at most half of torch.compile's, for a function of two tensors and
   for BERT with 12 layers. Both sides' checks are called from Python, as their own reports of
   guards do, in turns, on the arguments of a call that they accept, given as a dictionary:
   torch.compile's `RootGuardManager.check`, fusewright's `GuardProgram.check`. What an empty set of
   guards takes on the same side is taken off, and with it the way from Python to C++. As a cross
   check a second pair is printed, without a bar: the time of a whole call, guards and the call of
   the stored result, which is what a user waits for.

3. Nanoseconds that the frame hook adds to the call of a Python function that is not compiled, while
   it is installed: under 60.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._C._dynamo import eval_frame
from torch._C._dynamo.guards import RootGuardManager

import fusewright
from benchmarks.models import MODELS, Inputs, build, token_ids
from fusewright.compiled import compiler_of
from fusewright.native import FrameCompiler, GuardProgram

CAPTURE_BAR = 1 / 4
GUARD_BAR = 1 / 2
FRAME_BAR = 60.0
"""Nanoseconds."""

DEEP_BERT = "BERT, 12 layers"
SAMPLES = 200
SAMPLE_SECONDS = 0.001

Call = Callable[[], Any]
Arguments = dict[str, Any]


def deep_bert() -> tuple[nn.Module, Inputs]:
    """BERT as published, but narrow: what is measured does not depend on the sizes of tensors."""
    from transformers import BertConfig, BertModel

    configuration = BertConfig(
        num_hidden_layers=12, hidden_size=96, intermediate_size=192, vocab_size=1000
    )
    module = BertModel(configuration).eval()
    return module, {"input_ids": token_ids(configuration.vocab_size)}


def build_any(name: str) -> tuple[nn.Module, Inputs]:
    """A model and its inputs."""
    torch.manual_seed(0)
    return deep_bert() if name == DEEP_BERT else build(name)


def add_and_scale(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The function of two tensors."""
    return left * right + 1


def run_bert(module: nn.Module, input_ids: torch.Tensor) -> Any:
    """A plain function around the model, whose arguments are what both sides' guards read."""
    return module(input_ids).last_hidden_state


class StoringBackend:
    """Runs each graph once, when it is compiled, and gives that result at every call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.graphs = 0

    def __call__(
        self, graph_module: fx.GraphModule, inputs: Sequence[torch.Tensor]
    ) -> Callable[..., Any]:
        start = time.perf_counter()
        result = graph_module.forward(*inputs)
        self.graphs += 1
        self.seconds += time.perf_counter() - start
        return lambda *_: result


def compile_ours(target: Any, backend: StoringBackend) -> Any:
    return fusewright.compile(target, backend=backend, fullgraph=True)


def compile_theirs(target: Any, backend: StoringBackend) -> Any:
    return torch.compile(target, backend=backend, fullgraph=True)


def reset() -> None:
    """Forget what either side compiled."""
    fusewright.reset()
    torch.compiler.reset()


def warm_up() -> None:
    """One small capture on each side, which pays for imports."""
    for make in (compile_ours, compile_theirs):
        make(add_and_scale, StoringBackend())(torch.ones(2), torch.ones(2))


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured pair, or one measured figure against a bar of its own."""

    name: str
    ours: float
    theirs: float | None
    bar: float | None
    """The most that `ours` may be, or the most of `ours / theirs`; None: no bar."""

    unit: str

    @property
    def missed(self) -> bool:
        """Whether the bar is missed."""
        return self.bar is not None and self.measured > self.bar

    @property
    def measured(self) -> float:
        """What the bar is for."""
        return self.ours if self.theirs is None else self.ours / self.theirs

    def __str__(self) -> str:
        text = f"{self.name:34} {self.ours:9.3f} {self.unit}"
        if self.theirs is not None:
            text += f"  torch.compile {self.theirs:9.3f} {self.unit}  ratio {self.measured:.3f}"
        if self.bar is not None:
            text += f"  bar {self.bar:g}  {'MISSED' if self.missed else 'ok'}"
        return text


# -- capture ---------------------------------------------------------------------------------------


def capture_seconds(compile_: Callable[[Any, StoringBackend], Any], name: str) -> float:
    """The first call of a model, without its backend."""
    module, inputs = build_any(name)
    backend = StoringBackend()
    start = time.perf_counter()
    compile_(module, backend)(**inputs)
    seconds = time.perf_counter() - start - backend.seconds
    if backend.graphs != 1:
        raise RuntimeError(f"{name} became {backend.graphs} graphs")
    return seconds


def measure_capture(name: str, rounds: int) -> Figure:
    times: dict[Any, list[float]] = {compile_ours: [], compile_theirs: []}
    for _ in range(rounds):
        for compile_, seconds in times.items():
            reset()
            seconds.append(capture_seconds(compile_, name))
    ours, theirs = min(times[compile_ours]), min(times[compile_theirs])
    return Figure(f"capture, {name}", 1e3 * ours, 1e3 * theirs, CAPTURE_BAR, "ms")


# -- guards ----------------------------------------------------------------------------------------


def least_seconds(calls: dict[str, Call]) -> dict[str, float]:
    """The least seconds a call by name, of samples taken in turns."""
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(SAMPLE_SECONDS / (time.perf_counter() - start)))
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(SAMPLES):
        for name, call in calls.items():
            numbers = range(repeats[name])
            start = time.perf_counter()
            for _ in numbers:
                call()
            least[name] = min(least[name], (time.perf_counter() - start) / repeats[name])
    return least


def our_check(function: types.FunctionType, compiled: Any, arguments: Arguments) -> Call:
    """A check of the guards of the one entry that was compiled."""
    (entry,) = compiler_of(compiled).frames.entries(function.__code__)
    if entry.guards is None or not entry.guards.check(arguments, function):
        raise RuntimeError("fusewright's guards do not hold for the call that they come from")
    return functools.partial(entry.guards.check, arguments, function)


def their_check(function: types.FunctionType, arguments: Arguments) -> Call:
    """The same of torch.compile."""
    (entry,) = eval_frame._debug_get_cache_entry_list(function.__code__)
    check = entry.guard_manager.root.check
    if not check(arguments):
        raise RuntimeError("torch.compile's guards do not hold for the call that they come from")
    return functools.partial(check, arguments)


def measure_guards(name: str, function: Any, arguments: Arguments) -> Iterator[Figure]:
    """The check alone, and the whole call."""
    reset()
    ours, theirs = (make(function, StoringBackend()) for make in (compile_ours, compile_theirs))
    ours(**arguments)
    theirs(**arguments)
    least = least_seconds(
        {
            "ours": our_check(function, ours, arguments),
            "theirs": their_check(function, arguments),
            "ours, empty": functools.partial(GuardProgram((), ()).check, arguments, function),
            "theirs, empty": functools.partial(RootGuardManager().check, arguments),
            "our call": functools.partial(ours, **arguments),
            "their call": functools.partial(theirs, **arguments),
        }
    )
    check = least["ours"] - least["ours, empty"], least["theirs"] - least["theirs, empty"]
    call = least["our call"], least["their call"]
    yield Figure(f"guards, {name}", 1e6 * check[0], 1e6 * check[1], GUARD_BAR, "µs")
    yield Figure(f"whole call, {name}", 1e6 * call[0], 1e6 * call[1], None, "µs")


# -- frames that are not ours ----------------------------------------------------------------------

LOOP = 20_000


def left_alone(number: int) -> int:
    """What is called."""
    return number


def loop(function: Callable[[int], int]) -> float:
    """Seconds of a call in a loop that runs as it is."""
    start = time.perf_counter()
    for number in range(LOOP):
        function(number)
    return (time.perf_counter() - start) / LOOP


def measure_frame() -> Figure:
    hooked = FrameCompiler(lambda frame: None)
    samples = [(hooked.call(loop, (left_alone,), None), loop(left_alone)) for _ in range(SAMPLES)]
    added = min(first for first, _ in samples) - min(second for _, second in samples)
    return Figure("a frame that is not ours", 1e9 * added, None, FRAME_BAR, "ns")


def figures(models: Sequence[str], rounds: int) -> Iterator[Figure]:
    """Everything, one by one."""
    warm_up()
    yield measure_frame()
    tensors = {"left": torch.ones(4), "right": torch.ones(4)}
    yield from measure_guards("two tensors", add_and_scale, tensors)
    module, inputs = deep_bert()
    yield from measure_guards(DEEP_BERT, run_bert, {"module": module, **inputs})
    for name in models:
        yield measure_capture(name, rounds)


def main() -> int:
    """Measure, print, and say with the exit status whether every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [DEEP_BERT, *MODELS]
    parser.add_argument("--models", nargs="*", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    missed = 0
    with torch.no_grad():
        for figure in figures(options.models, options.rounds):
            print(figure, flush=True)
            missed += figure.missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
