"""torch.compile with dynamic sizes: one compile, and the same kernels, for every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import fx, nn

from fusewright.backends.torch_dynamo import fusewright
from fusewright.runtime.compiled import CompiledGraph

SIZES = ((2, 5), (3, 9), (7, 16))
"""Batch and length."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiling(function: Callable[..., Any], *, dynamic: bool | None) -> tuple[Any, list[Any]]:
    """`function` compiled, and the list that its compiled graphs will be appended to."""
    graphs: list[Any] = []

    def backend(module: fx.GraphModule, examples: list[Any]) -> Any:
        graphs.append(fusewright(module, examples, options={"strict": True, "verify": True}))
        return graphs[-1]

    return torch.compile(function, backend=backend, dynamic=dynamic), graphs


def keys(graph: CompiledGraph) -> list[str]:
    return [kernel.key for kernel in graph.record.kernels]


def bert() -> nn.Module:
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
    )


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=99,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
        )
    )


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            use_cache=False,
        )
    )


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_transformers_compile_once(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    call, graphs = compiling(model, dynamic=True)
    for size in SIZES:
        ids = torch.randint(0, 99, size)
        torch.testing.assert_close(call(ids)[0], model(ids)[0], rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1 and len(graphs[0].record.program.sizes) == 2


def attention(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    scores = (heads @ heads.mT).masked_fill(~mask, float("-inf")).softmax(-1)
    return nn.functional.layer_norm(x + (scores @ heads).transpose(1, 2).reshape(x.shape), (width,))


def test_kernels_do_not_depend_on_the_sizes_seen_when_compiling() -> None:
    found = []
    for batch, length in SIZES:
        torch._dynamo.reset()
        call, graphs = compiling(attention, dynamic=True)
        x = torch.randn(batch, length, 8)
        torch.testing.assert_close(call(x), attention(x))
        found.append(keys(graphs[0]))
    assert found[0] and found[0] == found[1] == found[2]


@pytest.mark.parametrize("bias", [True, False])
def test_marked_dimensions(bias: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 16, bias=bias), nn.GELU(), nn.Linear(16, 4)).eval()
    call, graphs = compiling(model, dynamic=None)
    for batch, length in SIZES:
        x = torch.randn(batch, length, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1)
        torch.testing.assert_close(call(x), model(x))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: nn.functional.pad(x, (1, 2, 0, x.shape[1])),
        lambda x: nn.functional.pad(x, (-1, 2), value=3.0),
        lambda x: (x[1:], x.mT, x.view(-1, 4)),
        lambda x: (x + 1).chunk(2, -1),
        lambda x: torch.arange(x.shape[1])[None] * torch.arange(x.shape[0])[:, None],
        lambda x: x.clone().add_(1)[1:].mul_(2),
        lambda x: (x * x.shape[0], x.shape[1] // 2),
        lambda x: torch.fft.ifft(x + 0j).conj().imag * 2,
    ],
)
def test_operators_that_take_sizes(program: Callable[[torch.Tensor], Any]) -> None:
    call, graphs = compiling(program, dynamic=True)
    for batch, length in ((4, 6), (5, 7), (3, 9)):
        x = torch.randn(batch, length, 8)
        torch.testing.assert_close(call(x), program(x))
    assert len(graphs) == 1


def test_views_of_symbolic_size_alias_the_input() -> None:
    call, _ = compiling(lambda x: x[1:, ::2], dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        call(x).zero_()
        assert x[1:, ::2].sum() == 0 and x[0].all()


def test_an_operator_that_takes_no_symbolic_size_is_compiled_for_each() -> None:
    weight = torch.randn(2, 3)
    call, graphs = compiling(lambda x: torch.kron(x, weight), dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(call(x), torch.kron(x, weight))
    assert len(graphs) == 2
