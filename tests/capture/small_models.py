"""Small models as research code writes them: recurrent, a detector, diffusion, experts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Module):
    """Blocks of linear, GELU, linear and layer norm with a residual connection."""

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width), nn.LayerNorm(width)
            )
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class Tagger(nn.Module):
    """Embeds, runs a bidirectional LSTM, and scores tags; padding is masked out."""

    def __init__(self, words: int = 20, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.scores = nn.Linear(12, tags)

    def forward(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
        mask = words != 0
        hidden, (last, _) = self.lstm(self.embedding(words))
        scores = self.scores(hidden).masked_fill(~mask[..., None], float("-inf"))
        return {"scores": scores, "last": last[-1]}


class Translator(nn.Module):
    """A GRU encoder, and a decoder cell that attends to it, step by step."""

    def __init__(self, words: int = 20, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.cell = nn.GRUCell(2 * width, width)
        self.output = nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.embedding(source))
        state = state.squeeze(0)
        logits = []
        for position in range(target.size(1)):
            weights = torch.softmax(torch.einsum("bld,bd->bl", memory, state), dim=-1)
            context = (weights.unsqueeze(-1) * memory).sum(1)
            word = self.embedding(target[:, position])
            state = self.cell(torch.cat([word, context], -1), state)
            logits.append(self.output(state))
        return torch.stack(logits, dim=1)


class Detector(nn.Module):
    """Like DETR: a convolutional backbone, a transformer with learned queries, two heads."""

    def __init__(self, classes: int = 4, width: int = 16, queries: int = 5) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
            nn.Conv2d(8, width, 3, stride=2, padding=1),
        )  # fmt: skip
        self.transformer = nn.Transformer(width, 2, 1, 2, 32, batch_first=True)
        self.queries = nn.Parameter(torch.rand(queries, width))
        self.rows = nn.Parameter(torch.rand(20, width // 2))
        self.columns = nn.Parameter(torch.rand(20, width // 2))
        self.heads = nn.ModuleDict(
            {"logits": nn.Linear(width, classes + 1), "boxes": nn.Linear(width, 4)}
        )

    def forward(self, images: list[torch.Tensor]) -> dict[str, Any]:
        features = self.backbone(torch.stack(images))
        height, breadth = features.shape[-2:]
        positions = torch.cat(
            [
                self.columns[:breadth].unsqueeze(0).repeat(height, 1, 1),
                self.rows[:height].unsqueeze(1).repeat(1, breadth, 1),
            ],
            dim=-1,
        ).flatten(0, 1)
        tokens = features.flatten(2).transpose(1, 2) + 0.1 * positions
        queries = self.queries.unsqueeze(0).expand(len(images), -1, -1)
        hidden = self.transformer(tokens, queries)
        outputs = {name: head(hidden) for name, head in self.heads.items()}
        outputs["boxes"] = outputs["boxes"].sigmoid()
        return outputs


class TimedBlock(nn.Module):
    """Two convolutions, with the time step added between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1)
        )
        self.time = nn.Linear(time, outputs)
        self.second = nn.Sequential(
            nn.GroupNorm(4, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, 1, 1)
        )
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + self.time(functional.silu(time))[:, :, None, None]
        return self.second(hidden) + self.skip(x)


class Denoiser(nn.Module):
    """Like a diffusion UNet: down, attention in the middle, up with skip connections."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.entry = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(
            [TimedBlock(width, width, width), TimedBlock(width, 2 * width, width)]
        )
        self.middle = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up = nn.ModuleList(
            [TimedBlock(4 * width, width, width), TimedBlock(2 * width, width, width)]
        )
        self.exit = nn.Conv2d(width, 3, 3, padding=1)

    def embed(self, steps: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        frequencies = torch.exp(
            -math.log(10_000) * torch.arange(half, device=steps.device, dtype=torch.float32) / half
        )
        angles = steps[:, None].float() * frequencies[None]
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def forward(self, noisy: torch.Tensor, steps: torch.Tensor | int) -> torch.Tensor:
        if not torch.is_tensor(steps):
            steps = torch.full((noisy.shape[0],), steps, device=noisy.device)
        time = self.embed(steps)
        x = self.entry(noisy)
        skips = []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        batch, channels, *size = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        mixed, _ = self.middle(tokens, tokens, tokens, need_weights=False)
        x = x + mixed.transpose(1, 2).reshape(batch, channels, *size)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, skips.pop()], dim=1), time)
        return self.exit(x)


class SoftExperts(nn.Module):
    """A mixture of experts that runs all of them and weighs the best two."""

    def __init__(self, width: int = 8, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            share = (weights * (chosen == index)).sum(-1, keepdim=True)
            result = result + share * expert(x)
        load = functional.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        return result, load.var() * 0.01


class RoutedExperts(SoftExperts):
    """The same, running only the experts that some token chose: branches on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.gate(x).argmax(-1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero(as_tuple=True)[0]
            if rows.numel() == 0:
                continue
            result[rows] = expert(x[rows])
        return result
