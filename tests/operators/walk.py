"""Each operator of torch's sample database through all stages of the compiler, beside eager.

    python -m tests.operators.walk [--samples N] [--dtypes float32,int64] [--resume FILE]
        [--stages "machine code,reference"] [--triton | --device cuda] [--part K/N] [NAME ...]

A sample goes through fakes (as it is, in other layouts, with symbolic sizes), its decomposition,
the reference of its program, and machine code, for its sizes and for any, and with its gradients.
The first stage that differs from eager is named. Prints one row an operator and type that fails or
is refused, and the totals; with names, a row for each. `--part K/N` takes every N-th operator, from
the K-th on, so that several processes share the work. `--resume FILE` keeps a line for each
operator and type that is done, and leaves out those that have one. With `--triton` and
`TRITON_INTERPRET=1` in the environment kernels are Triton's, which its interpreter runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from fusewright.aot import interpreter, with_results
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import DataDependent, Unsupported, UnsupportedOperator
from fusewright.ir.sizes import size_symbol
from fusewright.kernels import KernelLanguage
from fusewright.lower.rules import words
from fusewright.pipeline import compile_graph
from fusewright.symbolic.facts import ShapeFacts
from tests.lower.support import Lowered, assert_same, graph_of, leaves, lowered
from tests.operators.geometry import (
    SymbolicCall,
    fake_geometries,
    geometries,
    in_double,
    laid_out_anew,
    without_single_elements,
)
from tests.operators.gradient_stage import check_gradients
from tests.operators.samples import RANDOM, compare, name_of, sample_inputs
from tests.symbolic_inputs import SymbolicInputs

DRAWS = 5
"""How many other sizes a call on symbolic ones is tried with."""

NEVER_STAY = frozenset(
    {
        torch.ops.aten.split.Tensor,
        torch.ops.aten.unbind.int,
        torch.ops.aten.log_sigmoid_forward.default,
    }
)
"""Operators that every graph is without."""


@dataclass(frozen=True)
class Setting:
    """Where samples run, and what their kernels are written in."""

    device: str = "cpu"
    language: KernelLanguage | None = None


@dataclass
class Sample:
    """One call of an operator, with what eager gives."""

    info: Any
    dtype: torch.dtype
    number: int
    setting: Setting
    outcome: Outcome
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: Any
    """What eager gives. None where eager itself refuses, as it does a few samples."""

    unique: Callable[..., Any]
    """What makes results of which gradients are defined: of an SVD, say."""

    @property
    def has_values(self) -> bool:
        """Whether each call gives the same, tensors and numbers."""
        is_random = self.info.name in RANDOM
        if self.info.name == "nn.functional.rrelu":
            is_random = bool(self.kwargs.get("training"))
        results = leaves(self.expected)
        kinds = (Tensor, int, float, bool)
        return not is_random and all(isinstance(result, kinds) for result in results)

    @cached_property
    def lowered(self) -> Lowered:
        return lowered(self.info.op, *self.args, **self.kwargs)

    def compare(self, result: Any) -> None:
        """Raises AssertionError unless the result is as eager's."""
        compare(result, self.expected, self.info.op, self.args, self.kwargs, self.dtype)


@dataclass
class Outcome:
    """What became of the samples of one operator for one type."""

    name: str
    dtype: torch.dtype
    samples: int = 0
    failures: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    loops: int = 0
    """How many statements of the programs are loops."""

    library: Counter[str] = field(default_factory=Counter)
    """Operators that the programs call."""

    launches: int = 0
    symbols: int = 0
    fixed: int = 0
    """How many sizes were symbolic, and how many of them became numbers while compiling."""

    @property
    def status(self) -> str:
        if self.failures:
            return "fails"
        if self.library:
            return "both" if self.loops else "library"
        if self.loops or self.launches:
            return "loops"
        return "refused" if self.refused else "nothing to do"


# -- the stages -----------------------------------------------------------------------------------


def fakes(sample: Sample) -> None:
    """Fakes have eager's sizes, strides and types."""
    actual = fake_geometries(sample.info.op, sample.args, sample.kwargs)
    expected = geometries(sample.expected)
    assert actual == expected, f"{actual}, eager has {expected}"


def fakes_of_other_layouts(sample: Sample) -> None:
    """So they have for arguments that are not row-major, or of two types."""
    choice = random.Random(f"{name_of(sample.info)} {sample.dtype} {sample.number}")
    values = (list(sample.args), sample.kwargs)
    args, kwargs = tree_map(partial(laid_out_anew, choice), values)
    if len(args) > 1 and choice.random() < 0.25:
        args[1] = tree_map(in_double, args[1])
    try:
        expected = geometries(sample.info.op(*args, **kwargs))
    except RuntimeError:  # eager refuses this layout, or these types together
        return
    actual = fake_geometries(sample.info.op, args, kwargs)
    differences = [
        (one, other)
        for one, other in zip(actual, expected, strict=True)
        if without_single_elements(one) != without_single_elements(other)
    ]
    assert not differences, f"{differences} of {args} {kwargs}"


def fakes_of_any_size(sample: Sample) -> None:
    """What is said of results with symbolic sizes holds for all that the guards admit."""
    arguments = tree_leaves((sample.args, sample.kwargs))
    if sample.dtype is not torch.float32 or not any(isinstance(x, Tensor) for x in arguments):
        return
    try:
        call = SymbolicCall(sample.info.op, sample.args, sample.kwargs)
    except NotImplementedError:
        return
    choice = random.Random(f"{name_of(sample.info)} {sample.number}")
    for _ in range(DRAWS):
        values = call.sizes(choice)
        if values is not None:
            call.check(values)


def decomposition(sample: Sample) -> None:
    """The operators that a call becomes give what it gives."""
    if not sample.has_values:
        return
    graph = sample.lowered.aten
    assert not {node.target for node in graph.graph.nodes} & NEVER_STAY
    result = with_results(graph, interpreter(graph))(list(sample.lowered.tensors))
    if sample.dtype is torch.float32:
        assert_same(result, sample.expected, rtol=1e-5, atol=1e-5)  # with eager's own kernels
    else:
        sample.compare(result)


def reference(sample: Sample) -> None:
    """So does the program that they are lowered to, evaluated statement by statement."""
    if not sample.has_values:
        return
    sample.outcome.loops += sample.lowered.computed
    sample.outcome.library.update(sample.lowered.externs)
    sample.compare(sample.lowered.run())


def machine_code(sample: Sample, *, any_size: bool = False) -> None:
    """So does the code that it is compiled to."""
    if not sample.has_values:
        return
    module, tensors = graph_of(sample.info.op, sample.args, sample.kwargs)
    inputs, facts = tensors, ShapeFacts()
    if any_size:
        if not all(tensor.layout is torch.strided for tensor in tensors):
            return
        symbolic = SymbolicInputs.of(tensors)
        inputs, facts = symbolic.fakes, symbolic.facts
    context = CompileContext(Options(verify=True))
    compiled = compile_graph(module, inputs, context, sample.setting.language)
    sizes = [size_symbol(name) for name in facts.hints]
    sample.outcome.symbols += len(sizes)
    sample.outcome.fixed += sum(facts.resolve(size.index).is_constant for size in sizes)
    sample.outcome.launches += len(compiled.record.launches)
    sample.compare(compiled(*tensors))


def gradients(sample: Sample) -> None:
    """The gradients of that code are eager's."""

    def compiled(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        context = CompileContext(Options(verify=True, strict=True))
        graph = compile_graph(module, inputs, context, sample.setting.language)
        sample.outcome.launches += len(graph.record.launches)
        return graph

    if sample.has_values and sample.info.supports_autograd and sample.dtype.is_floating_point:
        check_gradients(
            compiled, sample.info.op, sample.unique, sample.args, sample.kwargs, sample.dtype
        )


STAGES: Mapping[str, Callable[[Sample], None]] = {
    "fakes": fakes,
    "fakes of other layouts": fakes_of_other_layouts,
    "fakes of any size": fakes_of_any_size,
    "decomposition": decomposition,
    "reference": reference,
    "machine code": machine_code,
    "machine code of any size": partial(machine_code, any_size=True),
    "gradients": gradients,
}
"""In the order in which a program goes through them."""

_FACTORS = "torch's meta kernel lays out the factors otherwise than its CPU kernel"
_OTHER_LAYOUTS = "torch's meta kernel keeps other layouts than its CPU kernel"
_NOT_AS_FAKES: Mapping[str, str] = {
    "_native_batch_norm_legit": "torch's meta kernel gives saved statistics in inference",
    **dict.fromkeys(("linalg.svd", "svd_lowrank", "pca_lowrank"), _FACTORS),
    "tensor_split": "torch reads the values of the indices behind the dispatcher",
    **dict.fromkeys(("sparse.mm", "sparse.sampled_addmm"), "sparse tensors are not traced"),
}
"""Where torch's own meta kernel, or the sample, is at fault; none has a rule of ours."""

LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "fakes": _NOT_AS_FAKES,
    "fakes of other layouts": {
        **_NOT_AS_FAKES,
        **dict.fromkeys(
            ("nn.functional.conv1d", "nn.functional.conv_transpose1d"),
            "oneDNN takes a batch of one with channels of stride 0 for channels-last",
        ),
        "matmul": "of no elements, eager multiplies matrices of two types",
        "_batch_norm_with_update": _OTHER_LAYOUTS,
        "native_dropout_backward": _OTHER_LAYOUTS,
        "normal": "torch's meta kernel promotes types that its CPU kernel does not",
        "nn.functional.binary_cross_entropy": "torch's meta kernel lays out the result as the "
        "target",
        "nn.functional.huber_loss": "torch's meta kernel lays out the result of an expanded input",
        "nn.functional.one_hot": "torch takes another path on meta tensors",
        "view_copy": "torch's meta kernel refuses what its CPU kernel copies",
    },
    "fakes of any size": {
        **_NOT_AS_FAKES,
        **dict.fromkeys(
            words(
                """
                argwhere nonzero masked_select unique repeat_interleave histogramdd linalg.eig
                nn.functional.ctc_loss _segment_reduce index_put
                _unsafe_masked_index_put_accumulate cholesky cov hash_tensor linalg.cholesky
                linalg.inv linalg.ldl_factor linalg.ldl_solve linalg.lu_factor linalg.lu_solve
                linalg.solve linalg.tensorinv linalg.tensorsolve lu_solve lu_unpack multinomial
                """
            ),
            "its size, or whether it runs at all, depends on what stands in its inputs",
        ),
    },
}
"""By stage: operators that are not held against eager there, and why."""


# -- walking --------------------------------------------------------------------------------------


def walk(
    info: Any,
    dtype: torch.dtype,
    budget: Mapping[str, int],
    setting: Setting | None = None,
) -> Outcome:
    """The first samples of an operator through the stages. `budget`: how many, by stage."""
    setting = setting or Setting()
    outcome = Outcome(name_of(info), dtype)
    stages = {
        stage: check
        for stage, check in STAGES.items()
        if budget.get(stage) and info.name not in LEFT_OUT.get(stage, {})
    }
    most = max((budget[stage] for stage in stages), default=0)
    with torch.no_grad():
        for number, drawn in enumerate(sample_inputs(info, dtype, most, setting.device)):
            args, kwargs = (drawn.input, *drawn.args), drawn.kwargs
            try:
                expected = info.op(*args, **kwargs)
            except Exception:  # The database holds a few samples that eager itself refuses.
                continue
            outcome.samples += 1
            unique = drawn.output_process_fn_grad
            sample = Sample(info, dtype, number, setting, outcome, args, kwargs, expected, unique)
            for stage, check in stages.items():
                if number >= budget[stage]:
                    continue
                try:
                    check(sample)
                except (DataDependent, Unsupported, UnsupportedOperator) as error:
                    outcome.refused.append(f"{stage}: {type(error).__name__}: {error}")
                except Exception as error:
                    text = f"{type(error).__name__}: {str(error)[:300]}"
                    outcome.failures.append(f"sample {number}, {stage}: {text}")
                    break
    return outcome


def interpreted_triton() -> KernelLanguage:
    """Triton's language under its interpreter, which is chosen when triton is first imported: by
    the database of operators, before anything here is run.
    """
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    from tests.kernels.triton import interpreted

    return interpreted.language


def operators(names: Sequence[str]) -> Iterator[Any]:
    """Those of the database with these names, all without; jiterator's need CUDA."""
    for info in op_db:
        if (not names and "jiterator" not in info.name) or info.name in names:
            yield info


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--stages", default="")
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    setting = Setting(options.device, interpreted_triton() if options.triton else None)
    # Kernels alone depend on the device and on their language.
    of_kernels = "machine code,gradients" if setting != Setting() else ",".join(STAGES)
    chosen = (options.stages or of_kernels).split(",")
    assert set(chosen) <= STAGES.keys(), f"the stages are {', '.join(STAGES)}"
    budget = dict.fromkeys(chosen, options.samples)
    rows: list[dict[str, Any]] = []
    if options.resume is not None and options.resume.exists():
        rows = [json.loads(line) for line in options.resume.read_text().splitlines()]
    done = {(row["operator"], row["dtype"]) for row in rows}
    first, step = map(int, options.part.split("/"))
    for info in islice(operators(options.names), first - 1, None, step):
        for dtype in options.dtypes.split(","):
            supported = getattr(torch, dtype) in info.supported_dtypes(setting.device)
            if not supported or (name_of(info), dtype) in done:
                continue
            outcome = walk(info, getattr(torch, dtype), budget, setting)
            rows.append(row_of(outcome, dtype))
            if outcome.failures or outcome.refused or options.names:
                reasons = [*outcome.failures, *outcome.refused, ""]
                reason = reasons[0].replace("\n", " ")[:240]
                print(f"{outcome.status.upper()} {outcome.name} {dtype} {reason}", flush=True)
            if options.resume is not None:
                with options.resume.open("a") as file:
                    print(json.dumps(rows[-1]), file=file)
    print(dict(Counter(row["status"] for row in rows)), sum(row["samples"] for row in rows))
    fixed, symbols = (sum(row[key] for row in rows) for key in ("fixed", "symbols"))
    print(f"{symbols} symbolic sizes, {fixed} of which became numbers")


def row_of(outcome: Outcome, dtype: str) -> dict[str, Any]:
    return {
        "operator": outcome.name,
        "dtype": dtype,
        "status": outcome.status,
        "samples": outcome.samples,
        "symbols": outcome.symbols,
        "fixed": outcome.fixed,
        "failures": outcome.failures,
        "refused": outcome.refused,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
