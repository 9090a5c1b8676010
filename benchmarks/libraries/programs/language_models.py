"""Language models: transformers with PEFT, sentence-transformers, x-transformers, entmax."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )


def _adapted(config: Any, compile: Compile) -> Run:
    """A step of training a small Llama with adapters."""
    from peft import get_peft_model

    module = get_peft_model(_llama(), config)
    trained = nn.ModuleList([module])
    compiled = compile(module)
    ids = torch.randint(64, (2, 12))
    return lambda: gradients(trained, compiled(input_ids=ids, labels=ids).loss)


@program("peft", "transformers", tolerance=1e-3)
def low_rank_adapters(compile: Compile) -> Run:
    """LoRA on the projections of attention."""
    from peft import LoraConfig

    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    return _adapted(config, compile)


@program("peft", "transformers", tolerance=1e-3)
def decomposed_adapters(compile: Compile) -> Run:
    """DoRA: LoRA with magnitudes apart from directions."""
    from peft import LoraConfig

    return _adapted(LoraConfig(r=4, target_modules=["q_proj"], use_dora=True), compile)


@program("peft", "transformers", tolerance=1e-3)
def scaled_activations(compile: Compile) -> Run:
    """IA3: activations of keys, values and the perceptron are scaled."""
    from peft import IA3Config

    config = IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]
    )
    return _adapted(config, compile)


@program("peft", "transformers", tolerance=1e-3)
def prompt_tuning(compile: Compile) -> Run:
    """Virtual tokens in front of the input's."""
    from peft import PromptTuningConfig, TaskType

    config = PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=4)
    return _adapted(config, compile)


@program("transformers", tolerance=1e-3)
def generation_by_hand(compile: Compile) -> Run:
    """A loop of greedy decoding with a cache that grows."""
    module = _llama().eval()
    compiled = compile(module)
    prompt = torch.randint(64, (2, 5))

    def run() -> Any:
        ids, cache, out = prompt, None, [prompt]
        with torch.no_grad():
            for _ in range(8):
                result = compiled(input_ids=ids, past_key_values=cache, use_cache=True)
                cache = result.past_key_values
                ids = result.logits[:, -1:].argmax(-1)
                out.append(ids)
        return torch.cat(out, 1)

    return run


@program("transformers")
def generate_of_transformers(compile: Compile) -> Run:
    """model.generate with sampling, whose forward is compiled."""
    module: Any = _llama().eval()
    module.forward = compile(module.forward)
    prompt = torch.randint(1, 64, (2, 5))
    mask = torch.ones_like(prompt)

    def run() -> Any:
        return module.generate(
            prompt, attention_mask=mask, max_new_tokens=6, do_sample=True, pad_token_id=0
        )

    return run


@program("transformers", "sentence_transformers", tolerance=1e-3)
def sentence_embeddings(compile: Compile) -> Run:
    """A BERT with the mean of tokens, trained by a ranking loss; lengths vary."""
    from sentence_transformers.util import cos_sim
    from transformers import BertConfig, BertModel

    bert = BertModel(
        BertConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )

    @compile
    def embed(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].float()
        return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)

    pairs = [torch.randint(64, (8, length)) for length in (7, 9, 12)]

    def run() -> Any:
        first, *others = [embed(ids, (ids > 5).long()) for ids in pairs]
        scores = cos_sim(first, torch.cat(others)) * 20
        return gradients(bert, F.cross_entropy(scores, torch.arange(8)))

    return run


@program("x_transformers", tolerance=1e-3)
def autoregressive_wrapper(compile: Compile) -> Run:
    """x-transformers' decoder with rotary positions and gates, and its loss."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True)
    module = AutoregressiveWrapper(
        TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
    )
    compiled = compile(module)
    ids = torch.randint(64, (2, 16))
    return lambda: gradients(module, compiled(ids))


@program("entmax")
def sparse_attention(compile: Compile) -> Run:
    """Attention whose weights are entmax and sparsemax in place of softmax."""
    from entmax import entmax15, sparsemax

    body = nn.Linear(16, 48)

    @compile
    def attend(x: torch.Tensor) -> torch.Tensor:
        q, k, v = body(x).chunk(3, -1)
        scores = q @ k.mT / 4
        return entmax15(scores, dim=-1) @ v + sparsemax(scores, dim=-1) @ v

    x = torch.randn(2, 8, 16)
    return lambda: gradients(body, attend(x).square().mean())


@program()
def beam_search(compile: Compile) -> Run:
    """A beam search over a recurrent model's steps."""
    embedding, cell, head = nn.Embedding(20, 16), nn.GRUCell(16, 16), nn.Linear(16, 20)

    @compile
    def step(tokens: torch.Tensor, hidden: torch.Tensor, scores: torch.Tensor) -> Any:
        hidden = cell(embedding(tokens), hidden)
        total = scores[:, None] + head(hidden).log_softmax(-1)
        scores, flat = total.flatten().topk(4)
        return flat % 20, hidden[flat // 20], scores, flat // 20

    def run() -> Any:
        tokens, hidden = torch.zeros(4, dtype=torch.long), torch.zeros(4, 16)
        scores = torch.tensor([0.0, -1e9, -1e9, -1e9])
        history = []
        with torch.no_grad():
            for _ in range(6):
                tokens, hidden, scores, parents = step(tokens, hidden, scores)
                history.append((tokens, parents))
        return scores, history

    return run


@program()
def mixture_of_experts(compile: Compile) -> Run:
    """Tokens are routed to two of four experts, each of which takes those that chose it."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(16, 4)
            self.experts = nn.ModuleList(perceptron(16, 32, 16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.router(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows, places = torch.where(chosen == i)
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, places, None])
            return out

    module = Experts()
    compiled = compile(module)
    x = torch.randn(32, 16)
    return lambda: gradients(module, compiled(x).square().mean())


@program(tolerance=1e-3)
def checkpointed_layers(compile: Compile) -> Run:
    """Transformer layers under torch.utils.checkpoint with a mask for padding."""
    from torch.utils.checkpoint import checkpoint

    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True) for _ in range(2)
    )

    @compile
    def forward(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = checkpoint(layer, x, None, padding, use_reentrant=False)
        return x

    x, padding = torch.randn(2, 8, 16), torch.zeros(2, 8, dtype=torch.bool)
    padding[:, 6:] = True
    return lambda: gradients(layers, forward(x, padding).sin().mean())


@program()
def tagging_by_random_field(compile: Compile) -> Run:
    """A linear-chain conditional random field: partition by a loop, and Viterbi."""

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
            self.head, self.moves = nn.Linear(16, 5), nn.Parameter(torch.randn(5, 5))

        def forward(self, x: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
            scores = self.head(self.body(x)[0])
            total = scores[:, 0]
            for i in range(1, x.shape[1]):
                total = torch.logsumexp(total[:, :, None] + self.moves, 1) + scores[:, i]
            taken = scores.gather(-1, tags[..., None]).sum((1, 2))
            taken = taken + self.moves[tags[:, :-1], tags[:, 1:]].sum(1)
            return (total.logsumexp(-1) - taken).mean()

    module = Field()
    compiled = compile(module)
    x, tags = torch.randn(4, 9, 8), torch.randint(5, (4, 9))
    return lambda: gradients(module, compiled(x, tags))
