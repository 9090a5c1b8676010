"""Golden text: the memory pass, and the Python module and native plan for every kind of line."""

from __future__ import annotations

from torch import Tensor, zeros

from fusewright.config import Options
from fusewright.ir.forms import print_lines
from fusewright.ir.lines import CallProgram, CallUserTriton, DefineKernel, TakeConstant
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.verify_lines import verify_lines
from fusewright.runtime.native_plan import NativePlan
from fusewright.wrapper import (
    emit_fx,
    emit_module,
    emit_python,
    fused_examples,
    instrument,
    pack_native,
    plan_memory,
)
from fusewright.wrapper.choices import choices_in, fill_choices
from fusewright.wrapper.devices import name_devices
from fusewright.wrapper.views import name_views
from tests.golden import golden


@golden("cases/memory.txt")
def test_memory_pass(text: str) -> str:
    return print_lines(plan_memory(parse_lines(text), {"s0": 16, "s1": 16}))


@golden("cases/views.txt")
def test_views(text: str) -> str:
    lines = name_views(parse_lines(text))
    verify_lines(lines)
    return print_lines(lines)


@golden("cases/instrument.txt")
def test_checks_and_debug_prints(text: str) -> str:
    """Options stand in the first line."""
    first, _, rest = text.partition("\n")
    given = dict(item.split("=") for item in first.removeprefix("# with").split())
    options = {name: True if value == "1" else value for name, value in given.items()}
    lines = name_views(parse_lines(rest))
    result = instrument(lines, Options.from_user(options))
    printed = print_lines(result)
    assert print_lines(parse_lines(printed)) == printed
    verify_lines(result)
    emit_python("graph", result)
    return printed


@golden("cases/choices.txt")
def test_choices_filled_in(text: str) -> str:
    """The winner stands in the first line."""
    first, _, rest = text.partition("\n")
    lines = parse_lines(rest)
    verify_lines(lines)
    (choice,) = choices_in(lines).values()
    names = [alternative.name for alternative in choice.alternatives]
    filled = fill_choices(lines, {choice.name: names.index(first.removeprefix("# "))})
    planned = plan_memory(filled, {"s1": 16})
    verify_lines(planned)
    return print_lines(planned)


@golden("cases/devices.txt")
def test_devices(text: str) -> str:
    return print_lines(name_devices(parse_lines(text)))


@golden("cases/python.txt")
def test_python_module(text: str) -> str:
    module = emit_python("graph", parse_lines(text))
    compile(module, "graph.py", "exec")
    return module


@golden("cases/fx.txt")
def test_fx_graph(text: str) -> str:
    """The graph, and the module's buffers and kernels."""
    lines = name_views(parse_lines(text))
    kernels = {line.kernel.name: print for line in lines if isinstance(line, DefineKernel)}
    kernels |= dict.fromkeys(choices_in(lines), print)
    constants = {line.buffer.name: zeros(()) for line in lines if isinstance(line, TakeConstant)}
    constants |= {
        line.name: print for line in lines if isinstance(line, CallProgram | CallUserTriton)
    }
    module = emit_fx(lines, kernels, constants)
    module.graph.lint()
    module.graph.eliminate_dead_code()
    examples = [
        f"{one.dtype}{list(one.shape)}" if isinstance(one, Tensor) else str(one)
        for one in fused_examples(lines, {"s0": 16, "s1": 16})
    ]
    return f"{str(module.graph).strip()}\n\nexamples: {', '.join(examples)}\n"


@golden("cases/native.txt")
def test_native_plan(text: str) -> str:
    """Each operation behind what its line says in Python; constants stand as they are."""
    lines = parse_lines(text)
    module = emit_module("graph", lines)
    plan = pack_native(lines, module.places, None, module.places_of_blocks)
    return "\n".join(_shown_plan(plan, module.text.splitlines())) + "\n"


def _shown_plan(plan: NativePlan, statements: list[str]) -> list[str]:
    shown = [f"{plan.inputs} inputs, {plan.slots} slots, numbers {plan.numbers}"]
    shown += [f"~{place}: {constant}" for place, constant in enumerate(plan.constants)]
    before = 0
    for name, line, operands in plan.operations:
        if line != before:
            shown.append(statements[line - 1])
            before = line
        words = " ".join(map(_operand, operands))
        shown.append(f"        {name}: {words}")
    for block, inner in plan.blocks.items():
        shown += [f"block {block}", *_shown_plan(inner, statements)]
    return shown


def _operand(operand: int | None) -> str:
    if operand is None:
        return "-"
    return f"~{~operand}" if operand < 0 else str(operand)
