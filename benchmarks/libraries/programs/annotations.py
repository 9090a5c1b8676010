"""Shapes in names and annotations: einops, jaxtyping, beartype."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


@program("einops")
def attention_by_einops(compile: Compile) -> Run:
    """rearrange, einsum, repeat and reduce in an attention layer."""
    from einops import einsum, rearrange, reduce, repeat

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 32))
            self.projection = nn.Linear(32, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.cat([repeat(self.token, "n c -> b n c", b=x.shape[0]), x], 1)
            q, k, v = rearrange(self.projection(x), "b n (t h d) -> t b h n d", t=3, h=4)
            weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
            out = einsum(weights, v, "b h i j, b h j d -> b h i d")
            return reduce(rearrange(out, "b h n d -> b n (h d)"), "b n c -> b c", "mean")

    module = Attention()
    compiled = compile(module)
    x = torch.randn(4, 12, 32)
    return lambda: gradients(module, compiled(x).square().mean())


@program("einops")
def einops_layers(compile: Compile) -> Run:
    """Layers of einops in a Sequential: patches, a mixture of axes, a mean."""
    from einops.layers.torch import EinMix, Rearrange, Reduce

    module = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=48, d=32),
        nn.GELU(),
        EinMix("b n c -> b m c", weight_shape="n m", n=16, m=8),
        Reduce("b n c -> b c", "mean"),
    )
    compiled = compile(module)
    x = torch.randn(4, 3, 16, 16)
    return lambda: gradients(module, compiled(x).square().mean())


@program("einops")
def packed_and_unpacked(compile: Compile) -> Run:
    """pack and unpack of tensors with different numbers of dimensions."""
    from einops import pack, unpack

    body = perceptron(16, 32, 16)

    @compile
    def mix(image: torch.Tensor, token: torch.Tensor) -> list[torch.Tensor]:
        packed, shapes = pack([token, image], "b * c")
        return unpack(body(packed), shapes, "b * c")

    image, token = torch.randn(2, 4, 4, 16), torch.randn(2, 16)

    def run() -> Any:
        first, second = mix(image, token)
        return gradients(body, first.mean() + second.square().mean())

    return run


@program("jaxtyping", "beartype")
def checked_by_jaxtyping(compile: Compile) -> Run:
    """Every function checks shapes of arguments and results."""
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    # Annotations are objects here: this module's are text, which checkers would look up.
    def attend(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v

    rows, keys = Float[torch.Tensor, "b n d"], Float[torch.Tensor, "b m d"]
    attend.__annotations__ = {"q": rows, "k": keys, "v": keys, "return": rows}
    checked = jaxtyped(typechecker=beartype)(attend)
    body = nn.Linear(16, 16)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return checked(body(x), y, body(y)).square().mean()

    x, y = torch.randn(4, 8, 16), torch.randn(4, 10, 16)
    return lambda: gradients(body, loss(x, y))


@program("beartype")
def checked_by_beartype(compile: Compile) -> Run:
    """A module whose methods are decorated by beartype."""
    from beartype import beartype

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(16, 32, 16)

        def scale(self, x: Any, by: Any, names: Any) -> Any:
            return {name: x * (by + i) for i, name in enumerate(names)}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.scale(self.body(x), 0.5, ["first", "second"])
            return parts["first"] + parts["second"].tanh()

    kinds = {"x": torch.Tensor, "by": float, "names": list[str]}
    Body.scale.__annotations__ = {**kinds, "return": dict[str, torch.Tensor]}
    Body.scale = beartype(Body.scale)  # type: ignore[method-assign]
    module = Body()
    compiled = compile(module)
    x = torch.randn(8, 16)
    return lambda: gradients(module, compiled(x).square().mean())


@program("jaxtyping")
def annotated_and_asked(compile: Compile) -> Run:
    """isinstance with a jaxtyping annotation, as an assertion in a loop over layers."""
    from jaxtyping import Float, Int

    layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    @compile
    def forward(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        assert isinstance(ids, Int[torch.Tensor, "batch"])
        for layer in layers:
            x = layer(x).relu()
            assert isinstance(x, Float[torch.Tensor, "batch 16"])
        return x[ids]

    x, ids = torch.randn(8, 16), torch.randint(8, (8,))
    return lambda: gradients(layers, forward(x, ids).square().mean())
