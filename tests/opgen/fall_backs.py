"""Programs of operators for which a device has no kernel, run on it and on the CPU: views of views
that are written to, results of unknown size, several results, gradients, whole layers.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FALL_BACKS: dict[str, Callable[[str], Any]] = {}
"""By name: a function of the device."""


def fall_back(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """Enter a function under its name."""
    FALL_BACKS[function.__name__] = function
    return function


def normal(*size: int, device: str) -> Tensor:
    """The same random numbers on every device."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(1)).to(device)


def indices(*values: int, device: str) -> Tensor:
    """A vector of them."""
    return torch.tensor(values).to(device)


@fall_back
def several_results(device: str) -> Any:
    x = normal(4, 9, device=device)
    values, places = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    torch.topk(x, 3, out=(values, places))
    return (
        *(x.topk(3, dim=0), values, places, x.t().sort(dim=0, descending=True, stable=True)),
        *(x.median(1), x.mode(), x.kthvalue(2), x.aminmax(), torch.var_mean(x), x.cummax(1)),
    )


@fall_back
def sizes_that_depend_on_data(device: str) -> Any:
    x = (normal(20, device=device) * 2).round()
    rows = x.view(4, 5)
    return (
        *(x.unique(return_inverse=True, return_counts=True), x[x > 0], x.nonzero(), x.histc(4)),
        *(torch.unique_consecutive(x), torch.where(x > 1), rows[rows.sum(1) > 0]),
        *(torch.masked_select(x, x > 0, out=x.new_empty(0)), x.abs().long().bincount()),
    )


@fall_back
def writes_by_index(device: str) -> Any:
    x, rows = normal(5, 6, device=device), indices(0, 0, 2, device=device)
    x.t()[1:4].index_put_((rows, rows + 1), torch.ones(3, device=device), accumulate=True)
    x[rows[1:]] = torch.arange(6.0, device=device)
    x[:, 1][x[:, 0] > 0] = 9
    x[torch.tensor([4])] = 3.0  # an index on the CPU
    x.index_add_(0, rows, torch.ones(3, 6, device=device))
    x.scatter_add_(1, rows.view(3, 1), torch.ones(3, 1, device=device))
    x.t().scatter_reduce_(0, rows.view(3, 1), normal(3, 1, device=device), reduce="amax")
    x.index_fill_(1, rows, 5.0).index_copy_(0, rows[:1], x[:1] * 2)
    x.put_(rows, torch.tensor([8.0, 9.0, 10.0]).to(device), accumulate=True)
    return x, x.take(rows), x[:, rows, None], x[..., rows], x.gather(1, rows.view(1, 3))


@fall_back
def masked_writes_into_views(device: str) -> Any:
    x = normal(5, 6, device=device)
    corner, columns = x.t()[1:, ::2], x[:, 1::2]
    corner.masked_fill_(corner > 0, -1)
    columns.masked_scatter_(columns > 0, torch.arange(30.0, device=device))
    x.fill_diagonal_(7)
    x.diagonal(1).zero_()
    return x


@fall_back
def views_of_views(device: str) -> Any:
    x = torch.arange(48.0, device=device)
    part = x.view(2, 4, 6).permute(2, 0, 1)[1:4]
    part.unfold(0, 2, 1)[..., 0].cos_()
    part.select(1, 0).neg_()
    torch.as_strided(x, (3, 2), (7, 1), 2).exp_()
    x.view(torch.int32)[0] = 0
    first, second = x.view(6, 8).split(4, 1)
    second[:] = first.tanh_()
    x.view(6, 8).unbind(0)[2].abs_().log1p_()
    x.view(2, 3, 8).movedim(0, 2).clamp_(-0.5, 0.5)
    wide = torch.zeros(3, 8, device=device)
    torch.cos(wide[:, 1::2], out=wide[:, ::2])
    return x, part, wide


@fall_back
def geometry_in_place(device: str) -> Any:
    x, y, z = (torch.empty(0, device=device) for _ in range(3))
    memory = normal(12, device=device)
    x.set_(memory.untyped_storage(), 2, (3, 2), (3, 1))
    y.set_(memory.untyped_storage())
    z.set_(memory)
    z[0] = 4
    x.zero_()
    emptied = memory[:2]
    emptied.set_()
    return x, y, z, memory, emptied, x.t_(), x.unsqueeze_(0), y.resize_(3), z.resize_(0)


@fall_back
def complex_views(device: str) -> Any:
    x = normal(4, 2, device=device)
    number = torch.view_as_complex(x)
    number.imag.mul_(2)
    number.conj().imag.add_(1)
    square = number.view(2, 2) @ number.view(2, 2).mH
    return x, square, number.angle(), torch.fft.rfft(x), torch.view_as_real(number.conj().clone())


@fall_back
def numbers_beside_tensors(device: str) -> Any:
    x, y = torch.arange(6, device=device).view(2, 3), normal(3, device=device).half()
    x += 1
    x[0] *= 2
    x %= 4
    x <<= 2
    scalar = torch.tensor(5, dtype=torch.int32, device=device)
    return (
        *(x, x > 1, ~x, x % 2.5, x.fmod(3), scalar % 2, scalar % 2.5, y % 0.1, y.pow(2), 2**y),
        *(torch.where(x > 4, x, 0), x.clamp(1, 3), y.add(0.1, alpha=2), (y > 0) + 1),
    )


@fall_back
def linear_algebra(device: str) -> Any:
    x = normal(4, 4, device=device)
    positive = (x @ x.t() + 4 * torch.eye(4, device=device)).detach().requires_grad_()
    (torch.linalg.cholesky(positive).sum() + positive.logdet()).backward()
    return (
        *(torch.einsum("ij,kj->ik", x, x), torch.einsum("ii->i", x), positive.grad, x.norm()),
        *(torch.linalg.solve(positive, x).detach(), torch.linalg.svdvals(x), x.matrix_exp()),
        *(torch.cdist(x, x), torch.kron(x, x), x.addr(x[0], x[1]), torch.tensordot(x, x)),
    )


@fall_back
def joined_and_copied(device: str) -> Any:
    x = normal(2, 3, device=device)
    target = torch.zeros(3, 2, device=device)
    target.t().copy_(x)
    saved = io.BytesIO()
    torch.save(x, saved)
    saved.seek(0)
    loaded = [torch.load(saved), copy.deepcopy(x)] if device == "ember" else [x, x]
    return (
        *(torch.cat([x, x.double()]), torch.stack([x, x], 1), x.repeat(2, 2), x.roll(1, 1), target),
        *(x.flip(0), x.repeat_interleave(2), torch.block_diag(x, x), x.to(torch.bfloat16).float()),
        *(*loaded, x.cpu().to(device), x.tolist(), bool(x.isnan().any()), torch.equal(x, x + 0)),
    )


@fall_back
def of_no_elements(device: str) -> Any:
    x = torch.empty(0, 3, device=device)
    product = x.t() @ torch.empty(0, 2, device=device)
    return x.sum(0), product, torch.cat([x, x]), x.sort(0), x.unique(), x.softmax(0), x.cumsum(0)


@fall_back
def lists_of_tensors(device: str) -> Any:
    xs = [normal(3, device=device), normal(2, 2, device=device)]
    torch._foreach_add_(xs, xs, alpha=2)
    torch._foreach_addcdiv_(xs, xs, [x.abs() + 1 for x in xs], 0.5)
    zeros = [torch.zeros_like(x) for x in xs]
    torch._foreach_copy_(zeros, xs)
    return xs, zeros, torch._foreach_norm(xs)


@fall_back
def losses(device: str) -> Any:
    x = normal(10, 3, 6, device=device).log_softmax(2).requires_grad_()
    targets = torch.tensor([[1, 2, 3, 4], [5, 1, 1, 2], [3, 3, 2, 1]]).to(device)
    lengths = torch.full((3,), 10), torch.full((3,), 4)
    total = F.ctc_loss(x, targets, *lengths) + F.cross_entropy(x[0], targets[:, 0])
    total = total + F.smooth_l1_loss(x, x.detach() + 2) + F.multi_margin_loss(x[1], targets[:, 1])
    total.backward()
    return total.detach(), x.grad


@fall_back
def resampling(device: str) -> Any:
    x = normal(1, 2, 5, 5, device=device).requires_grad_()
    modes = ("nearest", "bilinear", "bicubic", "area")
    results = [F.interpolate(x, scale_factor=2, mode=mode) for mode in modes]
    grid = F.affine_grid(normal(1, 2, 3, device=device), [1, 2, 3, 3], align_corners=False)
    results += [F.grid_sample(x, grid, align_corners=False), F.max_pool2d(x, 2), F.unfold(x, 2)]
    sum(result.square().sum() for result in results).backward()
    return [result.detach() for result in results], x.grad


@fall_back
def derivatives(device: str) -> Any:
    x = normal(3, device=device)
    return (
        torch.func.hessian(lambda a: (a**3).sum())(x),
        torch.func.vmap(lambda a: a.sin().sum())(x.view(3, 1)),
        torch.func.jvp(torch.sin, (x,), (x,)),
    )


def _trained(make: Callable[[], nn.Module], *size: int) -> Callable[[str], Any]:
    """A layer's result, gradients and buffers after a step of Adam."""

    def program(device: str) -> Any:
        torch.manual_seed(0)
        layer = make().to(device)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.01, eps=0.01)
        x = normal(*size, device=device).requires_grad_()
        result = layer(x)
        result = result[0] if isinstance(result, tuple) else result
        result.square().sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        return result.detach(), x.grad, [p.detach() for p in layer.parameters()], *layer.buffers()

    return program


FALL_BACKS |= {
    "batch_norm": _trained(lambda: nn.BatchNorm2d(3), 4, 3, 5, 5),
    "instance_norm": _trained(
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), 2, 3, 7
    ),
    "layer_norm": _trained(lambda: nn.LayerNorm(6), 2, 3, 6),
    "lstm": _trained(lambda: nn.LSTM(4, 5, 2), 3, 2, 4),
    "gru": _trained(lambda: nn.GRU(4, 5, bias=False, bidirectional=True), 3, 2, 4),
    "gru_with_bias": _trained(lambda: nn.GRU(4, 5), 3, 2, 4),
    "rnn": _trained(lambda: nn.RNN(4, 5), 3, 2, 4),
    "encoder": _trained(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2, 5, 8
    ),
    "convolution_in_groups": _trained(lambda: nn.Conv2d(4, 4, 3, groups=2), 1, 4, 6, 6),
    "convolution_transposed": _trained(lambda: nn.ConvTranspose2d(4, 2, 3), 1, 4, 6, 6),
    "convolution_of_volumes": _trained(lambda: nn.Conv3d(2, 2, 3), 1, 2, 4, 4, 4),
}
