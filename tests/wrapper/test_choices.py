"""Choices among the lines: each target runs any of the alternatives, also inside of conditions, on
memory in an arena, and for sizes of several classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.config import TARGETS
from fusewright.ir.forms import print_lines
from fusewright.ir.lines import (
    CALLER,
    Allocate,
    Alternative,
    CallChoice,
    CallKernel,
    CopyInto,
    DefineChoice,
    DefineKernel,
    Free,
    Line,
)
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.program import Buffer, BufferReference
from fusewright.ir.verify_lines import verify_lines
from fusewright.native import CallPlan
from fusewright.records import replace
from fusewright.runtime import choices
from fusewright.runtime.loader import load_module
from fusewright.runtime.native_plan import load_plan
from fusewright.wrapper import emit_fx, emit_module, pack_native, peak_bytes
from fusewright.wrapper.choices import fill_choices

Tensor = torch.Tensor


def with_choices(lines: Sequence[Line], is_copied: bool) -> list[Line]:
    """Each kernel of the lines as a choice: itself, or itself on memory of its own, which is copied
    then, or else for nothing ahead of itself.
    """
    kernels = {line.kernel.name: line.kernel for line in lines if isinstance(line, DefineKernel)}
    layouts = {line.buffer.name: line.buffer.layout for line in lines if hasattr(line, "buffer")}
    defined: dict[str, DefineChoice] = {}
    result: list[Line] = []
    for line in lines:
        if not isinstance(line, CallKernel):
            result.append(line)
            continue
        launch = line.launch
        kernel = kernels[launch.kernel]
        symbols = sorted(
            {s for i in (*launch.sizes, launch.units) for s in i.free()}, key=lambda s: s.name
        )
        if kernel.name not in defined:
            written = [n for n, argument in enumerate(kernel.arguments) if argument.is_written]
            inner = replace(
                launch, buffers=tuple(a.name for a in kernel.arguments), device=CALLER, origins=()
            )
            own: list[Line] = []
            names = list(inner.buffers)
            for n in written:
                layout = layouts[launch.buffers[n]]
                copy = Buffer(name=f"t{n}", layout=replace(layout, device=CALLER))
                own.append(Allocate(buffer=copy))
                if kernel.arguments[n].is_in_place and is_copied:
                    own.append(CopyInto(target=copy.name, source=BufferReference(names[n])))
                names[n] = copy.name
            own.append(CallKernel(launch=replace(inner, buffers=tuple(names))))
            if not is_copied:
                own.append(CallKernel(launch=inner))
            for n in written:
                copy_back = CopyInto(target=inner.buffers[n], source=BufferReference(names[n]))
                own += [copy_back] if is_copied else []
                own.append(Free(name=names[n]))
            defined[kernel.name] = DefineChoice(
                name=f"{kernel.name}_choice",
                key=kernel.key,
                arguments=kernel.arguments,
                sizes=tuple(symbols),  # type: ignore[arg-type]
                alternatives=(
                    Alternative(name="plain", lines=(CallKernel(launch=inner),)),
                    Alternative(name="copied", lines=tuple(own)),
                ),
            )
            last = max(n for n, other in enumerate(result) if isinstance(other, DefineKernel))
            result.insert(last + 1, defined[kernel.name])
        result.append(
            CallChoice(
                choice=defined[kernel.name].name,
                buffers=launch.buffers,
                sizes=tuple(symbol.index for symbol in symbols),
                device=launch.device,
            )
        )
    return result


def several(x: Tensor, w: Tensor) -> Any:
    """Kernels with an arena between them, and one that is launched twice."""
    a = torch.softmax(x, -1)
    b = torch.softmax(a + torch.softmax(a.sum(0), -1), 0).sum(1)
    return torch.softmax(b, 0), torch.softmax(w @ a.t(), -1) * 2


def lines_of(function: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[Line, ...]:
    compiled = fusewright.compile(function, options={"strict": True}, **options)
    compiled(*inputs)
    (compilation,) = fusewright.api.compilations(compiled)
    return compilation.compiled.record.lines  # type: ignore[no-any-return]


def runner(lines: tuple[Line, ...], target: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What runs the lines, and the choices of their module by name."""
    emitted = emit_module("graph", lines)
    module = load_module(emitted.text, {})
    made = {n: v for n, v in module.variables.items() if isinstance(v, choices.Choice)}
    if target == "python":
        return lambda *inputs: module.call(list(inputs)), made
    if target == "fx":
        return emit_fx(lines, module.variables, {}), made
    plan = load_plan(pack_native(lines, emitted.places), module)
    assert isinstance(plan, CallPlan)
    return lambda *inputs: plan(list(inputs)), made


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_runs_every_alternative(
    target: str, winner: int, is_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def time_runs(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
        timed.append(len(runs))
        return [float(n != winner) for n in range(len(runs))]

    monkeypatch.setattr(choices, "time_runs", time_runs)
    x, w = torch.randn(6, 8), torch.randn(5, 8)
    plain = lines_of(several, x, w)
    lines = tuple(with_choices(plain, is_copied))
    verify_lines(lines)
    assert print_lines(parse_lines(print_lines(lines))) == print_lines(lines)
    run, made = runner(lines, target)
    for _ in range(3):
        for found, expected in zip(run(x, w), several(x, w), strict=True):
            torch.testing.assert_close(found, expected)
    assert timed == [2] * 2 * len(made) and len(made) >= 3
    assert all(choice.section(0) == winner + 1 for choice in made.values())
    filled = fill_choices(lines, dict.fromkeys(made, 0))
    assert print_lines(filled) == print_lines(plain)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_of_several_classes(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan goes from one decided class of sizes to the other without asking for times."""
    order = [[0.0, 1.0], [1.0, 0.0]]
    monkeypatch.setattr(choices, "time_runs", lambda runs, device: order[len(runs) and counts()])
    count = iter(range(1000))

    def counts() -> int:
        return next(count) // 2 % 2  # A choice is timed in two passes.

    def program(x: Tensor) -> Any:
        return torch.softmax(x, -1), x.sum(0) * 2

    x = torch.randn(6, 8)
    lines = tuple(with_choices(lines_of(program, x, dynamic=True), False))
    verify_lines(lines)
    run, made = runner(lines, target)
    seen = []
    for rows, columns in ((6, 8), (40, 8), (7, 9), (6, 8), (41, 9), (200, 100)):
        x = torch.randn(rows, columns)
        for found, expected in zip(run(rows, columns, x), program(x), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
        seen.append(sum(len(choice.decisions) for choice in made.values()))
    assert seen[1] > seen[0] and seen[-1] > seen[-2] == seen[3] == seen[1]


def test_memory_of_alternatives_counts() -> None:
    x, w = torch.randn(60, 80), torch.randn(50, 80)
    plain = lines_of(several, x, w)
    lines = tuple(with_choices(plain, True))
    assert peak_bytes(lines, {}) > peak_bytes(plain, {})


def test_an_index_out_of_range_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an index out of range, which every alternative finds; the next call is right again."""

    def program(x: Tensor, i: Tensor) -> Any:
        return (torch.relu(x)[i] * 2,)

    x, good, bad = torch.randn(4), torch.tensor([1, 2]), torch.tensor([1, 9])
    lines = tuple(with_choices(lines_of(program, x, good), True))
    for target in TARGETS:
        run, made = runner(lines, target)
        with pytest.raises(IndexError):
            run(x, bad)
        torch.testing.assert_close(run(x, good)[0], program(x, good)[0])
        with pytest.raises(IndexError):
            run(x, bad)
        assert all(choice.decisions for choice in made.values())
