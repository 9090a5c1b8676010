"""Tokens a second that `generate` of transformers decodes, eager and compiled, one row at a time.

    python -m benchmarks.decode [--models NAME ...] [--caches NAME ...] [--dtypes NAME ...]
                                [--prompt N] [--tokens N] [--rounds N] [--processor-time]
                                [--json FILE]

Models have random weights; caches grow by a token (`dynamic`), or have their full size from the
start (`static`). Eager and compiled generations take turns. A token's time is the median of a
generation's tokens behind the first, of the fastest generation. Of that:

    forward    in the compiled forward, guards included; the rest is transformers' loop
    weights    GB/s at which the forward reads the weights that each token needs, and as a share of
               what a sum over a large tensor reads in the same run

With --processor-time all is processor time, of one thread: where other processes hold the cores.

`programs` are all that were compiled; `same` are the tokens up to the first that differs from
eager's: in half types close scores are rounded to either side.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.compare import environment


def gpt2() -> nn.Module:
    """GPT-2 of 124 million parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def llama(layers: int, width: int, hidden: int, heads: int, groups: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        vocab_size=32_000,
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=groups,
    )
    return LlamaForCausalLM(configuration)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2,
    "llama-134m": functools.partial(llama, 12, 768, 2048, 12, 12),
    "llama-1b": functools.partial(llama, 22, 2048, 5632, 32, 4),
    "tiny": functools.partial(llama, 2, 32, 64, 4, 2),
}

SHOWN = ("gpt2", "llama-134m", "llama-1b")


@dataclass(frozen=True, slots=True)
class Generation:
    """One call of `generate`; times are medians over the tokens behind the first, in seconds."""

    tokens: Tensor
    token: float
    forward: float
    """The part of a token's time in the model's forward."""

    whole: float


@dataclass(frozen=True, slots=True)
class Row:
    """One model with one cache and type; times in seconds."""

    model: str
    cache: str
    dtype: str
    eager: float
    """A token."""

    compiled: float
    forward: float
    first: float
    """The first generation, which compiles."""

    programs: int
    weight_bytes: int
    """Read for each token."""

    bandwidth: float
    """Bytes a second that a sum reads."""

    same: int
    tokens: int

    @property
    def speed(self) -> float:
        return self.eager / self.compiled

    @property
    def share(self) -> float:
        """The speed at which the forward reads weights, as a part of a sum's."""
        return self.weight_bytes / self.forward / self.bandwidth


def generation(
    model: Any,
    forward: Callable[..., Any],
    prompt: Tensor,
    tokens: int,
    cache: str,
    now: Callable[[], float],
) -> Generation:
    """Greedy decoding with that forward."""
    moments: list[tuple[float, float]] = []

    @functools.wraps(forward)  # generate looks at the signature
    def timed(*arguments: Any, **keywords: Any) -> Any:
        start = now()
        result = forward(*arguments, **keywords)
        moments.append((start, now()))
        return result

    start = now()
    model.forward = timed
    try:
        result = model.generate(
            prompt,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            cache_implementation=cache,
            disable_compile=True,
        )
    finally:
        del model.forward
    steps = moments[1:]  # the first takes the prompt
    return Generation(
        tokens=result,
        token=median(later[0] - step[0] for step, later in pairwise(steps)),
        forward=median(end - start for start, end in steps),
        whole=now() - start,
    )


def measure(
    name: str,
    cache: str,
    dtype: str,
    prompt: int,
    tokens: int,
    rounds: int,
    now: Callable[[], float] = time.perf_counter,
) -> Row:
    """The row of a model, by the clock `now`."""
    import fusewright

    torch.manual_seed(0)
    model: Any = MODELS[name]().eval().to(getattr(torch, dtype))
    words = torch.randint(0, model.config.vocab_size, (1, prompt))
    eager = model.forward
    compiled = fusewright.compile(eager)
    run = functools.partial(generation, model, prompt=words, tokens=tokens, cache=cache, now=now)
    first = run(compiled)
    forwards = {"eager": eager, "compiled": compiled}
    turns = {column: [run(forward)] for column, forward in forwards.items()}
    for _ in range(rounds - 1):
        for column, forward in forwards.items():
            turns[column].append(run(forward))
    best = {column: min(runs, key=lambda one: one.token) for column, runs in turns.items()}
    differs = (best["eager"].tokens != best["compiled"].tokens)[0, prompt:]
    return Row(
        model=name,
        cache=cache,
        dtype=dtype,
        eager=best["eager"].token,
        compiled=best["compiled"].token,
        forward=best["compiled"].forward,
        first=first.whole,
        programs=len(fusewright.compilations(compiled)),
        weight_bytes=weights_of_a_token(model),
        bandwidth=bandwidth(now),
        same=int(differs.int().argmax()) if differs.any() else tokens,
        tokens=tokens,
    )


def weights_of_a_token(model: nn.Module) -> int:
    """Bytes of the parameters that a forward reads whole: all but embeddings, which it picks rows
    of, unless they are the last layer's weight as well.
    """
    head = model.get_output_embeddings().weight
    picked = [
        module.weight
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.weight is not head
    ]
    return sum(
        parameter.nbytes
        for parameter in model.parameters()
        if not any(parameter is weight for weight in picked)
    )


@functools.cache
def bandwidth(now: Callable[[], float]) -> float:
    """Bytes a second that a sum over 256 MiB reads, the best of ten."""
    tensor = torch.ones(1 << 26)
    times = []
    for _ in range(10):
        start = now()
        tensor.sum()
        times.append(now() - start)
    return tensor.nbytes / min(times)


def table(rows: Sequence[Row]) -> Table:
    """The rows as people read them."""
    shown = Table("model", "cache", "type", title="one-token decode")
    for heading in (
        "eager",
        "compiled",
        "speed",
        "a token",
        "forward",
        "weights",
        "programs",
        "first",
        "same",
    ):
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(
            row.model,
            row.cache,
            row.dtype,
            f"{1 / row.eager:.1f}/s",
            f"{1 / row.compiled:.1f}/s",
            f"{row.speed:.2f}x",
            f"{row.compiled * 1e3:.2f} ms",
            f"{row.forward * 1e3:.2f} ms",
            f"{row.weight_bytes / row.forward / 1e9:.1f} GB/s, {row.share:.2f}",
            str(row.programs),
            f"{row.first:.1f} s",
            f"{row.same} of {row.tokens}",
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=MODELS, default=SHOWN)
    parser.add_argument("--caches", nargs="+", default=["dynamic", "static"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a generation")
    parser.add_argument("--rounds", type=int, default=3, help="generations of each column")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    now = time.process_time if options.processor_time else time.perf_counter
    if options.processor_time:
        torch.set_num_threads(1)
    rows = [
        measure(model, cache, dtype, options.prompt, options.tokens, options.rounds, now)
        for model in options.models
        for dtype in options.dtypes
        for cache in options.caches
    ]
    Console(width=150).print(table(rows))
    if options.json:
        kept = {"environment": environment(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
