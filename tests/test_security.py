"""What docs/security.md promises: nothing that is read from disk is run as Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fusewright
from fusewright.runtime.loader import load_module, text_of_module

ROOT = Path(fusewright.__file__).parent

ALLOWED = {
    "records.py exec": "the constructor of a record, written from the names of its fields",
    "runtime/loader.py exec": "a generated module, from the text that this process has made",
    "runtime/native_plan.py eval": "the constants of a plan, from the text this process has made",
    "runtime/measuring.py eval": "the sizes of `python FILE`, a program that somebody runs",
    "bisection/alone.py eval": "the inputs that a reproduction draws, from text made here",
    "runtime/triton_compiler.py exec_module": "a kernel, whose file holds the text made here",
    "fuzz/program.py exec": "a random program, which somebody runs",
    "fuzz/tensors.py exec": "a random program while it is made",
    "fuzz/tensors.py eval": "an expression of a random program while it is made",
}
"""By file and function: why it may stand there."""

READS_CODE = {"exec", "eval", "exec_module"}
NEVER_IMPORTED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
IMPORTED = {
    "capture/handlers/library.py pickle": "captures `pickle.dumps` of the program's own",
    "ir/stored.py marshal": "tells equal rows by their bytes, which are kept nowhere",
}


def test_nothing_read_from_disk_is_run() -> None:
    calls: set[str] = set()
    imports: set[str] = set()
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                function = _name_of(node.func)
                if function in READS_CODE:
                    calls.add(f"{name} {function}")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names]
                names.append(getattr(node, "module", None) or "")
                tops = {one.partition(".")[0] for one in names}
                imports |= {f"{name} {top}" for top in tops & NEVER_IMPORTED}
    assert calls == set(ALLOWED)
    assert imports == set(IMPORTED)


def _name_of(function: ast.expr) -> str:
    """`eval` is a builtin, and a method of modules, which switches dropout off; `exec_module` is a
    method of loaders.
    """
    if isinstance(function, ast.Name):
        return function.id
    is_method = isinstance(function, ast.Attribute) and function.attr == "exec_module"
    return function.attr if is_method else ""


def test_torch_loads_tensors_alone() -> None:
    """Each call of `torch.load` allows nothing else."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), path


def test_a_changed_module_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`explain` times a graph by the text in its file."""
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    module = load_module("def call(inputs):\n    return ()\n", {})
    assert text_of_module(module.path).startswith("def call")
    module.path.write_text("import os\n")
    with pytest.raises(ValueError, match="it was changed"):
        text_of_module(module.path)
