"""Fake tensors: geometry, aliasing, devices, constants, and what they must not import."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fusewright import torch_compat
from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.fake import FakeMode, FakeTensor
from fusewright.fake.handlers import _without_overlap
from fusewright.fake_rules import RULES

SOURCE = Path(__file__).parents[1] / "src"


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device.type


def faked(*tensors: torch.Tensor) -> tuple[FakeMode, list[FakeTensor]]:
    mode = FakeMode()
    return mode, [mode.fake(tensor) for tensor in tensors]


# -- geometry -------------------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "add": lambda x: x + x,
    "add number": lambda x: x + 1,
    "integer division": lambda x: x.long() // 2,
    "true division of integers": lambda x: x.long() / 2,
    "compare": lambda x: x > 0,
    "transposed": lambda x: x.transpose(0, -1) + x.transpose(0, -1),
    "mixed layouts": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2) + x,
    "broadcast": lambda x: x + x[..., :1],
    "expanded": lambda x: x.unsqueeze(0).expand(4, *x.shape).exp(),
    "sum": lambda x: x.sum((0, -1), keepdim=True),
    "sum of bool": lambda x: (x > 0).sum(),
    "mean": lambda x: x.transpose(0, 1).mean(0),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer norm, transposed": lambda x: F.layer_norm(x.transpose(0, 1), x.shape[-1:]),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked fill": lambda x: x.masked_fill(x > 0, 0.0),
    "cat": lambda x: torch.cat([x, x], 1),
    "clamp": lambda x: x.clamp(min=0),
    "power": lambda x: x**2,
    "zero-dimensional": lambda x: x[0, 0, 0] * 2 + x.sum(),
    "empty": lambda x: x[:0].exp().sum(0),
    "half": lambda x: x.half() + x.bfloat16(),
    "matrix product": lambda x: x @ x.transpose(-1, -2),
    "index": lambda x: x[:, torch.tensor([0, 1])],
    "pad": lambda x: F.pad(x, (1, 2)),
    "arange": lambda x: torch.arange(2, 11, 3) + torch.arange(5.0)[:3],
    "linear": lambda x: F.linear(x, x[0], x[0, :, 0]),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(-1).values,
    "amax": lambda x: x.amax((0, 1)),
    "in place": lambda x: x.clone().mul_(2).clamp_(0, 1),
    "transposed in place": lambda x: x.clone().transpose_(0, 1) + 1,
}


@pytest.mark.parametrize("name", CALLS)
def test_geometry_is_that_of_eager(name: str) -> None:
    real = torch.randn(2, 3, 5)
    mode, (fake,) = faked(real)
    with torch.no_grad(), mode:
        found = CALLS[name](fake)
    assert geometry(found) == geometry(CALLS[name](real))


IMAGES: dict[str, Any] = {
    "convolution": lambda x, w, b: F.conv2d(x, w, b, padding=1),
    "strided convolution": lambda x, w, b: F.conv2d(x, w, b, stride=2),
    "batch norm": lambda x, w, b: F.batch_norm(x, b, b.abs(), b, b),
    "pooling": lambda x, w, b: F.max_pool2d(x, 2),
    "adaptive pooling": lambda x, w, b: F.adaptive_avg_pool2d(x, (1, 1)).flatten(1),
    "relu": lambda x, w, b: F.relu(x) + x,
    "channel bias": lambda x, w, b: x + b[:, None, None],
    "group norm": lambda x, w, b: F.group_norm(x, 2, b, b),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_geometry_of_images(name: str, layout: torch.memory_format) -> None:
    x = torch.randn(2, 4, 8, 8).contiguous(memory_format=layout)
    w, b = torch.randn(4, 4, 3, 3), torch.randn(4)
    mode, fakes = faked(x, w, b)
    with torch.no_grad(), mode:
        found = IMAGES[name](*fakes)
    assert geometry(found) == geometry(IMAGES[name](x, w, b))


@st.composite
def operand_pairs(draw: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors that broadcast, each with its dimensions permuted in memory, some sizes 1 or
    expanded.
    """
    rank = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))

    def operand() -> torch.Tensor:
        order = draw(st.permutations(range(rank)))
        base = torch.zeros([sizes[dim] for dim in order])
        inverse = [order.index(dim) for dim in range(rank)]
        tensor = base.permute(inverse)
        for dim in range(rank):
            match draw(st.integers(0, 3)):
                case 0:
                    tensor = tensor.narrow(dim, 0, 1)
                case 1:
                    tensor = tensor.narrow(dim, 0, 1).expand(tensor.shape)
                case _:
                    pass
        return tensor[(0,) * draw(st.integers(0, rank - 1))]

    return operand(), operand()


@settings(max_examples=150, deadline=None)
@given(operand_pairs())
def test_elementwise_strides_are_those_of_eager(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    mode, (x, y) = faked(*pair)
    with torch.no_grad(), mode:
        found = torch.ops.aten.add.Tensor(x, y)
    assert geometry(found) == geometry(pair[0] + pair[1])


def test_every_rule_is_for_an_operator_that_writes_nothing_and_views_nothing() -> None:
    for op in RULES:
        assert not torch_compat.written_arguments(op) and not torch_compat.is_view_operator(op)


def test_attention_is_the_kernel_of_the_real_device() -> None:
    names = []

    class Names(torch_compat.TorchDispatchMode):
        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(op.overloadpacket.__name__)
            return mode.dispatch(op, args, kwargs or {})

    mode, (q,) = faked(torch.randn(1, 2, 4, 8))
    with torch.no_grad(), Names():
        F.scaled_dot_product_attention(q, q, q)
    assert "_scaled_dot_product_flash_attention_for_cpu" in names


def test_torch_reports_its_own_errors() -> None:
    _, (x, y) = faked(torch.randn(2, 3), torch.randn(4, 5))
    with pytest.raises(RuntimeError, match=r"broadcast|size"), torch.no_grad():
        x + y
    with pytest.raises((RuntimeError, ValueError)), torch.no_grad():
        x @ y


def test_devices() -> None:
    mode = FakeMode()
    with mode:
        x = mode.wrap(torch.empty(3, device="meta"), torch.device("cuda", 0))
        assert x.device == torch.device("cuda", 0)
        assert (x + torch.ones(())).device == x.device  # a 0-d tensor on the CPU goes anywhere
        assert x.to("cpu").device.type == "cpu"
        assert torch.ops.aten.zeros.default([2], device="cuda").device == x.device
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)


def test_indices_of_the_cpu_pick_from_a_gpu() -> None:
    aten = torch.ops.aten
    mode = FakeMode()
    with mode:
        gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
        x = mode.wrap(torch.empty(3, 2, device="meta"), gpu)
        rows = mode.wrap(torch.empty(4, 2, device="meta"), gpu)
        places = mode.wrap(torch.empty(4, dtype=torch.int64, device="meta"), cpu)
        assert aten.index.Tensor(x, [places]).device == gpu
        assert aten.index_put.default(x, [places], rows).device == gpu
        other = mode.wrap(torch.empty(4, dtype=torch.int64, device="meta"), gpu)
        with pytest.raises(RuntimeError, match="same device"):
            aten.index.Tensor(mode.wrap(torch.empty(3, 2, device="meta"), cpu), [other])


def test_results_have_memory_of_their_own() -> None:
    """Whatever a meta kernel says: of elements that are one in memory, the last written would be
    all.
    """
    shared = torch.empty_strided((2, 3), (0, 1), device="meta")
    add = torch.ops.aten.add.Tensor
    assert _without_overlap(add, shared).stride() == (3, 1)
    assert _without_overlap(add, shared[:1]).stride() == (0, 1)


# -- aliasing -------------------------------------------------------------------------------------


def share(x: torch.Tensor, y: torch.Tensor) -> bool:
    return torch_compat.storage_key(x.meta_tensor) == torch_compat.storage_key(y.meta_tensor)


def test_views_share_storage_and_results_do_not() -> None:
    _, (x,) = faked(torch.randn(4, 4))
    with torch.no_grad():
        assert share(x, x.t()) and share(x, x[1:]) and share(x, x.view(16)) and share(x, x.detach())
        assert not share(x, x + 1) and not share(x, x.clone())
        assert x.add_(1) is x


def test_real_tensors_are_faked_once_and_alias_as_they_do() -> None:
    base = torch.randn(4, 4)
    mode, (x, row, again) = faked(base, base[1], base)
    assert x is again and share(x, row) and row.storage_offset() == 4
    assert mode.fake_distinct(base) is not x and share(mode.fake_distinct(base), x)


def test_a_mode_does_not_keep_the_fakes_of_dead_tensors() -> None:
    mode = FakeMode()
    mode.fake(torch.randn(3))
    assert not mode._fakes


def test_gradients_are_recorded_as_on_real_tensors() -> None:
    mode, (x,) = faked(torch.randn(3, requires_grad=True))
    assert x.requires_grad
    with mode:
        y = (x * 2).sum()
    assert y.requires_grad and y.grad_fn is not None


def test_inference_mode() -> None:
    real = torch.randn(2, 3)
    mode, (x,) = faked(real)
    with torch.inference_mode(), mode:
        assert geometry(F.linear(x, x).view(4)) == geometry(F.linear(real, real).view(4))


# -- values ---------------------------------------------------------------------------------------


def test_constants_are_known() -> None:
    with FakeMode():
        assert torch.tensor([1, 2, 3]).tolist() == [1, 2, 3]
        assert torch.tensor(2.0).item() == 2.0
        assert bool(torch.tensor(True))
        assert torch.tensor([0, 3, 0]).nonzero().tolist() == [[1]]


def test_operators_of_numbers_alone_are_known() -> None:
    with FakeMode():
        halves = torch.div(7, 2, rounding_mode="trunc")
        assert isinstance(halves, FakeTensor)
        assert halves.item() == 3
        assert torch.empty(6).view(halves, 2).shape == (3, 2)
        assert torch.add(True, 2).item() == 3


def test_constants_are_forgotten_when_overwritten() -> None:
    with FakeMode(), torch.no_grad():
        known, transposed = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1, 2], [3, 4]])
        known[:2].add_(1)
        transposed.t_()
        for changed in (known, transposed):
            with pytest.raises(DataDependent):
                changed.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
    ],
)
def test_data_dependence_is_an_error(call: Any) -> None:
    mode, (x,) = faked(torch.randn(3))
    with pytest.raises(DataDependent), mode, torch.no_grad():
        call(x)


def test_unusual_layouts_are_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="layout"):
        FakeMode().fake(torch.eye(3).to_sparse())


# -- imports --------------------------------------------------------------------------------------

TRANSFORMER = """
import sys
import torch
from torch import nn
from torch.nn import functional as F
from fusewright.fake import FakeMode

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in parts)
        attention = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm(x + self.out(attention.transpose(1, 2).reshape(x.shape)))
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * scale + self.down(F.gelu(self.up(x)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.block = nn.Embedding(100, 64), Block(64)
        self.image = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
        )

    def forward(self, words, image):
        rows = torch.arange(words.shape[1])
        mask = (rows[None, :] <= rows[:, None])[None, None]
        angles = rows[:, None] * torch.arange(64)
        x = self.words(words) + torch.cat([angles.cos(), angles.sin()], -1)[:, :64]
        return self.block(x, torch.where(mask, 0.0, -torch.inf)), self.image(image).flatten(1)

model = Model().eval()
with torch.no_grad(), FakeMode():
    model(torch.zeros(2, 8, dtype=torch.long), torch.randn(2, 3, 16, 16))
heavy = {"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_model_is_traced_without_dynamo_inductor_or_sympy() -> None:
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRANSFORMER)],
        check=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        timeout=120,
    )


def test_torch_references_run_without_dynamo() -> None:
    """An operator without a rule of ours goes through torch's Python references, which ask for
    dynamo.
    """
    code = """
    import sys, torch
    from fusewright.fake import FakeMode
    x = torch.randn(3, 3)
    with torch.no_grad(), FakeMode() as mode:
        torch.nextafter(x, x)
    assert "torch._dynamo" not in sys.modules
    import torch._dynamo
    with torch.no_grad(), FakeMode() as mode:
        torch.nextafter(x, x)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        timeout=120,
    )


# -- operators without a meta kernel --------------------------------------------------------------


def test_an_operator_without_a_meta_kernel_is_tried_on_zeros() -> None:
    operator = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default
    real = torch.randn(4, 3).t()
    mode, (fake,) = faked(real)
    found = mode.dispatch(operator, (fake, 0.5, 0, 0, 255), {})
    wanted = operator(real, 0.5, 0, 0, 255)
    assert [geometry(one) for one in found] == [geometry(one) for one in wanted]


def test_least_squares_without_residuals_and_lengths_given_as_numbers() -> None:
    a, b = torch.randn(5, 3), torch.randn(5, 2)
    mode, fakes = faked(a, b)
    operator = torch.ops.aten.linalg_lstsq.default
    for driver in (None, "gels"):
        found = mode.dispatch(operator, tuple(fakes), {"driver": driver})
        wanted = operator(a, b, driver=driver)
        assert [geometry(one) for one in found] == [geometry(one) for one in wanted]
    with pytest.raises(DataDependent):
        mode.dispatch(operator, tuple(fakes), {"driver": "gelsd"})

    given = (torch.randn(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2, 3], [3, 1, 2]]))
    mode, fakes = faked(*given)
    operator = torch.ops.aten._ctc_loss.default
    found = mode.dispatch(operator, (*fakes, [6, 6], [2, 3]), {})
    wanted = operator(*given, [6, 6], [2, 3])
    assert [geometry(one) for one in found] == [geometry(one) for one in wanted]


@pytest.mark.parametrize("mode_number", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_bags_of_embeddings_keep(mode_number: int, dtype: torch.dtype) -> None:
    given = (torch.randn(7, 4, dtype=dtype), torch.tensor([1, 6, 2, 2, 5]), torch.tensor([0, 2]))
    mode, fakes = faked(*given)
    operator = torch.ops.aten._embedding_bag.default
    found = mode.dispatch(operator, (*fakes, False, mode_number), {})
    wanted = operator(*given, False, mode_number)
    assert [geometry(one) for one in found] == [geometry(one) for one in wanted]


def test_nothing_is_tried_that_could_be_seen() -> None:
    calls = []
    library = torch.library.Library("fusewright_tests", "FRAGMENT")
    library.define("counts(Tensor x) -> Tensor")
    library.impl("counts", lambda x: calls.append(x) or x.clone(), "CPU")
    mode, (fake,) = faked(torch.ones(2))
    with pytest.raises(UnsupportedOperator, match="cannot tell"):
        mode.dispatch(torch.ops.fusewright_tests.counts.default, (fake,), {})
    assert not calls
    with pytest.raises(UnsupportedOperator, match="cannot tell"):  # its result is sparse
        mode.dispatch(torch.ops.aten._to_sparse.default, (fake,), {})
