"""Take apart and put together every function of the modules named; print what came back different.

As a script it needs neither torch nor this package's environment, so any CPython can run it:

    python3.13 round_trip.py SOURCE_FOLDER MODULE …
"""

from __future__ import annotations

import dis
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

COMPARED = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_flags", "co_code",
    "co_consts", "co_names", "co_varnames", "co_cellvars", "co_freevars", "co_filename", "co_name",
    "co_qualname", "co_firstlineno", "co_linetable", "co_exceptiontable", "co_stacksize",
)  # fmt: skip
"""Every part of a code object, among them those that code equality ignores."""


def functions_of(module_name: str) -> Iterator[CodeType]:
    """The code objects below a module's own: functions, nested ones, lambdas, class bodies."""
    specification = importlib.util.find_spec(module_name)
    assert specification is not None and specification.origin is not None, module_name
    path = Path(specification.origin)
    pending = [compile(path.read_bytes(), str(path), "exec")]
    while pending:
        inner = [constant for constant in pending.pop().co_consts if isinstance(constant, CodeType)]
        yield from inner
        pending.extend(inner)


def differences(code: CodeType) -> list[str]:
    """The parts of `code` that assembling its parts does not give back."""
    from fusewright.capture.bytecode import assemble, disassemble

    again = assemble(disassemble(code, keep_pairs=True))
    parts = [part for part in COMPARED if getattr(code, part) != getattr(again, part)]
    if list(code.co_positions()) != list(again.co_positions()):
        parts.append("co_positions")
    if code != again:
        parts.append("==")
    return parts


def wrong_effects(code: CodeType) -> set[str]:
    """The instructions whose effect on the stack is not what `dis.stack_effect` says."""
    from fusewright.capture.bytecode import consumed, disassemble, produced

    items = [item for item in dis.get_instructions(code) if item.opname != "EXTENDED_ARG"]
    wrong = set()
    for raw, instruction in zip(
        items, disassemble(code, keep_pairs=True).instructions, strict=True
    ):
        operand = raw.arg if raw.opcode >= dis.HAVE_ARGUMENT else None
        for jumps in (False, True):
            found = produced(instruction, jumps) - consumed(instruction)
            expected = dis.stack_effect(raw.opcode, operand, jump=jumps)
            if found != expected + corrected_effect(raw.opname, raw.arg):
                wrong.add(f"{instruction}: {found}, not {expected}")
    return wrong


def corrected_effect(name: str, operand: int | None) -> int:
    """What CPython's account is off by: see the docstring of `effects`."""
    if sys.version_info < (3, 13) and name == "RETURN_GENERATOR":
        return 1
    if sys.version_info < (3, 12) and operand and name in ("PRECALL", "CALL"):
        return operand if name == "PRECALL" else -operand
    return 0


def without_package_initialisers(source_folder: Path) -> None:
    """Make `fusewright.capture.bytecode` importable without what the packages above it import."""
    for name in ("fusewright", "fusewright.capture"):
        package = ModuleType(name)
        package.__path__ = [str(source_folder.joinpath(*name.split(".")))]
        sys.modules[name] = package


def main() -> None:
    """Print a JSON object: how many functions were compared, the differences by name, and the
    instructions whose effect on the stack is wrong.
    """
    without_package_initialisers(Path(sys.argv[1]))
    count = 0
    different: dict[str, list[str]] = {}
    effects: set[str] = set()
    for module_name in sys.argv[2:]:
        for code in functions_of(module_name):
            count += 1
            effects |= wrong_effects(code)
            if parts := differences(code):
                different[f"{module_name}.{code.co_qualname}"] = parts
    print(json.dumps({"count": count, "different": different, "effects": sorted(effects)}))


if __name__ == "__main__":
    main()
