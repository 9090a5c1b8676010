"""The C++ types of every operator, against those of torch's dispatcher as torchgen writes them."""

from __future__ import annotations

import re

from torchgen import local
from torchgen.api.types import DispatcherSignature
from torchgen.gen import parse_native_yaml
from torchgen.model import NativeFunction

from fusewright.opgen import read_declarations
from fusewright.opgen.cpp_types import parameter_list, result_type


def torchs_signature(function: NativeFunction) -> str:
    with local.parametrize(
        use_const_ref_for_mutable_tensors=function.use_const_ref_for_mutable_tensors,
        use_ilistref_for_tensor_lists=function.part_of_structured_group,
    ):
        signature = DispatcherSignature.from_schema(function.func, symint=False)
        arguments = ", ".join(argument.decl() for argument in signature.arguments())
        text = f"{signature.returns_type().cpp_type()} ({arguments})"
    text = text.replace(" &", "&").replace("at::DimnameList", "at::ArrayRef<at::Dimname>")
    text = re.sub(r"(?<![\w:])::", "", text)  # `::std` for `std`
    return re.sub(r",(?! )", ", ", text)


def test_signatures_are_the_dispatchers() -> None:
    declarations = read_declarations()
    tags = declarations.file.parent / "tags.yaml"
    functions = parse_native_yaml(str(declarations.file), str(tags)).native_functions
    assert len(functions) == len(declarations.operators)
    for function in functions:
        operator = declarations.operators[str(function.func.name)]
        ours = f"{result_type(operator)} ({parameter_list(operator)})"
        assert ours == torchs_signature(function), operator.name
