"""Detectors as papers write them, in torch alone: anchors, suppression, pooling of regions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


def overlaps(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Intersection over union of any two boxes."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = [(one[:, 2:] - one[:, :2]).prod(-1) for one in (first, second)]
    return shared / (areas[0][:, None] + areas[1][None] - shared)


def _boxes(number: int) -> torch.Tensor:
    corner = torch.rand(number, 2) * 24
    return torch.cat([corner, corner + 2 + torch.rand(number, 2) * 8], -1)


class Backbone(nn.Module):
    """Three convolutions, of which the last two are levels of a pyramid."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 16, 16)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in pairwise(widths)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        levels = []
        for layer in self.layers:
            x = layer(x)
            levels.append(x)
        return levels[1:]


def anchors(levels: list[torch.Tensor], size: int) -> torch.Tensor:
    """A square box about each cell of each level."""
    parts = []
    for level in levels:
        stride = size // level.shape[-1]
        at = (torch.arange(level.shape[-1]) + 0.5) * stride
        y, x = torch.meshgrid(at, at, indexing="ij")
        centre = torch.stack([x, y], -1).reshape(-1, 2)
        parts.append(torch.cat([centre - stride, centre + stride], -1))
    return torch.cat(parts)


@program()
def losses_of_anchors(compile: Compile) -> Run:
    """RetinaNet's losses: anchors are matched to boxes, of which images have several numbers."""

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = Backbone(), nn.Conv2d(16, 3 + 4, 3, padding=1)

        def forward(self, images: torch.Tensor, targets: list[dict[str, torch.Tensor]]) -> Any:
            levels = self.backbone(images)
            out = torch.cat([self.head(one).flatten(2).mT for one in levels], 1)
            grid = anchors(levels, images.shape[-1])
            losses = []
            for predicted, target in zip(out, targets, strict=True):
                quality, which = overlaps(grid, target["boxes"]).max(-1)
                labels = torch.zeros_like(predicted[:, :3])
                near = quality > 0.3
                labels[near, target["labels"][which[near]]] = 1.0
                losses.append(F.binary_cross_entropy_with_logits(predicted[:, :3], labels))
                losses.append(
                    F.smooth_l1_loss(predicted[near, 3:], target["boxes"][which[near]] / 32)
                )
            return torch.stack(losses).sum()

    module = Detector()
    compiled = compile(module)
    images = torch.randn(2, 3, 32, 32)
    targets = [{"boxes": _boxes(n), "labels": torch.randint(3, (n,))} for n in (3, 5)]
    return lambda: gradients(module, compiled(images, targets))


@program()
def suppression_by_hand(compile: Compile) -> Run:
    """Non-maximum suppression as a loop until no box is left."""

    @compile
    def suppress(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        order = scores.argsort(descending=True)
        kept = []
        while order.numel() > 0:
            best = order[0]
            kept.append(best)
            rest = order[1:]
            order = rest[overlaps(boxes[best][None], boxes[rest])[0] <= 0.3]
        return torch.stack(kept)

    boxes, scores = _boxes(30), torch.rand(30)
    return lambda: suppress(boxes, scores)


@program()
def suppression_by_matrix(compile: Compile) -> Run:
    """SOLO's suppression: scores decay by overlaps with better boxes; one expression."""

    @compile
    def suppress(boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, order = scores.sort(descending=True)
        shared = overlaps(boxes[order], boxes[order]).triu(1)
        most = shared.max(0).values
        decay = ((1 - shared) / (1 - most[:, None])).min(0).values
        return (scores * decay).topk(10)

    boxes, scores = _boxes(60), torch.rand(60)
    return lambda: suppress(boxes, scores)


@program()
def regions_by_grid_sample(compile: Compile) -> Run:
    """A second stage: regions are pooled by grid_sample and classified."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(16 * 9, 32, 4)

        def forward(self, level: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
            steps = torch.linspace(0, 1, 3)
            x = boxes[:, 0, None] + (boxes[:, 2] - boxes[:, 0])[:, None] * steps
            y = boxes[:, 1, None] + (boxes[:, 3] - boxes[:, 1])[:, None] * steps
            grid = torch.stack([x[:, None].expand(-1, 3, -1), y[..., None].expand(-1, -1, 3)], -1)
            level = level.expand(len(boxes), -1, -1, -1)
            pooled = F.grid_sample(level, grid / 16 - 1, align_corners=False)
            return self.body(pooled.flatten(1))

    module = Head()
    compiled = compile(module)
    level, boxes = torch.randn(1, 16, 8, 8), _boxes(12)
    return lambda: gradients(module, compiled(level, boxes).square().mean())


@program()
def matching_by_scipy(compile: Compile) -> Run:
    """DETR's loss: predictions are assigned to boxes by SciPy's Hungarian algorithm."""
    from scipy.optimize import linear_sum_assignment

    class Matched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2)
            self.queries = nn.Parameter(torch.randn(10, 16))
            self.boxes, self.classes = perceptron(16, 16, 4), nn.Linear(16, 4)

        def forward(self, memory: torch.Tensor, targets: list[Any]) -> torch.Tensor:
            out = self.decoder(self.queries.expand(len(memory), -1, -1), memory)
            boxes, classes = self.boxes(out).sigmoid(), self.classes(out)
            loss = torch.zeros(())
            for i, (wanted, labels) in enumerate(targets):
                with torch.no_grad():
                    cost = torch.cdist(boxes[i], wanted, p=1)
                    cost = cost - classes[i].softmax(-1)[:, labels]
                rows, columns = linear_sum_assignment(cost.numpy())
                rows, columns = torch.as_tensor(rows), torch.as_tensor(columns)
                loss = loss + F.l1_loss(boxes[i, rows], wanted[columns])
                full = torch.full((10,), 3)
                full[rows] = labels[columns]
                loss = loss + F.cross_entropy(classes[i], full)
            return loss

    module = Matched()
    compiled = compile(module)
    memory = torch.randn(2, 20, 16)
    targets = [(torch.rand(n, 4), torch.randint(3, (n,))) for n in (3, 4)]
    return lambda: gradients(module, compiled(memory, targets))


@program()
def images_of_several_sizes(compile: Compile) -> Run:
    """A fully convolutional detector is given pyramids of images; peaks are found by pooling."""
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))

    @compile
    def peaks(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heat = backbone(F.interpolate(image, scale_factor=0.5, mode="bilinear")).sigmoid()
        peak = F.max_pool2d(heat, 3, 1, 1) == heat
        scores, where = (heat * peak).flatten(1).topk(5)
        return scores, where % heat.shape[-1]

    images = [torch.randn(1, 3, size, size + 4) for size in (16, 24, 36)]

    def run() -> Any:
        with torch.no_grad():
            return [peaks(image) for image in images]

    return run


@program()
def boxes_decoded_and_filtered(compile: Compile) -> Run:
    """YOLO's last step: offsets to boxes, those of low confidence left out."""

    @compile
    def decode(out: torch.Tensor, threshold: float) -> list[torch.Tensor]:
        grid = torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="xy"), -1)
        centre = (out[..., :2].sigmoid() + grid) * 4
        size = out[..., 2:4].exp() * 4
        scores = out[..., 4:].sigmoid()
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).clamp_(0, 32)
        results = []
        for i in range(len(out)):
            best, label = scores[i].max(-1)
            good = best > threshold
            results.append(torch.cat([boxes[i][good], best[good, None], label[good, None]], -1))
        return results

    out = torch.randn(2, 8, 8, 7)
    return lambda: decode(out, 0.6)


@program()
def deformable_attention(compile: Compile) -> Run:
    """Deformable DETR's attention over two levels by grid_sample."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offsets, self.weights = nn.Linear(16, 4 * 2 * 2 * 2), nn.Linear(16, 4 * 2 * 2)
            self.value = nn.Linear(16, 16)

        def forward(
            self, query: torch.Tensor, at: torch.Tensor, levels: list[torch.Tensor]
        ) -> torch.Tensor:
            batch, number, _ = query.shape
            offsets = self.offsets(query).view(batch, number, 4, 2, 2, 2)
            weights = self.weights(query).view(batch, number, 4, 4).softmax(-1)
            sampled = []
            for i, level in enumerate(levels):
                height, width = level.shape[-2:]
                value = self.value(level.flatten(2).mT)
                value = value.mT.reshape(batch * 4, 4, height, width)
                scale = torch.tensor([width, height])
                grid = at[:, :, None, None] + offsets[:, :, :, i] / scale
                grid = (2 * grid - 1).transpose(1, 2).flatten(0, 1)
                sampled.append(F.grid_sample(value, grid, align_corners=False))
            points = torch.stack(sampled, -2).flatten(-2)
            weights = weights.transpose(1, 2).reshape(batch * 4, 1, number, 4)
            return (points * weights).sum(-1).view(batch, 16, number).mT

    module = Attention()
    compiled = compile(module)
    query, at = torch.randn(2, 10, 16), torch.rand(2, 10, 2)
    levels = [torch.randn(2, 16, 8, 8), torch.randn(2, 16, 4, 4)]
    return lambda: gradients(module, compiled(query, at, levels).square().mean())
