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
from types import CodeType, FunctionType, ModuleType

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


BODIES = {
    "yield n": False,
    "while n:\n  yield n\n  n -= 1\n return n": False,
    "for i in n:\n  if i:\n   yield i": False,
    f"yield {'+'.join('n' * 200)}\n yield n": False,
    "yield from n\n m = yield from n\n yield m": False,
    "m = [i for i in n]\n yield m\n yield {i: n for i in m}": False,
    "return (i for i in n for j in i if j)": False,
    "try:\n  yield n\n finally:\n  pass": True,
    "try:\n  yield n\n except ValueError:\n  pass": True,
    "for i in n:\n  try:\n   yield i\n  except* OSError:\n   yield n": True,
    "with n:\n  yield n": True,
    "yield n\n with n: return": True,
}
"""Bodies of functions of `n`, and whether each handles exceptions."""

ASYNCHRONOUS_BODIES = {
    "return n": False,
    "await n": False,
    "async for i in n:\n  await i": False,
    "return [i async for i in n]": False,
    "async with n:\n  await n": True,
}


def wrongly_handling() -> list[str]:
    """The functions of which `handles_exceptions` is not what their source says."""
    from fusewright.capture.bytecode import handles_exceptions

    sources = {f"def f(n):\n {body}": handles for body, handles in BODIES.items()}
    for body, handles in ASYNCHRONOUS_BODIES.items():
        sources[f"async def f(n):\n {body}"] = handles
    wrong = []
    for source, handles in sources.items():
        namespace: dict[str, FunctionType] = {}
        exec(source, namespace)
        if handles_exceptions(namespace["f"].__code__) != handles:
            wrong.append(source)
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
    """Print a JSON object: how many functions were compared, the differences by name, the
    instructions whose effect on the stack is wrong, and the functions whose handlers are.
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
    result = {"count": count, "different": different, "effects": sorted(effects)}
    print(json.dumps({**result, "handling": wrongly_handling()}))


if __name__ == "__main__":
    main()
