"""Views as lines: memory that operands show through another layout gets a line, a name and a last
use.

before                                              after
------                                              -----
w: f32[8, 4] = constant                             w: f32[8, 4] = constant
call aten.mm.out(x, view(w, f32[4, 8] ..)) into a   w_view: f32[4, 8] .. = view w for reading
call aten.mm.out(y, view(w, f32[4, 8] ..)) into b   call aten.mm.out(x, w_view) into a
return view(x, f32[2])                              call aten.mm.out(y, w_view) into b
                                                    x_view: f32[2] = view x
                                                    return x_view

Equal views are one, but for results: each of these is a tensor of its own, as in eager.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fusewright.ir.forms import buffers_defined, inner_views, map_operands
from fusewright.ir.lines import (
    CallExtern,
    CallExternOut,
    CopyInto,
    FreeIfNotReused,
    Line,
    Return,
    TakeConstant,
    View,
)
from fusewright.ir.program import Buffer, BufferReference, Operand, ViewReference
from fusewright.ir.text_parts import layout_indices
from fusewright.runtime.fast_names import FAST_NAMES

_Key = tuple[ViewReference, bool]
"""A view, and whether it is for reading."""


def name_views(lines: Sequence[Line]) -> tuple[Line, ...]:
    """`lines` with a `View` for each view among the operands: at its first use, or behind the
    constant whose memory it shows. Its last use is marked ahead of that of its source.
    """
    namer = _Namer(lines)
    named: list[Line] = []
    for place, line in enumerate(lines):
        namer.place = place
        replaced = map_operands(line, namer.operand)
        named += [*namer.begun, replaced, *namer.ended]
        namer.begun.clear()
        namer.ended.clear()
    return tuple(_behind_constants(named, namer.of_constants))


def _behind_constants(lines: Sequence[Line], views: dict[str, list[View]]) -> Iterator[Line]:
    for line in lines:
        yield line
        if isinstance(line, TakeConstant):
            yield from views[line.buffer.name]


class _Namer:
    """Gives each view of a list of lines a name, once."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.place = 0
        """The line whose operands are asked for."""

        self.begun: list[View] = []
        """Views to be made ahead of it."""

        self.ended: list[FreeIfNotReused] = []
        """Views that nothing uses behind it."""

        self.of_constants: dict[str, list[View]] = defaultdict(list)
        """Views that are made once, by the constant."""

        self._lines = lines
        self._taken = {name for line in lines for name in buffers_defined(line)}
        self._constants = {line.buffer.name for line in lines if isinstance(line, TakeConstant)}
        self._views: dict[_Key, View] = {}
        self._last_uses = {
            self._key(view, line): place
            for place, line in enumerate(lines)
            for view in inner_views(line)
        }

    def operand(self, operand: Operand) -> Operand:
        """An operand of the current line, by name where it is a view."""
        if not isinstance(operand, ViewReference):
            return operand
        line = self._lines[self.place]
        key = self._key(operand, line)
        view = self._views.get(key)
        is_result = isinstance(line, Return)
        if view is None or is_result:
            view = self._views[key] = self._new_view(*key)
        if self._last_uses[key] == self.place and not is_result and not self._is_made_once(*key):
            release = FreeIfNotReused(buffer=view.buffer)
            self.ended += [] if release in self.ended else [release]
        return BufferReference(view.buffer.name)

    def _key(self, view: ViewReference, line: Line) -> _Key:
        match line:
            case CallExtern(operator=operator) | CallExternOut(operator=operator):
                is_read = operator in FAST_NAMES
            case _:
                is_read = isinstance(line, CopyInto)
        is_fixed = all(index.is_constant for index in layout_indices(view.layout))
        return view, is_read and (is_fixed or view.name not in self._constants)

    def _is_made_once(self, view: ViewReference, is_read_only: bool) -> bool:
        return is_read_only and view.name in self._constants

    def _new_view(self, reference: ViewReference, is_read_only: bool) -> View:
        source = reference.name
        buffer = Buffer(name=self._new_name(f"{source}_view"), layout=reference.layout)
        view = View(buffer=buffer, source=source, is_read_only=is_read_only)
        is_made_once = self._is_made_once(reference, is_read_only)
        (self.of_constants[source] if is_made_once else self.begun).append(view)
        return view

    def _new_name(self, name: str) -> str:
        number, free = 1, name
        while free in self._taken:
            number, free = number + 1, f"{name}{number}"
        self._taken.add(free)
        return free
