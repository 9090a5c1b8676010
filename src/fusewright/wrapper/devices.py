"""Devices by slots: lines say on which of the devices of a module something lies or runs, and one
line a device says which that is.

before                                     after
------                                     -----
a: f32[8] on cuda:1 = allocate             device0 = device 'cuda:1'
launch triton_k(x, a) units 1 on cuda:1    a: f32[8] on device0 = allocate
                                           launch triton_k(x, a) units 1 on device0

The CPU has no number, and keeps its name; so does `meta`, where nothing lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fusewright.ir.forms import map_operands
from fusewright.ir.lines import CallChoice, CallKernel, DefineDevice, Line
from fusewright.ir.program import Buffer, Enumerated, Operand
from fusewright.records import replace

UNNUMBERED: Final = ("cpu", "meta")


def name_devices(lines: Sequence[Line], slots: dict[str, str] | None = None) -> tuple[Line, ...]:
    """`lines` with a slot for each device, whose definitions come first. `slots` holds those that
    other lines of the module use, and gets new ones.
    """
    slots = {} if slots is None else slots

    def slot(device: str) -> str:
        return device if device in UNNUMBERED else slots.setdefault(device, f"device{len(slots)}")

    def by_slot(operand: Operand) -> Operand:
        if isinstance(operand, Enumerated) and operand.kind == "device":
            return replace(operand, name=slot(operand.name))
        return operand

    def renamed(line: Line) -> Line:
        buffer = getattr(line, "buffer", None)
        if isinstance(buffer, Buffer) and buffer.layout.device not in UNNUMBERED:
            layout = replace(buffer.layout, device=slot(buffer.layout.device))
            line = replace(line, buffer=replace(buffer, layout=layout))
        if isinstance(line, CallKernel) and line.launch.device not in UNNUMBERED:
            line = replace(line, launch=replace(line.launch, device=slot(line.launch.device)))
        if isinstance(line, CallChoice):
            line = replace(line, device=slot(line.device))
        named: Line = map_operands(line, by_slot)
        return named

    body = [renamed(line) for line in lines]
    definitions = [DefineDevice(slot=name, device=device) for device, name in slots.items()]
    return (*definitions, *body)
