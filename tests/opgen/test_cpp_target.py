"""The C++ target: the text of wrappers, and the example's device, compiled and trained."""

from __future__ import annotations

import re
import shutil
import textwrap

import pytest

from fusewright.opgen import generate, read_declarations
from fusewright.opgen.emit_cpp import SUPPORT
from tests.golden import golden
from tests.opgen.processes import run_program

pytestmark = pytest.mark.thorough


@golden("cases/cpp.txt")
def test_wrappers(text: str) -> str:
    files = generate(f"backend: npu\ncpp_namespace: npu\nsupported:\n{text}", targets=["cpp"])
    source = files["RegisterNpu.cpp"]
    return source.partition("namespace {\n")[2].partition("}  // namespace\n")[0].strip() + "\n"


def test_files_and_what_they_declare() -> None:
    text = "backend: my_npu\ncpp_namespace: a::b\nsupported: [mm]\nautograd: [linear]\n"
    files = generate(text, targets=["cpp"], callable_operators=True)
    assert sorted(files) == [
        "MyNpuKernels.h",
        "MyNpuOperators.h",
        "OpgenSupport.h",
        "RegisterAutogradMyNpu.cpp",
        "RegisterMyNpu.cpp",
        "test_my_npu_operators.py",
    ]
    assert (
        "at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2);" in files["MyNpuKernels.h"]
    )
    assert 'm.impl("linear", TORCH_FN(a::b::linear));' in files["RegisterAutogradMyNpu.cpp"]
    assert "at::Tensor& mm_outf(" in files["MyNpuOperators.h"]


def test_operators_that_resize_take_a_constant_reference() -> None:
    text = "backend: npu\ncpp_namespace: npu\nsupported: [resize_as_]\n"
    header = generate(text, targets=["cpp"])["NpuKernels.h"]
    assert "const at::Tensor& resize_as_(\n    const at::Tensor& self, const at" in header


def test_calls_cannot_mean_an_operator() -> None:
    """An unqualified call with tensors finds ATen's functions too, wherever a header has them."""
    bases = {operator.base for operator in read_declarations().operators.values()}
    lines = [line.partition("//")[0] for line in SUPPORT.read_text().splitlines()]
    inside = "\n".join(line for line in lines if line.startswith(" "))
    assert not bases & set(re.findall(r"(?<![\w.:>])(\w+)\(", inside))


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="compiles the example's device with g++"
)


def run(program: str) -> str:
    """The output of a program that has loaded the example's device."""
    start = "import torch\nfrom examples.external_backend.build import load\nload()\n"
    return run_program(start + textwrap.dedent(program))


@needs_compiler
def test_the_example_trains_as_the_cpu_does() -> None:
    output = run("from examples.external_backend.train import main; main(steps=3)")
    header, first = output.splitlines()[:2]
    assert header.split() == ["cpu", "ember", "ember,", "compiled"]
    assert len(set(first.split())) == 1
    assert "aten::nll_loss_forward.output" in output  # what it has no kernel for
    assert "aten::add" not in output  # what it has a kernel for, or a variant of one


@needs_compiler
def test_capture_on_the_device() -> None:
    run(
        """
        import fusewright
        torch.ops.ember.set_fallback("quiet")
        x = torch.randn(3, 4).to("ember").requires_grad_()
        compiled = fusewright.compile(lambda a: (a * a + 1).relu(), backend="eager", fullgraph=True)
        compiled(x).sum().backward()
        assert x.grad.device.type == "ember"
        torch.testing.assert_close(x.grad.cpu(), 2 * x.detach().cpu())
        """
    )


@needs_compiler
def test_the_examples_variants_are_those_of_the_cpu() -> None:
    output = run(
        """
        from torch.testing._internal.common_methods_invocations import op_db
        from fusewright.opgen.conformance import differences
        names = ("add", "mul", "sub", "mm", "addmm", "nn.functional.relu", "sum", "log_softmax")
        for info in op_db:
            if info.name in names and info.variant_test_name == "":
                for line in differences(info, "ember", torch.float32, samples=2, same_text=True):
                    print(line)
        """
    )
    assert output == ""


@needs_compiler
def test_conjugates_are_copied() -> None:
    run(
        """
        torch.ops.ember.set_fallback("quiet")
        x = torch.complex(torch.ones(2), torch.tensor([2.0, -3.0]))
        there = x.to("ember")
        assert torch.equal(there.conj().clone().cpu(), x.conj())
        assert torch.equal(there.conj().imag.clone().cpu(), -x.imag)
        assert torch.equal(there.conj().cpu(), x.conj())
        """
    )


@needs_compiler
def test_memory_is_the_devices_own() -> None:
    run(
        """
        before = torch.ember.memory_allocated()
        x = torch.empty(1000, device="ember")
        assert torch.ember.memory_allocated() == before + 4000
        view = x[10:20]
        del x
        assert torch.ember.memory_allocated() == before + 4000
        view.resize_(2000)
        assert torch.ember.memory_allocated() == before + 8040
        del view
        assert torch.ember.memory_allocated() == before
        """
    )


@needs_compiler
def test_views_and_in_place_fall_back_to_the_same_memory() -> None:
    run(
        """
        torch.ops.ember.set_fallback("quiet")
        x = torch.arange(12.0, device="ember").view(3, 4)
        x.t()[1:].exp_()
        x.unfold(1, 2, 1)[0, 0].zero_()
        torch.view_as_complex(x.view(3, 2, 2))[2].sqrt_()
        expected = torch.arange(12.0).view(3, 4)
        expected.t()[1:].exp_()
        expected.unfold(1, 2, 1)[0, 0].zero_()
        torch.view_as_complex(expected.view(3, 2, 2))[2].sqrt_()
        assert torch.equal(x.cpu(), expected)
        assert "aten::exp.out" in torch.ops.ember.fallback_counts()
        try:
            torch.ops.aten._masked_scale(x, x, 1.0)
        except NotImplementedError as error:
            assert "aten::_masked_scale has no kernel on this device, nor on the CPU" in str(error)
        else:
            raise AssertionError("there is no such kernel")
        torch.ops.ember.set_fallback("error")
        try:
            x.cos()
        except NotImplementedError as error:
            assert "aten::cos" in str(error) and "falling back to the CPU is off" in str(error)
        else:
            raise AssertionError("fell back")
        try:
            torch.ops.ember.set_fallback("never")
        except ValueError as error:
            assert "not 'never'" in str(error)
        """
    )
