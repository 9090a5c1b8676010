"""The buffers that a native plan has to hold as tensors, and not as addresses."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fusewright.ir.forms import buffers_read
from fusewright.ir.kernel import Kernel
from fusewright.ir.lines import (
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CheckNan,
    Conditional,
    CopyInto,
    DebugPrint,
    DefineChoice,
    Line,
    Return,
    ScanLoop,
    View,
    WhileLoop,
)
from fusewright.ir.program import ReadItem, ReadSize, operand_buffers
from fusewright.wrapper.choices import kernels_launched, launches_kernels_only


def given_addresses(kernels: Mapping[str, Kernel], languages: Container[str]) -> set[str]:
    """The kernels, of these languages, that are given no more of their tensors than addresses, and
    no values of numbers.
    """
    return {
        name
        for name, kernel in kernels.items()
        if kernel.language in languages and not kernel.takes_values
    }


def shown_whole(
    lines: Sequence[Line], kernels: Container[str], choices: Mapping[str, DefineChoice]
) -> frozenset[str]:
    """Buffers that others than `kernels`, which are given addresses, use as they are laid out."""
    shown: list[str] = []
    for line in lines:
        match line:
            case CallExtern(arguments=arguments, keywords=keywords):
                shown += operand_buffers((*arguments, *(value for _, value in keywords)))
            case CallExternOut(arguments=arguments, keywords=keywords, out=out):
                shown += [out, *operand_buffers((*arguments, *(value for _, value in keywords)))]
            case CallChoice(choice=name, buffers=buffers):
                launched = kernels_launched([choices[name]])
                by_address = launches_kernels_only(choices[name])
                if not by_address or any(kernel not in kernels for kernel in launched):
                    shown += buffers
            case CallKernel(launch=launch) if launch.kernel not in kernels:
                shown += launch.buffers
            case CallProgram(arguments=arguments) | CallUserTriton(arguments=arguments):
                shown += operand_buffers(arguments)
            case View(source=source):
                shown.append(source)
            case ReadSize(buffer=buffer):
                shown.append(buffer)
            case ReadItem(source=source):
                shown += operand_buffers((source,))
            case Conditional() | WhileLoop() | ScanLoop():
                shown += buffers_read(line)
            case CopyInto(target=target, source=source):
                shown += [target, *operand_buffers((source,))]
            case DebugPrint(values=values) | CheckNan(values=values):
                shown += operand_buffers([value for _, value in values])
            case Return(outputs=outputs):
                shown += operand_buffers(outputs)
    return frozenset(shown)
