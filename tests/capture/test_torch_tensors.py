"""Tensors under capture: attributes, indexing, views, writes, constructors, and what reads data."""

# ruff: noqa: B905, C416, E741, RUF005
# (these functions are meant to use every form that the language has)

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) - 5
I = torch.tensor([2, 0, 1])
M = torch.tensor([True, False, True])
C = torch.complex(X, X.flip(0))
G = (torch.arange(12.0).reshape(3, 4) / 7).requires_grad_()
S = torch.tensor(3)
SCALAR = torch.tensor(2.5)
BATCH = torch.arange(24.0).reshape(2, 3, 4)

cases = Cases()

# -- metadata -------------------------------------------------------------------------------------


@cases(BATCH)
def shape_attributes(x: Any) -> Any:
    return (
        x.shape, x.size(), x.size(1), x.size(dim=-1), x.dim(), x.ndim, x.ndimension(), x.numel(),
        x.nelement(), x.stride(), x.stride(0), len(x), x.itemsize, x.nbytes,
        x.element_size(), x.is_contiguous(), x.is_contiguous(memory_format=torch.contiguous_format),
    )  # fmt: skip


@cases(BATCH)
def type_attributes(x: Any) -> Any:
    return (
        x.dtype, x.device, x.layout, x.is_cuda, x.is_cpu, x.is_meta, x.is_sparse, x.is_quantized,
        x.is_mkldnn, x.is_mps, x.is_xpu, x.is_nested, x.is_sparse_csr, x.is_floating_point(),
        x.is_complex(), x.is_signed(), x.is_conj(), x.is_neg(), x.is_inference(),
        x.get_device(), x.type(), x.requires_grad, x.is_leaf, x.grad is None, x.output_nr,
        x.device.type, x.dtype.is_floating_point, x.dtype.itemsize,
        x.retains_grad, x.grad_fn is None, x.is_same_size(x), x.dense_dim(),
    )  # fmt: skip


@cases(G)
def gradient_attributes(x: Any) -> Any:
    y = x * 2
    return y, y.requires_grad, y.is_leaf, x.is_leaf, x.requires_grad, y.detach().requires_grad


@cases(X)
def tensor_attributes(x: Any) -> Any:
    return x.T, x.mT, x.H, x.mH, x.real, x.data


@cases(C)
def complex_attributes(x: Any) -> Any:
    return x.real, x.imag, x.H, x.mH, x.conj(), x.conj().is_conj(), x.is_complex(), x.abs(), x * 2j


@cases(X)
def size_arithmetic(x: Any) -> Any:
    a, b = x.shape
    more = x.shape + (1,)
    return (
        x.reshape(b, a), x.shape[0] * x.shape[-1], x.shape[:-1], more, (1,) + x.shape,
        x.shape == (3, 4), x.shape == torch.Size([3, 4]), list(x.shape), x.shape.numel(),
        torch.Size((2, 3)), torch.Size([2, 3]).numel(), x.shape[1:] + x.shape[:1], len(x.shape),
        x.new_zeros(x.shape[::-1]), x.shape * 2, 3 in x.shape, x.shape.index(4), tuple(x.shape),
        max(x.shape), *x.shape, x.shape.count(3), isinstance(x.shape, tuple),
    )  # fmt: skip


@cases(X)
def kinds(x: Any) -> Any:
    return (
        isinstance(x, torch.Tensor), isinstance(x, torch.nn.Parameter), torch.is_tensor(x),
        torch.is_tensor(3), type(x) is torch.Tensor, isinstance(x, (int, torch.Tensor)),
        isinstance(x, torch.FloatTensor), isinstance(x, torch.LongTensor), x.__class__,
        torch.is_floating_point(x), torch.is_complex(x), torch.numel(x), hasattr(x, "shape"),
        hasattr(x, "nothing"), callable(x.add), torch.overrides.is_tensor_like(x),
        torch.is_storage(x), torch.is_nonzero(torch.tensor(1)),
        isinstance(x + 1, torch.FloatTensor),
        isinstance(x.double(), torch.FloatTensor), isinstance(x * 2, torch.nn.Parameter),
    )  # fmt: skip


@cases(X)
def dtypes_and_devices(x: Any) -> Any:
    cpu = torch.device("cpu")
    return (
        x.dtype == torch.float32, x.dtype is torch.float32, x.device == cpu, cpu.type, cpu.index,
        x.device == "cpu", torch.device("cuda", 1), torch.device("cuda:1").index, str(x.dtype),
        torch.finfo(x.dtype).eps, torch.finfo(x.dtype).max, torch.iinfo(torch.int8).min,
        torch.promote_types(torch.int64, torch.float16), torch.can_cast(torch.int64, x.dtype),
        torch.result_type(x, 1), x.dtype in (torch.float16, torch.float32), x.dtype.to_complex(),
        f"{x.dtype} {x.device}", torch.float32.is_complex, repr(cpu),
    )  # fmt: skip


@cases(X, raises=True)
def unknown_attribute(x: Any) -> Any:
    return x.nothing


@cases(X)
def default_attribute(x: Any) -> Any:
    return getattr(x, "nothing", 3), getattr(x, "shape", None), x.add(1)


def _with_attributes() -> tuple[Any, ...]:
    x = X.clone()
    x.tag = "a"
    x.other = torch.ones(4)
    x.table = {"k": [1, 2]}
    return (x,)


@cases(_with_attributes)
def user_attributes(x: Any) -> Any:
    return x + x.other, x.tag, x.table["k"][1], hasattr(x, "tag"), hasattr(x, "gone")


@cases(X)
def set_user_attribute(x: Any) -> Any:
    y = x + 1
    y.tag = "made"
    return y * 2, y.tag, hasattr(x, "tag")


# -- indexing -------------------------------------------------------------------------------------


@cases(BATCH, I)
def plain_keys(x: Any, i: Any) -> Any:
    return (
        x[0], x[-1], x[0, 1], x[0, 1, 2], x[:, 1], x[..., 0], x[None], x[:, None, 1:], x[1:, ::2],
        x[...], x[:], x[0, ..., 1], x[:, :, None, ...], x[True], x[None, ..., None], x[()],
        x[slice(0, 1)], x[(0, slice(None))], x[0:0], x[5:], x[:, -2:], x[..., -1:, :],
    )  # fmt: skip


@cases(BATCH, I)
def advanced_keys(x: Any, i: Any) -> Any:
    return (
        x[:, i], x[[0, 1]], x[:, [2, 0]], x[..., i], x[i % 2, i], x[[0, 1], [1, 2]],
        x[:, i[:, None], i], x[torch.tensor(1)], x[:, torch.tensor([[0, 1], [1, 2]])],
        x[0][i], x[0, [1]],
    )  # fmt: skip


@cases(X, M)
def mask_key(x: Any, mask: Any) -> Any:
    return x[mask] + 1


@cases(X, raises=True)
def negative_step(x: Any) -> Any:
    return x[::-1]


@cases(X, raises=True)
def index_out_of_range(x: Any) -> Any:
    return x[7]


@cases(X, raises=True)
def too_many_indices(x: Any) -> Any:
    return x[0, 0, 0]


@cases(X, I, M)
def store_items(x: Any, i: Any, mask: Any) -> Any:
    y = x.clone()
    y[0] = 1
    y[:, 1] = torch.ones(3)
    y[i, 2] = 7.0
    y[mask] = -1
    y[..., -1] += 3
    y[1, 1] *= 2
    x[0, 0] = 100
    return y


@cases(X, torch.tensor(True), torch.tensor(False))
def store_by_one_truth(x: Any, yes: Any, no: Any) -> Any:
    y = x.clone()
    y[yes] = torch.ones(4)
    y[no] = 3
    y[yes] = torch.full((1, 3, 1), 2.0)
    y[no] = torch.ones(1, 1, 3, 4)
    y[yes] = 2.5
    return y


for _name, _value in {
    "another type": torch.ones(3, 4, dtype=torch.float64),
    "another type of a number": torch.tensor(1),
    "a complex number": 1 + 2j,
    "more of them": torch.ones(2, 3, 4),
    "another size": torch.ones(5),
}.items():

    def _stored(x: Any, yes: Any, value: Any) -> Any:
        x[yes] = value
        return x

    _stored.__name__ = f"store by one truth {_name}"
    refused = "fake-execution" if isinstance(_value, torch.Tensor) and _value.dim() != 1 else None
    cases(X, torch.tensor(True), _value, raises=True, breaks=refused)(_stored)


@cases(X, S, breaks="tensor-value")
def index_a_list_by_a_tensor(x: Any, s: Any) -> Any:
    return [1, 2, 3, 4][s] * x


@cases(X)
def unpacking(x: Any) -> Any:
    a, b, c = x
    first, *rest = x.unbind(1)
    return a + b * c, first, rest, [row.sum() for row in x], *x


@cases(X, raises=True)
def unpack_too_many(x: Any) -> Any:
    a, _ = x
    return a


@cases(X)
def iteration(x: Any) -> Any:
    total = 0
    for index, row in enumerate(x):
        total = total + row * index
    pairs = [a * b for a, b in zip(x, x.flip(0))]
    return total, pairs, list(reversed(x)), max(len(row) for row in x), sum(x)


@cases(SCALAR, raises=True)
def iterate_scalar(x: Any) -> Any:
    return list(x)


@cases(SCALAR, raises=True)
def length_of_scalar(x: Any) -> Any:
    return len(x)


# -- reading the data -----------------------------------------------------------------------------


@cases(SCALAR, breaks="branch-on-tensor")
def truth(x: Any) -> Any:
    return x + 1 if x > 0 else x - 1


@cases(X, raises=True)
def truth_of_many(x: Any) -> Any:
    return 1 if x > 0 else 2


@cases(X, breaks="tensor-value")
def item(x: Any) -> Any:
    return x.sum().item() * x


@cases(SCALAR, breaks="tensor-value")
def to_float(x: Any) -> Any:
    return float(x), int(x)


@cases(X, breaks="tensor-value")
def to_list(x: Any) -> Any:
    return x.tolist()


@cases(X, breaks="tensor-value")
def tensor_in_tensor(x: Any) -> Any:
    return 3.0 in x


@cases(X)
def nonzero(x: Any) -> Any:
    return x.nonzero()


@cases(X)
def unique(x: Any) -> Any:
    return torch.unique(x)


@cases(X)
def masked_select(x: Any) -> Any:
    return torch.masked_select(x, x > 0)


@cases(X, breaks="tensors-compared")
def equal(x: Any) -> Any:
    return torch.equal(x, x + 1)


@cases(X, breaks="tensors-compared")
def allclose(x: Any) -> Any:
    return torch.allclose(x, x)


@cases(X)
def range_up_to_size(x: Any) -> Any:
    return [x + i for i in range(x.shape[0])], torch.arange(x.size(1))


@cases(S, breaks="tensor-value")
def range_of_tensor(s: Any) -> Any:
    return [i for i in range(s)]


@cases(X, breaks="tensor-value")
def format_tensor(x: Any) -> Any:
    return f"{x}"


@cases(SCALAR, breaks="tensor-value")
def format_scalar(x: Any) -> Any:
    return f"{x:.2f}"


NAMED = {"number 1": 2.0}


@cases(X, torch.tensor(1), breaks="tensor-value")
def text_with_a_value_as_a_key(x: Any, number: Any) -> Any:
    return x * NAMED[f"number {number}"]


@cases(X, torch.tensor(1), breaks="tensor-value")
def text_with_a_value_asked_for(x: Any, number: Any) -> Any:
    found = 3 if f"number {number}" in NAMED else 5
    return x * found, NAMED.get(f"number {number}"), f"{number}" in {"1"}


@cases(X, torch.tensor(1), breaks="tensor-value")
def text_with_a_value_as_a_new_key(x: Any, number: Any) -> Any:
    made = {f"number {number}": x}
    return made["number 1"], len({f"{number}", "1"})


@cases(X, breaks="tensor-value")
def to_numpy(x: Any) -> Any:
    return np.asarray(x.numpy()).sum()


@cases(X, breaks="tensor-value")
def data_pointer(x: Any) -> Any:
    return x.data_ptr() == x.data_ptr()


@cases(SCALAR, breaks="tensor-value")
def math_of_tensor(x: Any) -> Any:
    return math.sqrt(x)


# -- comparisons and identity ---------------------------------------------------------------------


@cases(X)
def comparisons(x: Any) -> Any:
    return (
        x == 1, x != 1, x < x.T.T, x >= 0, x > 3, x == None, x != None, x is None, x is not None,  # noqa: E711
        x is x, x.data is x, x == "a", x == None,  # noqa: E711
    )  # fmt: skip


@cases(X)
def as_keys(x: Any) -> Any:
    y = x + 1
    table = {x: 1, y: 2}
    members = {x, y, x}
    return table[x], table[y], len(members), x in members, x in table, len({*x, *y, *x})


@cases(X, SCALAR)
def operators(x: Any, s: Any) -> Any:
    n = (x * 2).to(torch.int64)
    return (
        x + 1, 1 + x, x - s, 2 - x, x * x, x / 3, 3 / (x + 0.5), x // 2, 7 // (x + 0.5), x % 3,
        5 % (x + 0.5), x**2, 2**x, -x, +x, abs(x), x @ x.T, n // 3,
        n & 3, n | 1, n ^ 2, ~n, n << 1, n >> 1, 3 & n, 1 << n.clamp(0, 3), x.__add__(1),
        x.__radd__(1), pow(x, 2),
    )  # fmt: skip


@cases(X, breaks="fake-execution")
def text_of_an_error(x: Any) -> Any:
    try:
        return x @ x
    except RuntimeError as error:
        return x @ x.T, str(error)


@cases(X)
def error_caught_unread(x: Any) -> Any:
    for shape in ((5, 5), (4, 3), (12,)):
        try:
            return x.reshape(shape) * 2
        except RuntimeError:
            x = x + 1


# -- views and writes -----------------------------------------------------------------------------


@cases(BATCH)
def views(x: Any) -> Any:
    return (
        x.view(-1), x.view(6, 4), x.view(torch.int32), x.transpose(0, 1), x.permute(2, 0, 1),
        x[0].t(), x.unsqueeze(0), x[None].squeeze(), x.expand(5, 2, 3, 4),
        x.reshape(4, -1), x.flatten(1), x.unflatten(1, (3, 1)), x.narrow(1, 0, 2), x.select(0, 1),
        x.as_strided((2, 2), (1, 2)), x.diagonal(), x.unfold(2, 2, 1), x.movedim(0, -1),
        x.swapaxes(0, 1), x.chunk(2), x.split(2, dim=1), x.tensor_split(2, dim=2), x.view_as(x),
        x.reshape_as(x), x.detach(), x.unbind(1), x.adjoint(), x.hsplit(3), x.contiguous(),
    )  # fmt: skip


@cases(X)
def in_place(x: Any) -> Any:
    y = x.clone()
    y.add_(1).mul_(2)
    y += 3
    y.relu_()
    y.clamp_(max=5)
    y.sub_(1)
    x.copy_(y)
    x.t_()
    return y, x


@cases(X)
def in_place_through_view(x: Any) -> Any:
    row = x[0]
    row.add_(10)
    x.view(-1)[3:5] = 0
    return x.sum(0), row


@cases(X)
def geometry_in_place(x: Any) -> Any:
    y = x.clone()
    y.transpose_(0, 1).unsqueeze_(0)
    z = x.clone().squeeze_().swapaxes_(0, 1)
    return y, y.shape, z.stride()


@cases(X, breaks="fake-execution")
def resize(x: Any) -> Any:
    y = x.clone()
    y.resize_(2, 2)
    return y


@cases(X, torch.zeros(0), breaks="input-changes")
def resize_of_an_existing_out(x: Any, out: Any) -> Any:
    torch.sin(x, out=out)
    return out.shape, x + 1


@cases(X, torch.zeros(0), torch.zeros(0, dtype=torch.long), breaks="input-changes")
def resize_of_two_existing_outs(x: Any, values: Any, indices: Any) -> Any:
    torch.max(x, 0, out=(values, indices))
    return values + 1, indices


@cases(torch.zeros(0), torch.zeros(0))
def an_existing_out_without_elements(x: Any, out: Any) -> Any:
    torch.sin(x, out=out)
    return out + 1


@cases(torch.arange(12).view(1, 2, 6), raises=True)
def windows_of_integers(x: Any) -> Any:
    return torch.nn.functional.max_pool1d(x, 2)


@cases(X, breaks="fake-execution")
def set_storage(x: Any) -> Any:
    y = torch.empty(0)
    y.set_(x)
    return y + 1


@cases(X)
def out_arguments(x: Any) -> Any:
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    z = torch.empty(3)
    torch.sum(x, dim=1, out=z)
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
    got = torch.max(x, dim=1, out=(values, indices))
    return y, z, values, indices, got[0] is values


@cases(X, X.clone())
def out_argument_of_caller(x: Any, out: Any) -> Any:
    got = torch.mul(x, 2, out=out)
    return got is out, got


@cases(G)
def data_and_detach(x: Any) -> Any:
    y = (x * 2).detach()
    z = x.data * 3
    w = x * y
    w = w * z
    return y, z, w


@cases(G)
def write_through_data(x: Any) -> Any:
    x.data.mul_(2)
    return x * 3


@cases(X, breaks="unsupported-attribute")
def assign_data(x: Any) -> Any:
    y = x + 1
    y.data = x * 2
    return y


@cases(X)
def require_gradients(x: Any) -> Any:
    y = x * 1
    y.requires_grad_()
    return (y * 2).requires_grad, y.requires_grad


@cases(G)
def detach_in_place(x: Any) -> Any:
    y = x * 2
    y.detach_()
    return y + 1, y.requires_grad


@cases(X)
def set_requires_grad(x: Any) -> Any:
    y = x * 1
    y.requires_grad = True
    return y.requires_grad


# -- constructors ---------------------------------------------------------------------------------


@cases(X)
def from_python_data(x: Any) -> Any:
    return (
        torch.tensor([[1, 2], [3, 4]]), torch.tensor(2.5), torch.tensor([1.0, 2], dtype=x.dtype),
        torch.tensor([]), torch.tensor((1, True)), torch.tensor([x.shape[0], x.dim()]),
        torch.as_tensor([1, 2]), torch.tensor(3 + 1j), torch.tensor([[True]]), torch.Tensor([1, 2]),
        torch.LongTensor([1, 2]), torch.FloatTensor(2, 3).fill_(1), torch.scalar_tensor(3),
        torch.full((2,), 3), torch.tensor(range(3)), torch.zeros(2, 3), torch.zeros((2, 3)),
        torch.ones(x.shape), torch.eye(3), torch.linspace(0, 1, 5), torch.arange(1, 7, 2),
    )  # fmt: skip


@cases(X)
def like_another(x: Any) -> Any:
    return (
        x.new_zeros(2), x.new_ones((2, 2)), x.new_full((2,), 3.0), x.new_tensor([1, 2]),
        torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), torch.full_like(x, 2),
        x.new_empty(3).fill_(0), torch.empty_like(x).zero_(), x.to(torch.float64), x.double(),
        x.to("cpu"), x.to(x), x.type(torch.int64), x.long(), x.bool(), x.type_as(x), x.int(),
        x.to(device="cpu", dtype=torch.float16), x.cpu(), x.half().float(), x.clone(),
    )  # fmt: skip


@cases(X)
def of_sizes(x: Any) -> Any:
    """A torch.Size is a size where a tuple is elements."""
    empty = torch.Size([])
    return (
        x.new(x.shape).fill_(1), x.new(x.size()[:1]).fill_(2), x.new(empty).fill_(3), x.new((3,)),
        x.new(2, 3).fill_(4), x.new([5, 6]), x.new(x[0]), x.new(torch.Size([0])), x.new(),
        torch.Tensor(x.shape).fill_(1), torch.Tensor(empty).fill_(2), torch.Tensor((3, 4)),
        torch.LongTensor(x.shape[:1]).fill_(1), torch.DoubleTensor(x.shape + x.shape).fill_(2),
        x.new(torch.broadcast_shapes(x.shape, (2, 1, 1))).fill_(1), x.new(size=x.shape).fill_(2),
    )  # fmt: skip


@cases(X, breaks="fake-execution")
def tensor_of_items(x: Any) -> Any:
    return torch.tensor([x[0, 0], x[1, 1]])


@cases(X)
def tensor_of_tensor(x: Any) -> Any:
    return torch.as_tensor(x), torch.asarray(x), torch.stack([x, x]), torch.cat((x, x), dim=1)


@cases(X)
def constant_tensors_are_known(x: Any) -> Any:
    sizes = torch.tensor([2, 6])
    return (
        x.reshape(sizes.tolist()),
        x * sizes[0].item(),
        int(torch.tensor(3)),
        x + len(sizes),
        f"{sizes[1]:3d}",
    )


@cases(X, raises=True)
def ragged_data(x: Any) -> Any:
    return torch.tensor([[1, 2], [3]])


@cases(X)
def broadcasting(x: Any) -> Any:
    a, b = torch.broadcast_tensors(x, x[0])
    return (
        a, b, torch.broadcast_shapes((3, 1), (4,)), torch.broadcast_to(x[0], (2, 4)),
        torch.meshgrid(x[0], x[:, 0], indexing="ij"), torch.cartesian_prod(x[0], x[1]),
        torch.atleast_2d(x[0]), torch.block_diag(x, x), torch.einsum("ij,kj->ik", x, x),
    )  # fmt: skip


@cases(X)
def named_results(x: Any) -> Any:
    best = x.max(dim=1)
    values, indices = torch.topk(x, 2)
    order = torch.sort(x, descending=True)
    return best.values, best.indices, best, values, indices, order, torch.std_mean(x), best[0]


@cases(X)
def many_functions(x: Any) -> Any:
    return (
        torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, -1), torch.cumsum(x, 0), x.softmax(-1),
        x.norm(), torch.linalg.norm(x), torch.nn.functional.gelu(x), x.tril(), torch.roll(x, 1),
        torch.bucketize(x, torch.tensor([0.0, 3.0])), x.argmax(), torch.fft.rfft(x).abs(),
        torch.special.expit(x), x.var(unbiased=False), x.amax(),
        x.addmm(x, torch.ones(4, 4)), x.gather(1, torch.zeros(3, 1, dtype=torch.int64)),
        torch.nn.functional.pad(x, (1, 1)), torch.tensordot(x, x, dims=([1], [1])), x.logsumexp(1),
        x.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 9.0), torch.cdist(x, x),
        torch.nn.functional.interpolate(x[None], scale_factor=2), torch.nn.functional.normalize(x),
    )  # fmt: skip


@cases(X)
def map_and_apply(x: Any) -> Any:
    return list(map(torch.relu, [x, -x])), [*map(torch.Tensor.sum, x)], torch.Tensor.add(x, 1)


@cases(X, breaks="tensor-value")
def deep_copied_constant(x: Any) -> Any:
    return x.apply_(lambda v: v + 1)


@cases(X, breaks="tensor-value")
def hash_and_id(x: Any) -> Any:
    return hash(x) == hash(x), x.__hash__() == hash(x)


@cases(torch.zeros(0, 4))
def empty(x: Any) -> Any:
    return x + 1, x.sum(), list(x), len(x), x.shape, torch.cat([x, x])


# -- layouts that are not captured ----------------------------------------------------------------


@cases(X, breaks="fake-execution")
def sparse_made_inside(x: Any) -> Any:
    return x.to_sparse().to_dense() * 2


@cases(lambda: (X.to_sparse(), X), breaks="unknown-callable")
def sparse_argument(s: Any, x: Any) -> Any:
    return torch.sparse.mm(s, x.T) + 1


@cases(lambda: (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), X), breaks="tensor-kind")
def quantised_argument(q: Any, x: Any) -> Any:
    return q.dequantize() + x


@cases(lambda: (torch.nested.nested_tensor([X[0], X[1, :2]]), X), breaks="tensor-kind")
def nested_argument(n: Any, x: Any) -> Any:
    return n.to_padded_tensor(0.0) + x[0]


test_program = cases.test()
