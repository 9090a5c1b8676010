"""The Python target: generated wrappers on a device made without a compiler, against the CPU."""

from __future__ import annotations

import textwrap

import pytest

from tests.opgen.processes import run_program


def run(program: str) -> str:
    """The output of a program that may register the device."""
    start = "import torch, warnings\nfrom tests.opgen.sweep import register\n"
    start += "from fusewright.opgen.declarations import Kind\n"
    start += "from tests.opgen.everything import operators_of\n"
    return run_program(start + textwrap.dedent(program))


OPERATORS = (
    *("add", "cumsum", "addmm", "index_add", "sort", "bernoulli", "where"),
    *("clamp", "sum", "polygamma", "masked_scatter", "conj_physical", "split_with_sizes_copy"),
)


@pytest.mark.parametrize(
    "kind",
    ["functional", *(pytest.param(k, marks=pytest.mark.thorough) for k in ("in-place", "out"))],
)
def test_variants_against_the_cpu_on_torchs_samples(kind: str) -> None:
    """Kernels of one kind alone; all other variants are generated."""
    output = run(
        f"""
        import sys
        from tests.opgen import sweep
        sys.argv[1:] = {["--kind", kind, "--samples", "1", *OPERATORS]!r}
        sweep.main()
        """
    )
    assert "'agree'" in output
    assert "'differ'" not in output


@pytest.mark.thorough
def test_wrappers_without_checks_are_found_out() -> None:
    output = run(
        """
        from torch.testing._internal.common_methods_invocations import op_db
        from fusewright.opgen import support
        from fusewright.opgen.conformance import differences
        register(operators_of(Kind.FUNCTIONAL))
        support.check_overlap = lambda *tensors: None
        support._check_dtype = lambda *arguments: None
        support.resize_outs = lambda outs, results, castable: outs.resize_(results.size())
        (info,) = (info for info in op_db if info.name == "add" and not info.variant_test_name)
        for line in differences(info, "hosted", torch.float32, samples=2):
            print(line)
        """
    )
    for form in ("overlapping the input in part", "too large", "in-place, of integers"):
        assert f"{form}: " in output


def test_autograd_is_torchs_own() -> None:
    run(
        """
        register(operators_of(Kind.FUNCTIONAL))
        leaf = torch.ones(3, device="hosted", requires_grad=True)
        x = leaf * 2
        version = x._version
        x.mul_(leaf).relu_()
        assert x._version == version + 2
        x.sum().backward()
        assert leaf.grad.cpu().tolist() == [4.0, 4.0, 4.0]
        for write in (lambda: leaf.add_(1), lambda: torch.add(leaf, 1, out=x.detach())):
            try:
                write()
            except RuntimeError as error:
                assert "requires grad" in str(error) or "automatic differentiation" in str(error)
            else:
                raise AssertionError("written to in spite of autograd")
        saved = leaf * 1
        product = saved * saved
        saved.add_(1)
        try:
            product.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            raise AssertionError("the version counter was not looked at")
        """
    )


def test_falling_back_is_counted_and_named_once() -> None:
    output = run(
        """
        module = register(operators_of(Kind.MUTABLE))
        module.fall_back.mode = "warn"
        x = torch.arange(6.0).to("hosted").view(2, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.t().erf_()          # in place, through a view
            x.t().erf_()
            parts = torch.split(x, 1)
            joined = torch.cat([part.sin() for part in parts])
        expected = torch.arange(6.0).view(2, 3).erf_().erf_()
        assert torch.equal(x.cpu(), expected)
        assert torch.allclose(joined.cpu(), expected.sin())
        parts[0].zero_()
        assert x[0].cpu().tolist() == [0.0, 0.0, 0.0]
        print([str(w.message).split()[0] for w in caught if "no kernel" in str(w.message)])
        print(module.fall_back.counts["aten::erf.out"] + module.fall_back.counts["aten::erf_"])
        module.fall_back.mode = "error"
        try:
            x.cos()
        except NotImplementedError as error:
            print(error)
        module.fall_back.mode = "quiet"
        try:
            torch.ops.aten._masked_scale(x, x, 1.0)
        except NotImplementedError as error:
            print(error)
        """
    )
    names, count, refusal, nowhere = output.splitlines()
    assert nowhere == "aten::_masked_scale has no kernel on this device, nor on the CPU"
    assert names.count("erf") == 1
    assert count == "2"
    assert refusal.endswith("has no kernel on this device, and falling back to the CPU is off")


def test_conjugates_are_copied() -> None:
    run(
        """
        register(operators_of(Kind.MUTABLE))
        x = torch.complex(torch.ones(2), torch.tensor([2.0, -3.0]))
        there = x.to("hosted")
        assert torch.equal(there.conj().clone().cpu(), x.conj())
        assert torch.equal(there.conj().imag.clone().cpu(), -x.imag)
        """
    )


@pytest.mark.thorough
def test_convolutions_fall_back_with_their_gradients() -> None:
    run(
        """
        register(operators_of(Kind.MUTABLE))
        def gradients(device):
            torch.manual_seed(0)
            layer = torch.nn.Conv2d(2, 3, 3, padding=1)
            back = torch.nn.ConvTranspose2d(3, 2, 3, stride=2)
            image = torch.randn(1, 2, 5, 5)
            layer.to(device), back.to(device)
            image = image.to(device).requires_grad_()
            back(layer(image)).sin().sum().backward()
            return [x.grad.cpu() for x in (image, *layer.parameters(), *back.parameters())]
        torch.testing.assert_close(gradients("hosted"), gradients("cpu"))
        """
    )


def test_a_backend_without_memory_is_told_what_it_lacks() -> None:
    output = run(
        """
        import types
        from fusewright.opgen import generate
        from tests.opgen import host_device
        text = "backend: hosted\\ncpp_namespace: x\\nsupported: [relu]"
        module = types.ModuleType("hosted_operators")
        exec(generate(text, targets=["python"])["hosted_operators.py"], module.__dict__)
        host_device.load()
        module.register(types.SimpleNamespace(relu=torch.relu))
        try:
            torch.empty(3, device="hosted")
        except NotImplementedError as error:
            print(error)
        """
    )
    assert output == ("the backend must provide aten::empty.memory_format: all others rest on it\n")


def test_a_kernel_that_differentiates_itself() -> None:
    run(
        """
        import types
        from fusewright.opgen import generate
        from tests.opgen import host_device

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x.to("cpu").mul(2).to("hosted")

            @staticmethod
            def backward(context, gradient):
                return gradient.cpu().mul(100).to("hosted")

        names = "".join(f"- {name}\\n" for name in host_device.SUPPORTED)
        text = f"backend: hosted\\ncpp_namespace: x\\nsupported:\\n{names}autograd: [relu]"
        module = types.ModuleType("hosted_operators")
        exec(generate(text, targets=["python"])["hosted_operators.py"], module.__dict__)
        host_device.load()
        kernels = types.SimpleNamespace(**vars(host_device.KERNELS), relu=Double.apply)
        module.register(kernels)
        x = torch.ones(3).to("hosted").requires_grad_()
        x.relu().sum().backward()
        assert x.grad.cpu().tolist() == [100.0] * 3
        with torch.inference_mode():
            assert x.detach().relu().cpu().tolist() == [2.0] * 3
        assert x.detach().clone().relu_().cpu().tolist() == [2.0] * 3
        """
    )
