"""A plan: the lines around a graph's kernels and what goes with them, and how it is made to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from fusewright.context import CompileContext
from fusewright.errors import KernelNotCompiled
from fusewright.ir.forms import blocks_of
from fusewright.ir.lines import CallKernel, DefineKernel, DefineSymbol, Line, TakeInput
from fusewright.logs import log_text
from fusewright.records import record
from fusewright.runtime.calling import Call, CallingOrder
from fusewright.runtime.eager_kernels import warn_of_eager_kernel, why_eager
from fusewright.runtime.llvm_engine import object_code
from fusewright.runtime.loader import LoadedModule
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.runtime.native_plan import NoNativePlan, load_plan
from fusewright.wrapper import PythonModule, alone, emit_fx, fused_examples, pack_native


@record(kw_only=True)
class Plan:
    """All of a compiled graph that its functions are made of, but for its constants."""

    name: str
    """The program's."""

    lines: tuple[Line, ...]
    order: CallingOrder
    hints: Mapping[str, int | float]
    """Of its sizes, and those of its blocks."""

    devices: tuple[str, ...]
    """Those that its tensors are on, but for tensors of blocks."""

    written: frozenset[int]
    """Positions of the graph's arguments in whose memory it writes."""

    emitted: PythonModule


def runner(plan: Plan, module: LoadedModule, context: CompileContext) -> tuple[Call, str]:
    """The function that is called with a list of the captured graph's arguments; and why it is the
    Python module's, where a native plan was asked for.
    """
    order = plan.order
    if context.options.target == "fx" or context.fused_backend is not None:
        return order.around(_fused(plan.lines, plan.hints, module, context)), ""
    if context.options.target == "python":
        return order.around(module.call), ""
    if context.options.target == "cpp":
        return _in_cpp(plan, module, context)
    emitted = plan.emitted
    native = pack_native(plan.lines, emitted.places, order, emitted.places_of_blocks)
    try:
        return load_plan(native, module), ""
    except NoNativePlan as error:
        return order.around(module.call), str(error)


def tell_of_eager_kernels(lines: Iterable[Line], context: CompileContext) -> None:
    """Warn of kernels that cannot be compiled, with the user's lines; under `strict`,
    KernelNotCompiled is raised.
    """
    every = [*_with_blocks(lines)]
    launches = [line.launch for line in every if isinstance(line, CallKernel)]
    for kernel in (line.kernel for line in every if isinstance(line, DefineKernel)):
        reason = why_eager(kernel.key)
        if reason is None:
            continue
        launch = next((call for call in launches if call.kernel == kernel.name), None)
        if launch is None:
            continue  # An alternative of a choice, which is left out.
        place = ", ".join(map(str, launch.origins[:3]))
        if context.options.strict:
            raise KernelNotCompiled(f"{reason}\n  It computes {place or 'an unknown line'}")
        warn_of_eager_kernel(kernel.name, place, reason)


def _with_blocks(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines, each ahead of those of the blocks that it runs."""
    for line in lines:
        yield line
        for block in blocks_of(line):
            yield from _with_blocks(block.lines)


def _in_cpp(plan: Plan, module: LoadedModule, context: CompileContext) -> tuple[Call, str]:
    """The function that generated C++ exports; the Python module's, and why, where C++ has no form
    of something.
    """
    if MemoryChecks.chosen() != MemoryChecks():
        return plan.order.around(module.call), "checks of memory are on"
    names = ("fusewright.wrapper.cpp", "fusewright.runtime.cpp_library")
    cpp, library = map(import_module, names)  # A compile for another target does without.
    try:
        emitted = cpp.emit_cpp(plan.name, plan.lines)
    except cpp.NoCpp as reason:
        return plan.order.around(module.call), str(reason)
    log_text("wrapper", lambda: emitted.text)
    kernels = [line.kernel for line in plan.lines if isinstance(line, DefineKernel)]
    objects = object_code(kernels, context.options.kernel_target)
    constants = [module.constants[name] for name in emitted.constants]
    call = library.load_cpp(emitted.text, objects, constants, emitted.outputs)
    return plan.order.around(call), ""


def _fused(
    lines: tuple[Line, ...],
    hints: Mapping[str, int | float],
    module: LoadedModule,
    context: CompileContext,
    prefix: str = "",
) -> Call:
    """The function that calls the graph of fused kernels, or what a backend makes of it; so for
    each block. `prefix` stands before the names of constants.
    """
    blocks = {
        block.name: _fused(alone(block, lines), hints, module, context, f"{block.name}_")
        for line in lines
        for block in blocks_of(line)
    }
    constants = {name.removeprefix(prefix): value for name, value in module.constants.items()}
    run: Callable[..., Any] = emit_fx(lines, {**module.variables, **blocks}, constants)
    if context.fused_backend is not None:
        run = context.fused_backend(run, fused_examples(lines, hints))
    positions = [line.position for line in lines if isinstance(line, DefineSymbol | TakeInput)]

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        arguments = [inputs[position] for position in positions]
        inputs.clear()
        return tuple(run(*arguments))

    return call
