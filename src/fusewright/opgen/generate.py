"""From a backend's YAML to the text of its files."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.opgen.declarations import read_declarations
from fusewright.opgen.description import read_description
from fusewright.opgen.emit_cpp import PER_FILE, emit_cpp
from fusewright.opgen.emit_python import emit_python
from fusewright.opgen.emit_test import emit_test
from fusewright.opgen.plan import Plan, plan

TARGETS = ("cpp", "python")


def generate(
    text: str,
    *,
    file: str = "<string>",
    targets: Sequence[str] = TARGETS,
    callable_operators: bool = False,
    per_file: int = PER_FILE,
) -> dict[str, str]:
    """The generated files of a backend, by name.

    `text`: the YAML. `file`: its name, for messages. `targets`: of "cpp" and "python".
    `callable_operators`: also define operators as C++ functions in `at::<backend>`. `per_file`:
    about how many operators stand in one C++ file.

    Raises: OperatorGenerationError for a wrong description, ValueError for an unknown target.
    """
    backend = read_plan(text, file)
    return emit(backend, targets=targets, callable_operators=callable_operators, per_file=per_file)


def read_plan(text: str, file: str = "<string>") -> Plan:
    """The plan of a backend's YAML for each variant. Raises: OperatorGenerationError."""
    declarations = read_declarations()
    return plan(read_description(text, declarations, file), declarations)


def emit(
    backend: Plan,
    *,
    targets: Sequence[str] = TARGETS,
    callable_operators: bool = False,
    per_file: int = PER_FILE,
) -> dict[str, str]:
    """The files of a plan. Arguments as in `generate`."""
    if unknown := sorted(set(targets) - set(TARGETS)):
        raise ValueError(f"unknown target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    files: dict[str, str] = {}
    if "cpp" in targets:
        files |= emit_cpp(backend, callable_operators=callable_operators, per_file=per_file)
    if "python" in targets:
        files |= emit_python(backend)
    return files | emit_test(backend)
