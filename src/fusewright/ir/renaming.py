"""Lines with other names for their buffers, other sizes, or on another device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewright.ir.forms import map_operands, parts_of
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import Launch
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    Enumerated,
    Layout,
    Operand,
    ViewReference,
)
from fusewright.records import record, replace


@record(kw_only=True)
class Renaming:
    """New names for those in lines; a name that it does not mention stays."""

    buffers: Mapping[str, str]
    sizes: Mapping[Symbol, Index]
    devices: Mapping[str, str]

    def line(self, line: Any) -> Any:
        """A line that does the same, renamed."""
        changes: dict[str, Any] = {}
        for piece in (piece for part in parts_of(line.form) for piece in part.pieces):
            match piece.kind, piece.values(line):
                case (("buffer" | "written"), [name]):
                    changes[piece.fields[0]] = self._name(name)
                case (("new" | "laid_out"), [buffer]):
                    changes[piece.fields[0]] = self._buffer(buffer)
                case "launch", [launch]:
                    changes[piece.fields[0]] = self._launch(launch)
        renamed = replace(line, **changes) if changes else line
        return map_operands(renamed, self._operand)

    def index(self, index: Index) -> Index:
        return index.substitute(self.sizes) if index.terms else index

    def _name(self, name: str) -> str:
        return self.buffers.get(name, name)

    def _layout(self, layout: Layout) -> Layout:
        return replace(
            layout,
            size=tuple(map(self.index, layout.size)),
            stride=tuple(map(self.index, layout.stride)),
            offset=self.index(layout.offset),
            device=self.devices.get(layout.device, layout.device),
        )

    def _buffer(self, buffer: Buffer) -> Buffer:
        return Buffer(name=self._name(buffer.name), layout=self._layout(buffer.layout))

    def _launch(self, launch: Launch) -> Launch:
        return replace(
            launch,
            buffers=tuple(map(self._name, launch.buffers)),
            sizes=tuple(map(self.index, launch.sizes)),
            units=self.index(launch.units),
            device=self.devices.get(launch.device, launch.device),
        )

    def _operand(self, operand: Operand) -> Operand:
        match operand:
            case BufferReference(name=name):
                return BufferReference(self._name(name))
            case ViewReference(name=name, layout=layout):
                return ViewReference(self._name(name), self._layout(layout))
            case Enumerated(kind="device", name=name):
                return replace(operand, name=self.devices.get(name, name))
            case Index():
                return self.index(operand)
            case _:
                return operand
