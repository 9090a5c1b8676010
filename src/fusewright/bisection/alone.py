"""Programs that show a fault by themselves: how they are written, and what they call."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import fx

from fusewright.bisection.graph_text import FUNCTION, function_text, tensor, tensor_text
from fusewright.bisection.kernels import KernelDiffers, check_launch
from fusewright.bisection.search import GraphCheck, Trouble, build_of
from fusewright.bisection.stages import OPTIONS
from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule, ScheduledStep
from fusewright.ir.parse import parse_group
from fusewright.ir.program import Program
from fusewright.ir.reference import Evaluation
from fusewright.ir.reference_groups import prepare_writes
from fusewright.ir.text import print_group
from fusewright.kernels import define_kernels
from fusewright.pipeline import compile_graph

__all__ = ["show_graph", "show_kernel", "tensor", "write_graph", "write_kernel"]

SEED: Final = 0

SLOWER: Final = "slower than "
"""Begins what stands for a stage where compiling takes too long."""

GRAPH: Final = '''"""{title}

Written by fusewright; it needs torch and fusewright alone. The exit status is 1 while the fault is
there.
"""

{imports}
from fusewright.bisection.alone import show_graph, tensor


{function}


INPUTS = [
{inputs}
]

if __name__ == "__main__":
    raise SystemExit(show_graph({name}, INPUTS, stage={stage!r}))
'''

KERNEL: Final = '''"""{title}

Written by fusewright; it needs torch and fusewright alone. The exit status is 1 while the fault is
there.
"""

import torch

from fusewright.bisection.alone import show_kernel, tensor

LOOPS = r"""
{loops}"""

INPUTS = {{
{inputs}
}}

if __name__ == "__main__":
    raise SystemExit(show_kernel(LOOPS, INPUTS, sizes={sizes!r}))
'''


def show_graph(program: Callable[..., Any], inputs: Sequence[Any], *, stage: str) -> int:
    """Run a function of torch calls eagerly and as far as a stage of the compiler, print what
    differs, and give 1 where something does.
    """
    graph = fx.symbolic_trace(program)
    if stage.startswith(SLOWER):
        seconds, limit = compile_seconds(graph, inputs), float(stage.split()[2])
        print(f"compiling takes {seconds:.2f} s")
        return int(seconds > limit)
    trouble = GraphCheck.of(graph, inputs).trouble(stage, build_of(stage))
    print(described(trouble) if trouble else f"stage {stage} does what eager does")
    return int(trouble is not None)


def show_kernel(loops: str, inputs: Mapping[str, torch.Tensor], *, sizes: Mapping[str, Any]) -> int:
    """Compile the kernel of a group of loops, run it beside the loops in double precision, print
    what differs, and give 1 where something does.
    """
    trouble = kernel_trouble(parse_group(loops), inputs, sizes)
    print(trouble if trouble else "the kernel computes what its loops say")
    return int(trouble is not None)


def compile_seconds(graph: fx.GraphModule, inputs: Sequence[Any]) -> float:
    """The time that compiling a graph takes. Raises the exceptions of the compile."""
    began = time.perf_counter()
    options = dataclasses.replace(OPTIONS, verify=False)
    compile_graph(graph, inputs, CompileContext(options=options))
    return time.perf_counter() - began


def kernel_trouble(
    group: Group, inputs: Mapping[str, torch.Tensor], sizes: Mapping[str, Any]
) -> KernelDiffers | None:
    """The trouble with the kernel of a group, given the contents that the group reads, by
    buffer.
    """
    device = next((value.device for value in inputs.values()), torch.device("cpu"))
    evaluation = Evaluation(dict(sizes), False, device)
    for buffer in group.reads:
        if buffer.name in inputs:
            evaluation.adopt(buffer, inputs[buffer.name].clone())
    program = Program(name="alone", inputs=(), statements=(), outputs=())
    schedule = Schedule(program=program, steps=(ScheduledStep(work=group),))
    prepare_writes(group, evaluation)
    kernels = define_kernels(schedule, CompileContext(options=OPTIONS))
    try:
        check_launch(kernels.definitions[0], kernels.launch(0), group, evaluation, {})
    except KernelDiffers as error:
        return error
    return None


def described(trouble: Trouble) -> str:
    """The trouble with it, in a line or two."""
    if trouble.differs is None:
        return f"stage {trouble.stage} raises {type(trouble.error).__name__}: {trouble.error}"
    differs = trouble.differs
    count = f" in {differs.wrong:,} of {differs.elements:,} elements" if differs.wrong else ""
    return (
        f"stage {trouble.stage}: {trouble.what} differs ({differs.kind}){count}; {differs.detail}"
    )


# Writing ------------------------------------------------------------------------------------------


def write_graph(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    stage: str,
    title: str,
    folder: Path,
    shows: Callable[[Sequence[Any]], bool],
) -> Path:
    """Write the program that runs a graph as far as a stage. `shows`: whether other inputs do as
    well, so that none need be kept. CannotBeWritten: it cannot stand alone.
    """
    imports, function = function_text(graph)
    texts = _input_texts(inputs, shows)
    text = GRAPH.format(
        title=_title(title),
        imports=imports,
        function=function,
        name=FUNCTION,
        inputs="\n".join(_indented(f"{expression},") for expression in texts),
        stage=stage,
    )
    return _written("graph", text, folder)


def write_kernel(error: KernelDiffers, title: str, folder: Path) -> Path:
    """Write the program that runs one kernel."""
    loops = print_group(error.group)
    used = dict(error.inputs)

    def shows(values: Sequence[Any]) -> bool:
        inputs = dict(zip(used, values, strict=True))
        return kernel_trouble(parse_group(loops), inputs, error.sizes) is not None

    texts = _input_texts(list(used.values()), shows)
    rows = [f"{name!r}: {text}," for name, text in zip(used, texts, strict=True)]
    text = KERNEL.format(
        title=_title(title),
        loops=loops,
        inputs="\n".join(map(_indented, rows)),
        sizes=error.sizes,
    )
    return _written(error.kernel, text, folder)


def _input_texts(inputs: Sequence[Any], shows: Callable[[Sequence[Any]], bool]) -> list[str]:
    """Expressions for inputs: drawn anew, where such show the fault, else as they are."""
    drawn = [tensor_text(value, seed=SEED + place) for place, value in enumerate(inputs)]
    names = {"tensor": tensor, "torch": torch}
    try:
        if shows([eval(text, dict(names)) for text in drawn]):
            return drawn
    except Exception:  # Numbers of another kind may be refused.
        pass
    return [tensor_text(value) for value in inputs]


def _title(title: str) -> str:
    return title.replace("\\", "/").replace('"""', "'''")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _written(kind: str, text: str, folder: Path) -> Path:
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"bisect_{kind.rsplit('_', 1)[-1]}_{digest}.py"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
