"""Each error in a backend's YAML names file, line, and the right spelling."""

from __future__ import annotations

import pytest

from fusewright.errors import OperatorGenerationError
from fusewright.opgen.declarations import read_declarations
from fusewright.opgen.description import read_description
from tests.golden import golden


@golden("cases/errors.txt")
def test_errors(text: str) -> str:
    read_description(text, read_declarations(), "npu.yaml")
    return "accepted\n"


def test_characters_that_yaml_has_not() -> None:
    text = "backend: npu\ncpp_namespace: \0\n"
    with pytest.raises(OperatorGenerationError, match=r"npu.yaml:2: malformed YAML: control"):
        read_description(text, read_declarations(), "npu.yaml")


def test_full_signatures_and_both_lists() -> None:
    text = """
    backend: npu
    cpp_namespace: at::npu
    supported:
      - add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
      - aten::relu
      - mm.out: structured
    autograd:
      - linear
    """
    described = read_description(text, read_declarations(), "npu.yaml")
    assert list(described.entries) == ["add.Tensor", "relu", "mm.out", "linear"]
    assert [entry.line for entry in described.entries.values()] == [5, 6, 7, 9]
    assert described.entries["mm.out"].structured
    assert described.entries["linear"].differentiated
    assert described.dispatch_key == "PrivateUse1"
