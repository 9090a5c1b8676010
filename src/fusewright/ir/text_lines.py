"""The text form of wrapper lines; `parse_lines` reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusewright.ir import lines as wrapper
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import CpuFacts, Kernel, KernelFacts, Launch, TritonFacts
from fusewright.ir.program import Operand
from fusewright.ir.text import (
    layout_indices,
    operand_indices,
    print_buffer,
    print_call,
    print_list,
    print_operand,
    print_symbol,
    print_wrapped,
    sizes_in,
)


def print_lines(lines: Iterable[wrapper.Line]) -> str:
    """One line of text a line, more for a kernel's definition."""
    lines = tuple(lines)
    symbols = {symbol.name: symbol for symbol in sizes_in(line_indices(lines))}
    return "".join(f"{print_line(line, symbols)}\n" for line in lines)


def print_line(line: wrapper.Line, symbols: Mapping[str, Symbol] | None = None) -> str:
    """One line; `symbols` tells what is known of the sizes that it defines."""
    match line:
        case wrapper.DefineSymbol(name=name, position=position):
            symbol = (symbols or {}).get(name)
            return f"{print_symbol(symbol) if symbol else name} = input {position}"
        case wrapper.Free(name=name):
            return f"free {name}"
        case wrapper.DefineKernel(kernel=kernel):
            return print_kernel(kernel)
        case wrapper.CallKernel(launch=launch):
            return _launch(launch)
        case wrapper.CallExtern():
            call = print_call(line.operator, line.arguments, line.keywords)
            return f"{_results(line, symbols or {})}call {call}"
        case wrapper.CallExternOut(out=out):
            return f"call {print_call(line.operator, line.arguments, line.keywords)} into {out}"
        case wrapper.CopyInto(target=target, source=source):
            return f"copy {print_operand(source)} to {target}"
        case wrapper.Return(outputs=outputs):
            return print_wrapped("return ", [print_operand(output) for output in outputs], "", "")
        case _:
            return _print_memory(line)


def _print_memory(line: wrapper.Line) -> str:
    """The lines about one buffer's memory."""
    match line:
        case wrapper.TakeInput(buffer=buffer, position=position):
            return f"{print_buffer(buffer)} = input {position}"
        case wrapper.EnsureLayout(buffer=buffer):
            return f"ensure {print_buffer(buffer)}"
        case wrapper.Constant(buffer=buffer):
            return f"{print_buffer(buffer)} = constant"
        case wrapper.Allocate(buffer=buffer):
            return f"{print_buffer(buffer)} = allocate"
        case wrapper.Reuse(buffer=buffer, source=source):
            return f"{print_buffer(buffer)} = reuse {source}"
        case wrapper.FreeIfNotReused(buffer=buffer):
            return f"release {print_buffer(buffer)}"
        case _:
            raise TypeError(f"{type(line).__name__} has no text")


def print_kernel(kernel: Kernel, *, source: bool = True) -> str:
    """A kernel's head: name, language, key, facts, arguments, sizes; then its source behind
    bars.
    """
    head = f"kernel {kernel.name} in {kernel.language} key {kernel.key!r}"
    rows = [f"{head} {print_facts(kernel.facts)}"]
    for argument in kernel.arguments:
        rows.append(
            f"  {'write' if argument.is_written else 'read'} {argument.name}: {argument.dtype}"
        )
    rows += [f"  size {name}" for name in kernel.sizes]
    if source:
        rows += [f"  | {row}" if row else "  |" for row in kernel.source.split("\n")]
    return "\n".join(rows)


def print_facts(facts: KernelFacts) -> str:
    """What the launches of a kernel have in common, in one row."""
    match facts:
        case CpuFacts(grain=grain):
            return f"grain {grain}"
        case TritonFacts(types=types, blocks=blocks, warps=warps, checks_bounds=checks):
            sized = ", ".join(f"{name} {size}" for name, size in blocks)
            asserts = " asserts" if checks else ""
            return f"warps {warps} blocks [{sized}] types [{', '.join(types)}]{asserts}"


def _launch(launch: Launch) -> str:
    sizes = f" sizes {print_list(launch.sizes)}" if launch.sizes else ""
    return f"launch {launch.kernel}({', '.join(launch.buffers)}){sizes} units {launch.units}"


def _results(line: wrapper.CallExtern, symbols: Mapping[str, Symbol]) -> str:
    results = line.results
    if not line.is_tuple:
        shown = (
            print_symbol(symbols[one]) if one is not None and one in symbols else str(one)
            for one in results
        )
        return ", ".join(shown) + " = " if results else ""
    inner = f"{results[0]}," if len(results) == 1 else ", ".join(map(str, results))
    return f"({inner}) = "


def line_indices(lines: Iterable[wrapper.Line]) -> list[Index]:
    """Every index expression of the lines."""
    found: list[Index] = []
    operands: list[Operand] = []
    for line in lines:
        match line:
            case (
                wrapper.TakeInput(buffer=buffer)
                | wrapper.EnsureLayout(buffer=buffer)
                | wrapper.Constant(buffer=buffer)
                | wrapper.Allocate(buffer=buffer)
                | wrapper.Reuse(buffer=buffer)
                | wrapper.FreeIfNotReused(buffer=buffer)
            ):
                found += layout_indices(buffer.layout)
            case wrapper.CallKernel(launch=launch):
                found += (*launch.sizes, launch.units)
            case wrapper.CallExtern() | wrapper.CallExternOut():
                operands += (*line.arguments, *(value for _, value in line.keywords))
            case wrapper.CopyInto(source=source):
                operands.append(source)
            case wrapper.Return(outputs=outputs):
                operands += outputs
            case _:
                pass
    return found + operand_indices(operands)
