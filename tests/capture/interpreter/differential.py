"""Run a function of constants by CPython and by the interpreter of capture."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any


def executed(function: Callable[[], Any]) -> tuple[str, Any]:
    """What CPython makes of a call: "returned" and the result, or "raised" and the exception."""
    try:
        return "returned", function()
    except Exception as error:
        return "raised", described(type(error), [str(item) for item in error.args])


def interpreted(function: Callable[[], Any]) -> tuple[str, Any]:
    """What the interpreter makes of a call; "refused" and why for what it does not interpret."""
    from fusewright.capture import handlers
    from fusewright.capture.interpreter.machine import Machine
    from fusewright.capture.values.base import TracedError
    from fusewright.capture.values.functions import FunctionValue
    from fusewright.errors import Unsupported

    assert handlers, "importing the handlers fills their table"
    assert isinstance(function, types.FunctionType)
    machine = Machine(function.__globals__)
    namespace = machine.namespace(function.__globals__)
    try:
        result = machine.execute(FunctionValue(function.__code__, namespace), {})
        machine.read_all([result])
        return "returned", result.to_python()
    except TracedError as error:
        value: Any = error.value
        arguments = [str(item.to_python()) for item in value.arguments]
        return "raised", described(value.python_type(), arguments)
    except Unsupported as error:
        return "refused", str(error)


def described(cls: type, arguments: list[str]) -> str:
    """An exception in words."""
    return f"{cls.__name__}({', '.join(arguments)})"


def unknown_instructions() -> list[str]:
    """The instructions of the running Python for which there is neither a handler nor a reason."""
    from fusewright.capture.bytecode.versions import OPERATIONS, VERSION
    from fusewright.capture.interpreter.instructions import OPCODES, REFUSED

    ours = {*OPERATIONS.forward, *OPERATIONS.backward}
    assert ours and len(dis.opname) >= 256
    plain = {name for name in ours if not name.startswith("INSTRUMENTED_")}
    return sorted(plain - OPCODES.keys() - REFUSED.keys() - VERSION.local_pairs.keys())
