"""Writes programs as they are on a GPU, as text, to `tests/gpu/traced`: those of models, of the
patterns that `benchmarks.patterns` measures, and of the operators of torch's sample database,
forward and backward.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.trace [--models] [--patterns] [--samples]

`tests.gpu.traced_programs` compiles them without torch's part of the work, and without this device.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx, nn

import fusewright
from benchmarks.gpu_models import WithLoss
from benchmarks.models import Inputs, Perceptron
from benchmarks.patterns import DTYPES, PATTERNS, ROWS
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError
from fusewright.fake import FakeMode
from fusewright.ir.program import CallSubprogram, Program
from fusewright.ir.text import print_program
from fusewright.lower import lower
from fusewright.records import replace
from tests.gpu.pretended.graphs import GPU, Compiled, moved, pretend, traced
from tests.gpu.traced_programs import FILES, code_of
from tests.lower.support import graph_of
from tests.operators.samples import database, name_of, samples

BATCH, LENGTH = 8, 256
FLASH, MATHEMATICAL = "1", "0"
"""Torch's numbers of kinds of attention."""

Built = tuple[nn.Module, Inputs]


# -- models ----------------------------------------------------------------------------------------


def perceptron() -> Built:
    model = Perceptron(width=1024, hidden=4096, depth=1)
    return model, {"features": torch.empty(BATCH * LENGTH, 1024)}


def resnet() -> Built:
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(depths=[1, 1, 1, 1]))
    return model, {"pixel_values": torch.empty(32, 3, 224, 224)}


def vit() -> Built:
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(num_hidden_layers=1), add_pooling_layer=False)
    return model, {"pixel_values": torch.empty(32, 3, 224, 224)}


def convnext() -> Built:
    from transformers import ConvNextConfig, ConvNextModel

    model = ConvNextModel(ConvNextConfig(depths=[1, 1, 1, 1]))
    return model, {"pixel_values": torch.empty(32, 3, 224, 224)}


def _ids(*keys: str) -> Inputs:
    return {key: torch.zeros(BATCH, LENGTH, dtype=torch.int64) for key in keys}


def bert() -> Built:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=1), add_pooling_layer=False), _ids("input_ids")


def gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=1, use_cache=False)), _ids("input_ids")


def t5() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    configuration = T5Config(num_layers=1, use_cache=False, decoder_start_token_id=0)
    inputs = _ids("input_ids", "decoder_input_ids")
    return T5ForConditionalGeneration(configuration), inputs


def llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        num_hidden_layers=1,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        use_cache=False,
    )
    return LlamaForCausalLM(configuration), _ids("input_ids")


MODELS: dict[str, Callable[[], Built]] = {
    build.__name__: build for build in (perceptron, resnet, vit, convnext, bert, gpt2, t5, llama)
}
"""The models of the benchmark on a GPU, as wide as there and with as many inputs, of one
layer.
"""


def programs_of_models() -> Iterator[Program]:
    """For inference in bfloat16, and for training under autocast to bfloat16, with dropout."""
    for name, build in MODELS.items():
        module, inputs = build()
        half = {
            key: value.to(torch.bfloat16) if value.is_floating_point() else value
            for key, value in inputs.items()
        }
        with torch.no_grad():
            yield from programs_of_call(module.to(torch.bfloat16).eval(), half, name)
        module = WithLoss(module.float()).train()
        yield from programs_of_call(module, inputs, name, autocast=True)


def programs_of_call(
    module: nn.Module, inputs: Inputs, name: str, *, autocast: bool = False
) -> Iterator[Program]:
    """The programs of the one graph that a call of the module is captured as."""
    programs: list[Program] = []

    def backend(graph: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        mode = FakeMode()
        fakes = [moved(example, mode) for example in examples]
        with torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext():
            programs.extend(programs_of(graph, fakes, name))
        raise Compiled

    try:
        fusewright.compile(module, backend=backend, fullgraph=True)(**inputs)
    except Compiled:
        yield from programs


# -- patterns --------------------------------------------------------------------------------------


def programs_of_patterns() -> Iterator[Program]:
    """Those of each pattern without gradients, then with them, as large as they are measured."""
    for name, pattern in PATTERNS.items():
        with torch.device("meta"):
            arguments = pattern.make(ROWS["cuda"])
        module, tensors = graph_of(pattern.function, arguments, {})
        for trains in (False, True) if pattern.has_gradient else (False,):
            mode = FakeMode()
            inputs = [moved(as_measured(tensor, trains=trains), mode, GPU) for tensor in tensors]
            yield from programs_of(module, inputs, name)


def as_measured(tensor: torch.Tensor, *, trains: bool) -> torch.Tensor:
    """An input of a pattern in the type in which it is measured on a GPU."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.to(DTYPES["cuda"]).requires_grad_(trains)


# -- operators -------------------------------------------------------------------------------------

SAMPLE_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

REFUSALS = (FusewrightError, RuntimeError)


def programs_of_samples() -> Iterator[Program]:
    """Those of the first sample of each operator, forward and with gradients: in single precision
    and bfloat16, else as integers, else as truth values.
    """
    for info in database():
        if info.name.startswith("jiterator"):  # functions in C++
            continue
        types = [dtype for dtype in SAMPLE_DTYPES if dtype in info.dtypes]
        for dtype in types[: 1 + (torch.bfloat16 in types)]:
            for arguments, keywords in samples(info, dtype, 1):
                yield from programs_of_sample(info, dtype, arguments, keywords)


def programs_of_sample(
    info: Any, dtype: torch.dtype, arguments: Any, keywords: Any
) -> Iterator[Program]:
    """The programs of one sample; what is refused is printed."""
    name = re.sub(r"\W+", "_", name_of(info))
    for trains in (False, True) if dtype.is_floating_point and info.supports_autograd else (False,):
        module, tensors = graph_of(info.op, arguments, keywords)
        if any(tensor.layout is not torch.strided for tensor in tensors):
            continue
        mode = FakeMode()
        inputs = [
            moved(tensor.detach(), mode, GPU).requires_grad_(trains and tensor.is_floating_point())
            for tensor in tensors
        ]
        try:
            yield from programs_of(module, inputs, name)
        except REFUSALS as error:
            print(f"{name} {dtype} {trains}: {type(error).__name__}: {str(error)[:150]!r}")


# -- programs --------------------------------------------------------------------------------------


def programs_of(module: fx.GraphModule, examples: Sequence[Any], name: str) -> Iterator[Program]:
    """The program of a graph of fakes on the GPU, or those of both halves."""
    context = CompileContext(options=Options(verify=True))
    for half, graph in traced(module, examples, context).items():
        program = lower(graph, context.again(), layouts_are_free=not half)
        yield named(program, f"{name}_{half}" if half else name)


def named(program: Program, name: str) -> Program:
    return replace(program, name=name)


def texts(programs: Iterator[Program]) -> Iterator[str]:
    """Texts of the programs that have a kernel which no program before has. A number is added to
    names that are not the first.
    """
    known: set[str] = set()
    names: Counter[str] = Counter()
    for program in programs:
        if any(isinstance(statement, CallSubprogram) for statement in program.statements):
            continue
        kernels = {kernel.key for kernel in code_of(program)[1].definitions}
        if kernels <= known:
            continue
        known |= kernels
        names[program.name] += 1
        number = names[program.name]
        yield print_program(
            named(program, f"{program.name}_{number}" if number > 1 else program.name)
        )


CORPORA = {
    "models": programs_of_models,
    "patterns": programs_of_patterns,
    "samples": programs_of_samples,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for corpus in CORPORA:
        parser.add_argument(f"--{corpus}", dest="corpora", action="append_const", const=corpus)
    options = parser.parse_args()
    pretend()
    warnings.simplefilter("ignore")
    for corpus in options.corpora or CORPORA:
        os.environ["PRETENDED_ATTENTION"] = MATHEMATICAL if corpus == "samples" else FLASH
        FILES[corpus].write_text("\n".join(texts(CORPORA[corpus]())))
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
