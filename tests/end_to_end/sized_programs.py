"""Programs that are compiled once and run for sizes drawn at random: values, layouts, gradients and
what is written to inputs as in eager, and no compile but the first.

    python -m tests.end_to_end.sized_programs [--sizes 200] [name …]

Sizes 0 and 1, which are compiled for themselves, are drawn too: then each kind of sizes is compiled
for, and what eager refuses is refused.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.api import compilations

Sizes = Sequence[int]

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda x: torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]] if x.shape[-1] > 1 else x,
    "steps": lambda x: torch.stack([x, -x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand(x.shape) if x.shape[0] else x,
}
"""How the floating inputs lie in memory."""


@dataclass(frozen=True)
class Program:
    """A function of tensors, the last of which may be indices."""

    function: Callable[..., Any]

    shapes: Callable[[int, int, int], Sequence[Sizes]]
    """The shapes of its inputs, given three sizes."""

    indices: Callable[[int, int, int], tuple[Sizes, int]] | None = None
    """The shape of an input of indices, and what they are below; None: there is none."""

    versions: int = 1
    """How often it is compiled for sizes above 1: more where it compares sizes."""

    writes: bool = False
    """Whether it writes to its first input."""

    aliases: bool = False
    """Whether it returns views of its inputs."""

    def inputs(self, sizes: tuple[int, int, int], layout: str) -> list[Tensor]:
        """Inputs for these sizes."""
        given = [torch.randn(*shape, dtype=torch.float64) for shape in self.shapes(*sizes)]
        given = [LAYOUTS[layout](each) if each.dim() > 1 else each for each in given]
        if self.indices is not None:
            shape, bound = self.indices(*sizes)
            given.append(torch.randint(0, max(bound, 1), tuple(shape)))
        return given


def one(a: int, b: int, c: int) -> Sequence[Sizes]:
    return ((a, b, c),)


def image(a: int, b: int, c: int) -> Sequence[Sizes]:
    return ((a, 4, b + 3, c + 3),)


def row(a: int, b: int, c: int) -> Sequence[Sizes]:
    return ((a, 4, b + 3),)


def on(function: Callable[..., Any], **options: Any) -> Program:
    return Program(function, one, **options)


def on_image(function: Callable[..., Any], **options: Any) -> Program:
    return Program(function, image, **options)


def on_row(function: Callable[..., Any], **options: Any) -> Program:
    return Program(function, row, **options)


def written(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    write(x)
    return x * 2


def sorted_values(x: Tensor) -> Any:
    values, places = x.sort(1, descending=True)
    return values, x.gather(1, places), x.topk(2, -1).values


PROGRAMS: dict[str, Program] = {
    # products
    "matmul": Program(lambda x, y: x @ y, lambda a, b, c: ((a, b, c), (c, b))),
    "bmm": Program(lambda x, y: torch.bmm(x, y), lambda a, b, c: ((a, b, c), (a, c, b))),
    "broadcast matmul": Program(
        lambda x, y: torch.matmul(x, y), lambda a, b, c: ((a, 1, b, c), (b, c, a))
    ),
    "linear": Program(F.linear, lambda a, b, c: ((a, b, c), (b, c), (b,))),
    "addmm": Program(
        lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2.0),
        lambda a, b, c: ((a, b), (a, c), (c, b)),
    ),
    "einsum": Program(
        lambda x, y: torch.einsum("abc,bcd->ad", x, y), lambda a, b, c: ((a, b, c), (b, c, a))
    ),
    "einsum of a diagonal": on(lambda x: torch.einsum("abc,abd->acd", x, x)),
    "outer": Program(
        lambda x, y: (torch.outer(x, y), torch.dot(x, x)),
        lambda a, b, c: ((a,), (b,)),
    ),
    "kron": Program(
        lambda x, y: torch.kron(x.contiguous(), y.contiguous()), lambda a, b, c: ((a, b), (b, a, c))
    ),
    # convolutions
    "conv1d": Program(
        lambda x, w: F.conv1d(x, w, padding=1), lambda a, b, c: ((a, 4, b + 3), (5, 4, 3))
    ),
    "conv1d of steps": Program(
        lambda x, w: F.conv1d(x, w, stride=2, dilation=2, padding=2),
        lambda a, b, c: ((a, 4, b + 3), (5, 4, 3)),
    ),
    "conv2d": Program(
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda a, b, c: ((a, 4, b + 3, c + 3), (5, 4, 3, 3)),
    ),
    "conv2d in groups": Program(
        lambda x, w: F.relu(F.conv2d(x, w, groups=2, stride=2)),
        lambda a, b, c: ((a, 4, b + 3, c + 3), (6, 2, 3, 3)),
    ),
    "conv2d of any kernel": Program(
        lambda x, w: F.conv2d(x, w, padding="same"),
        lambda a, b, c: ((a, b, c + 3, c + 3), (c, b, 3, 3)),
    ),
    "conv_transpose1d": Program(
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        lambda a, b, c: ((a, 4, b + 3), (4, 5, 3)),
    ),
    "conv_transpose2d": Program(
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        lambda a, b, c: ((a, 4, b + 3, c + 3), (4, 5, 3, 3)),
    ),
    # reductions and norms
    "sums": on(
        lambda x: (x.sum(), x.sum(1), x.mean((0, 2)), x.prod(2), x.sum(0, keepdim=True)), versions=2
    ),
    "extremes": on(lambda x: (x.amax(1), x.amin((0, 2)), x.max(2).values, x.argmin(1), x.max())),
    "spread": on(lambda x: (x.std(1), x.var((0, 2), correction=0), x.norm(dim=2), x.norm(p=1))),
    "logsumexp": on(lambda x: (x.logsumexp(1), x.softmax(0), x.log_softmax(2))),
    "any": on(lambda x: ((x > 1).any(1), (x > -1).all(2), (x > 0).sum(), x.count_nonzero(0))),
    "median": on(lambda x: (x.median(1).values, x.nanmedian(), x.kthvalue(2, 1).values)),
    "layer_norm": Program(
        lambda x, w: F.layer_norm(x, x.shape[-1:], w), lambda a, b, c: ((a, b, c), (c,))
    ),
    "group_norm": on_image(lambda x: F.group_norm(x, 2)),
    "batch_norm": on_image(lambda x: F.batch_norm(x, None, None, training=True)),
    "instance_norm": on_image(lambda x: F.instance_norm(x)),
    "rms_norm": on(lambda x: F.rms_norm(x, x.shape[-1:])),
    "normalize": on(lambda x: F.normalize(x, dim=1)),
    "cosine": on(lambda x: F.cosine_similarity(x, x.cos(), dim=1)),
    "distances": on(lambda x: (torch.cdist(x, x.cos()), F.pairwise_distance(x, x.sin()))),
    # joining and taking apart
    "cat": on(
        lambda x: (torch.cat([x, x.cos(), x], 1), torch.stack([x, -x], 1), x.repeat(1, 2, 3))
    ),
    "cat of many": Program(
        lambda x, y: torch.cat([x, y, x[1:], y.flip(0)]),
        lambda a, b, c: ((a, c), (b, c)),
        versions=2,
    ),
    "split": on(lambda x: [y * k for k, y in enumerate(x.split([1, x.shape[1] - 1], 1))]),
    "halves": on(
        lambda x: x[:, : x.shape[1] // 2].sum() + x[:, x.shape[1] // 2 :].prod(1), versions=3
    ),
    "unbind": Program(lambda x: [y.exp() for y in x.unbind(1)], lambda a, b, c: ((a, 3, c),)),
    "chunk": Program(lambda x: [y.cos() for y in x.chunk(2, 1)], lambda a, b, c: ((a, 2 * b),)),
    "tile": on(lambda x: (x.tile(2, 1), x.repeat_interleave(3, 1), x.expand(2, *x.shape) + 1)),
    "roll": on(lambda x: (x.roll(1, 1), x.roll((2, -1), (0, 2)), x.flip(0, 2), x.rot90(1, (1, 2)))),
    "meshgrid": Program(
        lambda x, y: [g * 2 for g in torch.meshgrid(x, y, indexing="xy")],
        lambda a, b, c: ((a,), (b,)),
    ),
    # indices
    "rows picked": Program(
        lambda x, i: (x[i], x[:, 0][i], x[i, i % x.shape[1]]),
        one,
        lambda a, b, c: ((b,), a),
    ),
    "a table": Program(
        lambda x, i: x[i[:, None], i[None] % x.shape[1]], one, lambda a, b, c: ((b,), a)
    ),
    "embedding": Program(
        lambda x, i: F.embedding(i, x), lambda a, b, c: ((a, c),), lambda a, b, c: ((b, c), a)
    ),
    "gather": Program(
        lambda x, i: x.gather(1, i), lambda a, b, c: ((a, b, c),), lambda a, b, c: ((a, c, c), b)
    ),
    "take": Program(lambda x, i: (x.take(i), x.index_select(0, i)), one, lambda a, b, c: ((b,), a)),
    "take_along_dim": Program(
        lambda x, i: torch.take_along_dim(x, i, 0), one, lambda a, b, c: ((c, b, c), a)
    ),
    "scatter_add": Program(
        lambda x, y, i: x.scatter_add(0, i, y),
        lambda a, b, c: ((a, c), (b, c)),
        lambda a, b, c: ((b, c), a),
    ),
    "scatter_reduce": Program(
        lambda x, y, i: x.scatter_reduce(0, i, y, "amax"),
        lambda a, b, c: ((a, c), (b, c)),
        lambda a, b, c: ((b, c), a),
    ),
    "index_add": Program(
        lambda x, y, i: (x.index_add(0, i, y), x.index_put((i,), y, accumulate=True)),
        lambda a, b, c: ((a, c), (b, c)),
        lambda a, b, c: ((b,), a),
    ),
    "one_hot": Program(
        lambda x, i: F.one_hot(i, x.shape[0]) * x[:, 0],
        lambda a, b, c: ((a, c),),
        lambda a, b, c: ((b,), a),
    ),
    "masks": on(lambda x: (x.masked_fill(x > 0, 1.5), torch.where(x > 0, x, x.cos()), x.triu())),
    "diagonals": on(lambda x: (x.diagonal(0, 1, 2) * 2, x[0].tril(-1), torch.diag_embed(x[0]))),
    "cross_entropy": Program(
        lambda x, i: F.cross_entropy(x, i), lambda a, b, c: ((a, b),), lambda a, b, c: ((a,), b)
    ),
    "cross_entropy of rows": Program(
        lambda x, i: F.cross_entropy(x, i, reduction="none", ignore_index=0),
        lambda a, b, c: ((a, b, c),),
        lambda a, b, c: ((a, c), b),
    ),
    # order
    "sort": on(sorted_values),
    "argsort": on(lambda x: (x.argsort(1), x.argsort(dim=0, stable=True))),
    "searchsorted": on(lambda x: torch.searchsorted(x.sort(-1).values, x.flip(-1))),
    "cumsum": on(lambda x: (x.cumsum(1), x.cumsum(0), x.flip(2).cumsum(2), x.detach().cumprod(1))),
    "cummax": on(lambda x: (x.cummax(1).values, x.cummin(2).values, x.logcumsumexp(1))),
    "gradient": on(lambda x: x[:, :1] * sum(torch.gradient(x.repeat(1, 2, 1), dim=1))),
    "diff": on(lambda x: (x.diff(dim=1), torch.trapezoid(x, dim=1), x[:, 1:] - x[:, :-1])),
    # attention
    "attention": Program(
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        lambda a, b, c: ((a, 2, b, 8), (a, 2, c, 8)),
    ),
    "causal attention": Program(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
        lambda a, b, c: ((a, 2, b, 8), (a, 2, b, 8)),
    ),
    "masked attention": Program(
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m),
        lambda a, b, c: ((a, 2, b, 8), (a, 2, c, 8), (b, c)),
    ),
    "attention of any width": Program(
        lambda q, k: (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ k,
        lambda a, b, c: ((a, b, c), (a, b + 1, c)),
    ),
    # images
    "interpolate nearest": on_image(lambda x: F.interpolate(x, scale_factor=2)),
    "interpolate bilinear": on_image(
        lambda x: F.interpolate(x, scale_factor=(2, 3), mode="bilinear", align_corners=False)
    ),
    "interpolate to a size": on_image(
        lambda x: F.interpolate(x, size=(x.shape[3], 7), mode="bilinear", align_corners=True)
    ),
    "interpolate bicubic": on_image(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")),
    "interpolate linear": on_row(lambda x: F.interpolate(x, scale_factor=2, mode="linear")),
    "interpolate half": on_image(lambda x: F.interpolate(x, scale_factor=0.5, mode="area")),
    "max_pool2d": on_image(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d up": on_image(lambda x: F.max_pool2d(x, 2, ceil_mode=True), versions=4),
    "avg_pool2d": on_image(lambda x: F.avg_pool2d(x, 2, padding=1, count_include_pad=False)),
    "pools of rows": on_row(
        lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 1), F.lp_pool1d(x, 2, 2))
    ),
    "adaptive pool": on_image(lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 3))),
    "adaptive max pool": on_image(lambda x: F.adaptive_max_pool2d(x, 2)),
    "pixel_shuffle": on_image(lambda x: F.pixel_shuffle(x, 2)),
    "grid_sample": Program(
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda a, b, c: ((a, 4, b + 3, c + 3), (a, b, c, 2)),
    ),
    "unfold": on_image(lambda x: F.unfold(x, 3, padding=1, stride=2)),
    "fold": on_image(lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2)),
    "windows": on_row(
        lambda x: (x.unfold(2, 3, 1).mean(-1), x.unfold(0, 2, 1).sum(-1)), versions=2
    ),
    # padding
    "pad": on(lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (-1, 1)))),
    "pad by sizes": on(lambda x: F.pad(x, (x.shape[0], 0, 0, x.shape[1]))),
    "pad reflect": on_image(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect")),
    "pad replicate": on_row(lambda x: F.pad(x, (2, 3), mode="replicate")),
    "pad circular": on_image(lambda x: F.pad(x, (1, 2, 2, 1), mode="circular")),
    # views
    "views of views": on(
        lambda x: x.transpose(0, 2)[1:].flatten(1).t()[::2].unsqueeze(1) * 2, versions=2
    ),
    "reshapes": on(
        lambda x: (x.reshape(-1, x.shape[2]), x.reshape(x.shape[0], -1).t() + 1, x.mT), aliases=True
    ),
    "unflatten": Program(
        lambda x: x.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1), lambda a, b, c: ((a, 2 * b),)
    ),
    "permutations": on(lambda x: x.permute(2, 0, 1) + x.movedim(0, 1).permute(2, 1, 0)),
    "broadcasts": Program(
        lambda x, y, z: x * y + z[:, None], lambda a, b, c: ((a, b, c), (c,), (a, c))
    ),
    "slices": on(
        lambda x: (x[1:, ::2, -1:], x[..., :-1] * x[..., 1:], x[-2:].sum(0)),
        aliases=True,
        versions=2,
    ),
    "as_strided": on(
        lambda x: x.contiguous().as_strided((2, x.shape[1]), (1, x.shape[2])) + 1, versions=2
    ),
    "results that alias": on(
        lambda x: (x.view(x.shape), x[1:], x.transpose(0, 1), x + 1), aliases=True
    ),
    "numbers": on(lambda x: (x.numel() * 2, x.shape[0] // 2, x.sum() / x.shape[1] ** 0.5)),
    "ranges": on(lambda x: torch.arange(x.shape[0]).outer(torch.arange(x.shape[1])) * x.sum()),
    # writes
    "in place": on(lambda x: written(x, lambda y: y.mul_(2).add_(1)), writes=True),
    "through a view": on(lambda x: written(x, lambda y: y[1:, 0].exp_()), writes=True, versions=2),
    "through two views": on(
        lambda x: written(x, lambda y: (y.transpose(0, 1)[0].zero_(), y[..., -1].add_(y[..., 0]))),
        writes=True,
    ),
    "a slice set": on(
        lambda x: written(x, lambda y: y.__setitem__((slice(1, None), 0), y[:-1, 1])),
        writes=True,
        versions=2,
    ),
    "indices set": Program(
        lambda x, i: written(x, lambda y: y.__setitem__(i, 1.5)),
        one,
        lambda a, b, c: ((b,), a),
        writes=True,
    ),
    "a row shifted": on(
        lambda x: written(x, lambda y: y[1:].copy_(y[:-1].clone())), writes=True, versions=2
    ),
    "a result that is written": on(lambda x: x.cos().clamp_(0, 0.5).mul_(x)),
    # models
    "perceptron": Program(
        lambda x, v, w: F.gelu(x @ v) @ w,
        lambda a, b, c: ((a, b, c), (c, 16), (16, b)),
    ),
    "spectrum": on(lambda x: torch.fft.rfft(x, dim=1).abs()),
    "recurrence": on(lambda x: (x.cumsum(1) - x.mean(1, keepdim=True)).softmax(1).square()),
    "inverse": Program(
        lambda x: torch.linalg.inv(x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)),
        lambda a, b, c: ((a, b, c),),
    ),
}


# -- running them ----------------------------------------------------------------------------------


def strides_that_matter(tensor: Tensor) -> list[int]:
    """The strides of dimensions of several elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def outcome(call: Callable[..., Any], inputs: Sequence[Tensor], trained: bool) -> Any:
    """The results of a call, with their strides, the gradients of the inputs, and the inputs after
    the call; or the class of what it raises.
    """
    given = [each.detach() for each in inputs]
    if trained:
        given = [each.requires_grad_(each.is_floating_point()) for each in given]
    try:
        result = call(*given)
        results = [result] if isinstance(result, Tensor | int | float) else list(result)
        tensors = [each for each in results if isinstance(each, Tensor)]
        strides = list(map(strides_that_matter, tensors))
        if not any(each.requires_grad for each in tensors):
            return results, strides, given
        loss = torch.stack([each.cos().sum() for each in tensors if each.requires_grad]).sum()
        wanted = [each for each in given if each.requires_grad]
        return results, strides, torch.autograd.grad(loss, wanted, allow_unused=True)
    except (RuntimeError, IndexError, ValueError, ArithmeticError) as error:
        return type(error)


def kind_of(sizes: Sizes) -> tuple[int, ...]:
    return tuple(min(size, 2) for size in sizes)


def is_empty(outcome: Any) -> bool:
    """Whether the results of a call are tensors without elements."""
    return isinstance(outcome, tuple) and not any(each.numel() for each in outcome[0])


def drawn_sizes(draw: random.Random, least: int) -> tuple[int, int, int]:
    """Three sizes: small ones and primes more often than others."""

    def size() -> int:
        pool = [0, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, draw.randint(2, 40)]
        return draw.choice([each for each in pool if each >= least])

    return size(), size(), size()


def complaints(
    program: Program, layout: str, *, trained: bool, count: int, least: int = 2, seed: int = 0
) -> Iterator[str]:
    """What is wrong with a program for `count` sizes, none below `least`."""
    draw = random.Random(seed)
    compiled = fusewright.compile(
        program.function,
        dynamic=True,
        fullgraph=True,
        options={"strict": True},
        recompile_limit=200,
    )
    kinds, refused = set(), 0
    for _ in range(count):
        sizes = drawn_sizes(draw, least)
        kinds.add(kind_of(sizes))
        seed = draw.randrange(1000)
        outcomes = []
        for call in (compiled, program.function):
            torch.manual_seed(seed)
            try:
                inputs = program.inputs(sizes, layout)
            except (RuntimeError, IndexError):
                break  # there are none of these sizes
            outcomes.append(outcome(call, inputs, trained))
        else:
            found, wanted = outcomes
            refused += isinstance(found, type)
            if isinstance(wanted, type) and is_empty(found):
                continue  # some libraries refuse to compute nothing
            try:
                torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9, equal_nan=True)
            except (AssertionError, TypeError) as error:
                if found is not wanted:
                    yield f"{sizes}: {str(error) or error!r} {_raised(found, wanted)}"
    allowed = (program.versions if least > 1 else 4 * program.versions) * len(kinds) + refused
    made = len(compilations(compiled))
    if made > allowed:
        yield f"{made} versions for {len(kinds)} kinds of sizes"


def _raised(*outcomes: Any) -> str:
    return " and ".join(str(each) for each in outcomes if isinstance(each, type))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--sizes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in chosen.names or PROGRAMS:
        program = PROGRAMS[name]
        for layout in LAYOUTS:
            if (program.writes or program.aliases) and layout == "expanded":
                continue
            for trained in (False, True):
                for least in (2, 0):
                    fusewright.reset()
                    try:
                        found = list(
                            complaints(
                                program,
                                layout,
                                trained=trained and not program.writes,
                                count=chosen.sizes,
                                least=least,
                                seed=chosen.seed,
                            )
                        )
                    except Exception as error:
                        found = [f"{type(error).__name__}: {error}"]
                    for text in found[:2]:
                        shown = " ".join(text.split())[:300]
                        print(name, layout, "trained" if trained else "", least, shown, sep=" | ")
                        sys.stdout.flush()


if __name__ == "__main__":
    main()
