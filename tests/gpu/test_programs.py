"""Small programs compiled for a GPU give what they give eagerly, and what they give in float64."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import fusewright
from tests.gpu.programs import DIFFERENTIABLE, PROGRAMS
from tests.gpu.support import CUDA, agree, gradients, needs_gpu

pytestmark = needs_gpu

STRICT = {"strict": True, "verify": True}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str) -> None:
    case = PROGRAMS[name]
    inputs = case.inputs(CUDA)
    compiled = fusewright.compile(case.function, fullgraph=True, options=STRICT)
    with torch.no_grad():
        agree(compiled(*inputs), case.function(*inputs), check_stride=True)
        agree(compiled(*inputs), case.function(*inputs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_any_size(name: str) -> None:
    case = PROGRAMS[name]
    inputs = case.inputs(CUDA)
    compiled = fusewright.compile(case.function, dynamic=True, options=STRICT)
    with torch.no_grad():
        agree(compiled(*inputs), case.function(*inputs))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_gradient_of_a_program(name: str) -> None:
    case = PROGRAMS[name]
    inputs = case.inputs(CUDA)
    found = gradients(fusewright.compile(case.function, fullgraph=True, options=STRICT), inputs)
    agree(found, gradients(case.function, inputs), factor=4)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_gradient_of_a_program_of_any_size(name: str) -> None:
    case = PROGRAMS[name]
    inputs = case.inputs(CUDA)
    found = gradients(fusewright.compile(case.function, dynamic=True, options=STRICT), inputs)
    agree(found, gradients(case.function, inputs), factor=4)


def test_indices_of_the_cpu() -> None:
    def f(x: Any, places: Any, rows: Any) -> Any:
        return x[places] * 2, torch.index_put(x, (places,), rows)

    given = torch.randn(5, 4, device=CUDA), torch.tensor([3, 0]), torch.randn(2, 4, device=CUDA)
    with torch.no_grad():
        agree(fusewright.compile(f, fullgraph=True, options=STRICT)(*given), f(*given))


def test_unaligned_inputs() -> None:
    """Pointers that are no multiples of 16 bytes take a kernel of their own."""
    whole = torch.randn(4097, device=CUDA)

    def f(x: Any) -> Any:
        return x * 2 + 1

    compiled = fusewright.compile(f, options=STRICT)
    with torch.no_grad():
        for start in (0, 1, 2, 3, 4):
            part = whole[start : start + 4000]
            agree(compiled(part), f(part))


def test_writes_to_an_input() -> None:
    def f(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y.sum())
        y[:, 1] = 0
        return x + 1

    for _ in range(2):
        given = [torch.randn(6, 7, device=CUDA), torch.randn(5, 5, device=CUDA)]
        copies = [one.clone() for one in given]
        with torch.no_grad():
            agree(fusewright.compile(f, fullgraph=True, options=STRICT)(*given), f(*copies))
        agree(given, copies)


def test_two_devices_in_one_graph() -> None:
    def f(x: Any, y: Any) -> Any:
        host = (y + 1).exp()
        return x.sin() + host.to(x.device), host * 2, (x * 3).cpu() + y

    x, y = torch.randn(30, 20, device=CUDA), torch.randn(30, 20)
    with torch.no_grad():
        agree(fusewright.compile(f, fullgraph=True, options=STRICT)(x, y), f(x, y))


def test_tensors_made_inside() -> None:
    def f(x: Any) -> Any:
        places = torch.arange(x.shape[1], device=x.device)
        return x + places, torch.zeros_like(x).fill_(2), torch.full((3,), 1.5, device="cuda")

    x = torch.randn(4, 9, device=CUDA)
    with torch.no_grad():
        agree(fusewright.compile(f, fullgraph=True, options=STRICT)(x), f(x))


def test_dropout_draws_what_eager_draws() -> None:
    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x * 2, 0.3) + torch.rand_like(x)

    x = torch.randn(64, 64, device=CUDA)
    compiled = fusewright.compile(f, fullgraph=True, options={**STRICT, "eager_random": True})
    with torch.no_grad():
        torch.manual_seed(3)
        wanted = f(x)
        torch.manual_seed(3)
        agree(compiled(x), wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_dropout_in_kernels(dynamic: bool) -> None:
    """Backward drops what forward dropped; so many elements are dropped; torch's seed decides
    which, and each call draws anew.
    """

    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.25)

    x = torch.ones(1000, 1001, device=CUDA, requires_grad=True)
    compiled = fusewright.compile(f, dynamic=dynamic, options=STRICT)
    kept = []
    for seed in (3, 4, 3, None):
        if seed is not None:
            torch.manual_seed(seed)
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(gradient, y.detach())
        assert torch.equal(y != 0, (y - 4 / 3).abs() < 1e-6)
        assert abs(float((y != 0).double().mean()) - 0.75) < 3e-3
        kept.append(y != 0)
    assert torch.equal(kept[0], kept[2])
    for one, other in ((0, 1), (2, 3)):
        agreeing = float((kept[one] == kept[other]).double().mean())
        assert abs(agreeing - (0.75**2 + 0.25**2)) < 3e-3


def test_the_callers_stream() -> None:
    """Work goes to the current stream: what waits for that alone sees it done."""
    stream = torch.cuda.Stream()
    x = torch.randn(1 << 22, device=CUDA)

    def f(x: Any) -> Any:
        for _ in range(20):
            x = (x * 1.01).sin()
        return x.abs().cumsum(0) + 1

    compiled = fusewright.compile(f, fullgraph=True, options=STRICT)
    with torch.no_grad():
        wanted = f(x)
        compiled(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            y = x * 1
            found = compiled(y)
        stream.synchronize()
        agree(found, wanted)


def test_threads_with_streams_of_their_own() -> None:
    """What one of them frees, on its stream, another does not write to before it is read."""

    def f(x: Any) -> Any:
        for _ in range(6):
            x = (x @ x).softmax(-1) + x.sin()
        return x

    compiled = fusewright.compile(f, fullgraph=True, options=STRICT)
    given = [torch.randn(300, 300, device=CUDA) for _ in range(4)]
    with torch.no_grad():
        wanted = [f(x) for x in given]
        compiled(given[0])
    torch.cuda.synchronize()

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            results = [compiled(x) for _ in range(50)]
        stream.synchronize()
        return results

    with ThreadPoolExecutor(4) as pool:
        for results, one in zip(pool.map(run, given), wanted, strict=True):
            agree(results, [one] * 50, factor=20)


def test_more_memory_than_there_is() -> None:
    """Programs wait for eager's exception, to go on with less; nothing of the call is kept."""

    def f(x: Any) -> Any:
        y = x.sin().cumsum(0)
        return y[:, None] + y

    compiled = fusewright.compile(f, dynamic=True, options=STRICT)
    large, small = (torch.randn(size, device=CUDA) for size in (1 << 20, 100))
    with torch.no_grad():
        agree(compiled(small), f(small))
        gc.collect()
        before = torch.cuda.memory_allocated()
        for function in (f, compiled):
            with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
                function(large)
        gc.collect()
        assert torch.cuda.memory_allocated() <= before
        agree(compiled(small), f(small))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_another_device_than_the_current_one() -> None:
    other = torch.device("cuda:1")

    def f(x: Any) -> Any:
        return x.softmax(-1) + 1

    x = torch.randn(50, 60, device=other)
    with torch.no_grad():
        agree(fusewright.compile(f, fullgraph=True, options=STRICT)(x), f(x))
    assert torch.cuda.current_device() == 0


def test_indices_that_need_64_bits() -> None:
    if torch.cuda.mem_get_info()[0] < 10 << 30:
        pytest.skip("the GPU has less than 10 GiB free")

    def f(x: Any) -> Any:
        return x + 1

    x = torch.zeros((1 << 31) + 4096, dtype=torch.int8, device=CUDA)
    x[-1], x[1 << 31] = 5, 7
    with torch.no_grad():
        found = fusewright.compile(f, fullgraph=True, options=STRICT)(x)
    assert found[-1].item() == 6 and found[1 << 31].item() == 8 and found[12345].item() == 1
    assert int((found != 1).sum()) == 2
