"""Conversions of a program that runs in double precision: what is a copy of another type in the
program, as `x.half()` may be, is one there too, where both types are one.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from torch.overrides import TorchFunctionMode

from fusewright.fuzz.program import RandomProgram

CONVERSIONS: Final = frozenset(
    str.split("to type type_as half bfloat16 float double cfloat cdouble")
)
"""Methods of tensors that give the tensor itself, or a copy if that has another type."""


class NotedConversions(TorchFunctionMode):
    """A mode in which functions run as they are; `copies` says of one conversion of a program after
    the other whether it was a copy.
    """

    def __init__(self, program: RandomProgram) -> None:
        super().__init__()
        self.copies: list[bool] = []
        self._module = program.module

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        is_of_program = sys._getframe(1).f_globals.get("__name__") == self._module
        result = function(*args, **(kwargs or {}))
        if is_of_program and getattr(function, "__name__", "") in CONVERSIONS:
            return self._converted(args[0], result)
        return result

    def _converted(self, value: Any, result: Any) -> Any:
        self.copies.append(result is not value)
        return result


class RepeatedConversions(NotedConversions):
    """A mode in which conversions are copies where those that were noted are."""

    def __init__(self, program: RandomProgram, copies: list[bool]) -> None:
        super().__init__(program)
        self._noted = iter(copies)

    def _converted(self, value: Any, result: Any) -> Any:
        is_copy = next(self._noted, False)
        return result.clone() if is_copy and result is value else result
