"""Bugs planted at every stage: the stage, the kind and the user's line are named."""

from __future__ import annotations

import importlib
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fusewright
from fusewright import compiler, generation, plans
from fusewright.aot import COMPILER_DECOMPOSITIONS, rematerialization
from fusewright.aot import trace as trace_module
from fusewright.bisection import FirstFailure
from fusewright.ir.lines import CallKernel
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_program
from fusewright.kernels import targets
from fusewright.lower.rules import RULES
from fusewright.passes import Pass
from fusewright.records import replace

aten = torch.ops.aten
schedule_module = importlib.import_module("fusewright.schedule.schedule")
Patch = pytest.MonkeyPatch


def computes(x: Any, w: Any) -> Any:
    y = torch.nn.functional.gelu(x @ w)
    z = torch.exp(y).t()
    return (z / z.sum(0)).cumsum(0)


def writes(x: Any, total: Any) -> Any:
    total.add_(torch.exp(x))
    return torch.sqrt(total.abs())


def trains(x: Any, w: Any) -> Any:
    y = torch.tanh(x @ w)
    return torch.exp(y) * y


def inputs_of(program: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    if program is writes:
        return torch.randn(4, 6), torch.randn(4, 6)
    return torch.randn(4, 6), torch.randn(6, 6, requires_grad=program is trains)


class Planted(Exception):
    """What a planted crash raises."""


def crash(*arguments: Any, **keywords: Any) -> Any:
    raise Planted("a planted bug")


# Editing graphs, at capture and in aot ------------------------------------------------------------


def target_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(node.target)


def edited(graph: fx.Graph, name: str, edit: Callable[[fx.Graph, fx.Node], None]) -> None:
    node = next((node for node in graph.nodes if name in target_name(node)), None)
    if node is None:  # The fault is not in a smaller graph without it.
        return
    with graph.inserting_after(node):
        edit(graph, node)
    graph.lint()


def behind(function: Any, *arguments: Any) -> Callable[[fx.Graph, fx.Node], None]:
    """Put the result of a call in the place of a node's."""

    def edit(graph: fx.Graph, node: fx.Node) -> None:
        call = graph.call_function(function, (node, *arguments))
        call.meta = dict(node.meta)
        if function is transposed and "val" in node.meta:
            call.meta["val"] = transposed(node.meta["val"])
        node.replace_all_uses_with(call, delete_user_cb=lambda user: user is not call)

    return edit


def removed(graph: fx.Graph, node: fx.Node) -> None:
    """A write that is forgotten."""
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)


def at_capture(name: str, edit: Any) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        real = compiler.capture_call

        def capture_call(*arguments: Any, **keywords: Any) -> Any:
            capture = real(*arguments, **keywords)
            edited(capture.graph_module.graph, name, edit)
            capture.graph_module.recompile()
            return capture

        patch.setattr(compiler, "capture_call", crash if edit is crash else capture_call)

    return plant


def in_aot(name: str, edit: Any) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        real, real_joint = trace_module.trace, trace_module.trace_joint

        def trace(*arguments: Any, **keywords: Any) -> Any:
            program = real(*arguments, **keywords)
            edited(program.graph, name, edit)
            if edit is not removed:  # The planted value is what is returned, too.
                program.results = [
                    next(iter(node.users)) if name in target_name(node) else node
                    for node in program.results
                ]
            return program

        def trace_joint(*arguments: Any, **keywords: Any) -> Any:
            joint = real_joint(*arguments, **keywords)
            edited(joint.graph, name, edit)
            return joint

        patch.setattr(trace_module, "trace", crash if edit is crash else trace)
        patch.setattr(trace_module, "trace_joint", crash if edit is crash else trace_joint)

    return plant


def transposed(x: Any) -> Any:
    """The same values, laid out otherwise."""
    return x.t().contiguous().t()


# Later stages -------------------------------------------------------------------------------------


def decomposed(operator: Any, wrong: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setitem(COMPILER_DECOMPOSITIONS, operator, wrong)


def in_partition(edit: Any) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        real = rematerialization.split

        def split(*arguments: Any, **keywords: Any) -> Any:
            partition = real(*arguments, **keywords)
            edited(partition.backward.graph, "mul", edit)
            return partition

        patch.setattr(rematerialization, "split", crash if edit is crash else split)

    return plant


def lowered(operator: str, wrong: Callable[..., Any]) -> Callable[[Patch], None]:
    """`wrong` is given the rule, and what the rule is given."""

    def plant(patch: Patch) -> None:
        real = RULES[operator]
        patch.setitem(RULES, operator, lambda *given, **named: wrong(real, *given, **named))

    return plant


def another_rule(operator: str) -> Callable[..., Any]:
    return lambda real, *given, **named: RULES[operator](*given, **named)


def wrong_tanh_backward(real: Any, call: Any, gradient: Any, result: Any) -> Any:
    return RULES["aten.mul.Tensor"](call, gradient, result)


def in_pass(name: str, wrong: Callable[..., Any]) -> Callable[[Patch], None]:
    """`wrong` is given the result of a pass, and what that was given."""

    def plant(patch: Patch) -> None:
        for row in ("PROGRAM_PASSES", "STEP_PASSES", "GRAPH_PASSES"):
            passes = getattr(schedule_module, row)
            changed = tuple(
                Pass(one.name, spoiled(one.run)) if one.name == name else one for one in passes
            )
            patch.setattr(schedule_module, row, changed)

    def spoiled(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: wrong(run(*given), *given)

    return plant


def halved_statements(program: Any, *given: Any) -> Any:
    """The constant 0.5 in every body that has one is another."""
    text = print_program(program).replace("mul 0.5,", "mul 0.25,")
    return replace(parse_program(text), origins=program.origins)


def swapped_operands(result: Any, graph: Any) -> None:
    """Some nest of a graph computes what another does."""
    nests = [n for n, step in enumerate(graph.steps) if hasattr(step, "pieces")]
    step = graph.steps[nests[-1]]
    piece = step.pieces[-1]
    value = graph.analysis.expressions.apply("neg", piece.value)
    changed = replace(piece, value=value)
    graph.steps[nests[-1]] = replace(step, pieces=(*step.pieces[:-1], changed))


def in_kernel(edit: Callable[[str], str]) -> Callable[[Patch], None]:
    """`edit` changes the source of kernels."""

    def plant(patch: Patch) -> None:
        real = targets.llvm.write

        def write(*given: Any, **named: Any) -> Any:
            source, work = real(*given, **named)
            return edit(source), work

        patch.setattr(targets.llvm, "write", write)

    return plant


def in_lines(edit: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[Patch], None]:
    """`edit` changes the lines around the kernels, unverified."""

    def plant(patch: Patch) -> None:
        real = generation.plan_memory
        patch.setattr(generation, "plan_memory", lambda *given: edit(real(*given)))
        patch.setattr(generation, "verify_lines", lambda lines: None)

    return plant


def without_last_launch(lines: tuple[Any, ...]) -> tuple[Any, ...]:
    launches = [place for place, line in enumerate(lines) if isinstance(line, CallKernel)]
    return tuple(line for place, line in enumerate(lines) if place != launches[-1])


def in_plan(edit: Callable[[Any], Any]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        real = plans.pack_native
        patch.setattr(plans, "pack_native", lambda *given: edit(real(*given)))

    return plant


def without_last_launch_of(plan: Any) -> Any:
    """A native plan that does not launch its last kernel."""
    last = max(n for n, (name, *_) in enumerate(plan.operations) if name == "launch")
    kept = tuple(operation for n, operation in enumerate(plan.operations) if n != last)
    return replace(plan, operations=kept)


NAN = float("nan")
PLANTED: dict[str, tuple[Callable[[Patch], None], Callable[..., Any], str, set[str], str]] = {
    # name: what is planted, the program, the stage, the kinds, a text in the line that is named
    "capture, value": (
        at_capture("gelu", behind(torch.mul, 1.5)), computes, "capture", {"value"}, "gelu",
    ),
    "capture, NaN": (
        at_capture("exp", behind(torch.mul, NAN)), computes, "capture", {"NaN"}, "torch.exp",
    ),
    "capture, strides": (
        at_capture("cumsum", behind(transposed)), computes, "capture", {"strides"}, "",
    ),
    "capture, lost mutation": (
        at_capture("add_", removed), writes, "capture", {"value"}, "",
    ),
    "capture, out of range": (
        at_capture("cumsum", behind(torch.select, 0, 99)), computes, "capture", {"crash"}, "",
    ),
    "capture, crash": (at_capture("", crash), computes, "capture", {"crash"}, "def computes"),
    "aot, value": (
        in_aot("gelu", behind(aten.mul.Tensor, 1.5)), computes, "aot", {"value"}, "gelu",
    ),
    "aot, NaN": (
        in_aot("exp", behind(aten.mul.Tensor, NAN)), computes, "aot", {"NaN"}, "torch.exp",
    ),
    "aot, strides": (
        in_aot("cumsum", behind(transposed)), computes, "aot", {"strides"}, "cumsum",
    ),
    "aot, lost mutation": (
        in_aot("copy_", removed), writes, "aot", {"value"}, "total.add_",
    ),
    "aot, out of range": (
        in_aot("gelu", behind(aten.select.int, 0, 99)), computes, "aot", {"crash", "shape"}, "gelu",
    ),
    "aot, crash": (in_aot("", crash), computes, "aot", {"crash"}, "gelu"),
    "aot, gradient": (
        in_aot("tanh_backward", behind(aten.mul.Tensor, 1.5)), trains, "aot", {"value"}, "tanh",
    ),
    "decomposition, value": (
        decomposed(aten.exp.default, lambda x: aten.expm1(x)), computes, "decomposition",
        {"value"}, "torch.exp",
    ),
    "decomposition, NaN": (
        decomposed(aten.exp.default, lambda x: aten.log(-aten.abs(x))), computes, "decomposition",
        {"NaN"}, "torch.exp",
    ),
    "decomposition, out of range": (
        decomposed(aten.exp.default, lambda x: aten.select(aten.exp(x), 0, 99)), computes,
        "decomposition", {"crash", "shape"}, "torch.exp",
    ),
    "decomposition, crash": (
        decomposed(aten.exp.default, crash), computes, "decomposition", {"crash"}, "torch.exp",
    ),
    "decomposition, strides": (
        decomposed(aten.cumsum.default, lambda x, dim: transposed(aten.cumsum.default(x, dim))),
        computes, "decomposition", {"strides", "crash"}, "cumsum",
    ),
    "decomposition, gradient": (
        decomposed(aten.tanh_backward.default, lambda grad, y: grad * y), trains, "decomposition",
        {"value"}, "tanh",
    ),
    "partition, value": (
        in_partition(behind(aten.mul.Tensor, 1.5)), trains, "partition", {"value"}, "",
    ),
    "partition, NaN": (
        in_partition(behind(aten.mul.Tensor, NAN)), trains, "partition", {"NaN"}, "",
    ),
    "partition, crash": (in_partition(crash), trains, "partition", {"crash"}, ""),
    "lowering, value": (
        lowered("aten.exp.default", another_rule("aten.expm1.default")), computes, "lowering",
        {"value"}, "torch.exp",
    ),
    "lowering, NaN": (
        lowered("aten.exp.default", another_rule("aten.log.default")), computes, "lowering",
        {"NaN"}, "torch.exp",
    ),
    "lowering, crash": (lowered("aten.exp.default", crash), computes, "lowering", {"crash"}, "exp"),
    "lowering, gradient": (
        lowered("aten.tanh_backward.default", wrong_tanh_backward), trains, "lowering",
        {"value"}, "tanh",
    ),
    "pass split, value": (
        in_pass("split", halved_statements), computes, "scheduling, pass split", {"value"}, "gelu",
    ),
    "pass fuse, value": (
        in_pass("fuse", swapped_operands), computes, "scheduling, pass fuse", {"value", "NaN"}, "",
    ),
    "pass batch, crash": (
        in_pass("batch", crash), computes, "scheduling, pass batch", {"crash"}, "",
    ),
    "pass inline, crash": (
        in_pass("inline", crash), trains, "scheduling, pass inline", {"crash"}, "",
    ),
    "kernels, value": (
        in_kernel(lambda text: text.replace("fdiv", "fmul")),
        computes, "kernels", {"value"}, "div",
    ),
    "kernels, NaN": (
        in_kernel(lambda text: text.replace("@llvm.sqrt", "@llvm.log")), writes, "kernels",
        {"NaN", "value", "infinite"}, "sqrt",
    ),
    "kernels, out of range": (
        in_kernel(lambda text: text.replace("ptr %out0, i64", "ptr %out0, i64 2000, i64")
                  .replace("getelementptr float, ptr %out0, i64 2000, i64",
                           "getelementptr [1 x float], ptr %out0, i64 2000, i64")),
        computes, "kernels", {"memory", "crash"}, "",
    ),
    "kernels, wrong stride": (
        in_kernel(lambda text: re.sub(r"(mul i64 %loop\d+\.i), 6", r"\1, 4", text)), computes,
        "kernels", {"value", "NaN"}, "",
    ),
    "kernels, lost write": (
        in_kernel(lambda text: re.sub(r"\n +call void @llvm.masked.store.*", "", text)),
        writes, "kernels", {"NaN", "value"}, "",
    ),
    "kernels, crash": (
        in_kernel(lambda text: text + "\nnonsense"), computes, "kernels", {"crash"}, "",
    ),
    "kernels, gradient": (
        in_kernel(lambda text: text.replace("fsub", "fadd")), trains, "kernels",
        {"value", "infinite", "NaN"}, "exp",
    ),
    "wrapper, value": (in_lines(without_last_launch), computes, "wrapper", {"value", "NaN"}, ""),
    "wrapper, crash": (in_lines(crash), computes, "wrapper", {"crash"}, ""),
    "native plan, value": (
        in_plan(without_last_launch_of), computes, "native plan", {"value", "NaN", "infinite"}, "",
    ),
    "native plan, crash": (in_plan(crash), computes, "native plan", {"crash"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.dynamic(None)
def test_a_planted_bug_is_named(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    plant, program, stage, kinds, line = PLANTED[name]
    inputs = inputs_of(program)
    plant(monkeypatch)
    found = fusewright.bisect(program, inputs, folder=tmp_path, seconds=0.25).finding
    assert found is not None
    assert found.stage == stage
    assert found.kind in kinds, found
    assert line in "".join(map(str, found.lines)), found
    if stage == "kernels":
        assert found.kernel is not None and found.kernel.startswith("cpu_")
    if stage != "capture":
        assert shows_it(found)


def shows_it(finding: FirstFailure) -> bool:
    """Whether the program that was written shows the fault, and needs no other file."""
    assert finding.program is not None, finding.why_no_program
    text = finding.program.read_text()
    assert "pickle" not in text and "tests." not in text
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(finding.program), run_name="__main__")
    return ended.value.code == 1


@pytest.mark.parametrize("program", [computes, writes, trains])
def test_nothing_is_wrong(program: Callable[..., Any]) -> None:
    found = fusewright.bisect(program, inputs_of(program))
    assert found.finding is None and found.kernels > 0
    assert str(found).startswith("nothing differs by more than rounding explains: 1 graph, ")
