"""Images and volumes: Kornia, MONAI, structural similarity, quantised codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients


@program("kornia")
def colours_and_filters(compile: Compile) -> Run:
    """Kornia's colour spaces, Gaussian blur, edges and sharpening in a row."""
    from kornia.color import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
    from kornia.filters import gaussian_blur2d, sobel, unsharp_mask

    @compile
    def process(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = hsv_to_rgb(rgb_to_hsv(x))
        x = gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        x = unsharp_mask(x, (3, 3), (1.0, 1.0))
        return x, sobel(rgb_to_grayscale(x))

    x = torch.rand(2, 3, 32, 32) * 0.9 + 0.05
    return lambda: process(x)


@program("kornia", tolerance=1e-3)
def homography(compile: Compile) -> Run:
    """Corners to a homography, by which an image is warped; gradients of the corners."""
    from kornia.geometry import get_perspective_transform, warp_perspective

    @compile
    def loss(image: torch.Tensor, corners: torch.Tensor) -> torch.Tensor:
        square = torch.tensor([[[0.0, 0.0], [15.0, 0.0], [15.0, 15.0], [0.0, 15.0]]])
        matrix = get_perspective_transform(square, corners)
        return warp_perspective(image, matrix, (16, 16)).square().mean()

    image = torch.rand(1, 3, 16, 16)
    corners = torch.tensor([[[1.0, 2.0], [14.0, 1.0], [13.0, 14.0], [2.0, 13.0]]])

    def run() -> Any:
        points = corners.clone().requires_grad_()
        value = loss(image, points)
        return value.detach(), torch.autograd.grad(value, points)

    return run


@program("kornia")
def augmentation(compile: Compile) -> Run:
    """Kornia's random flips and colour jitter as a module."""
    import kornia.augmentation as K

    module = nn.Sequential(K.RandomHorizontalFlip(p=0.5), K.ColorJitter(0.1, 0.1, 0.1, 0.1))
    compiled = compile(module)
    x = torch.rand(4, 3, 16, 16)
    return lambda: compiled(x)


@program("kornia")
def focal_and_dice(compile: Compile) -> Run:
    """Kornia's losses of segmentation."""
    from kornia.losses import DiceLoss, FocalLoss, TverskyLoss

    dice, focal = DiceLoss(), FocalLoss(alpha=0.5, gamma=2.0, reduction="mean")
    tversky = TverskyLoss(0.5, 0.5)
    body = nn.Conv2d(3, 4, 3, padding=1)

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = body(x)
        return dice(out, y) + focal(out, y) + tversky(out, y)

    x, y = torch.randn(2, 3, 16, 16), torch.randint(4, (2, 16, 16))
    return lambda: gradients(body, loss(x, y))


@program("monai", tolerance=1e-3)
def volumes(compile: Compile) -> Run:
    """MONAI's U-Net over volumes, with its Dice loss."""
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    module = UNet(3, 1, 2, channels=(4, 8), strides=(2,), num_res_units=1, bias=False)
    objective = DiceCELoss(softmax=True, to_onehot_y=True)
    compiled = compile(module)
    x, y = torch.randn(1, 1, 16, 16, 16), torch.randint(2, (1, 1, 16, 16, 16))
    return lambda: gradients(module, objective(compiled(x), y))


@program("monai")
def sliding_window(compile: Compile) -> Run:
    """MONAI's inference over windows calls a compiled network."""
    from monai.inferers import sliding_window_inference

    network = compile(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1)))
    x = torch.randn(1, 1, 40, 40)

    def run() -> Any:
        with torch.no_grad():
            return sliding_window_inference(x, (16, 16), 2, network)

    return run


@program("pytorch_msssim", tolerance=1e-3)
def structural_similarity(compile: Compile) -> Run:
    """SSIM as a loss of a small autoencoder."""
    from pytorch_msssim import ssim

    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.GELU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
        nn.Sigmoid(),
    )
    compiled = compile(lambda x: 1 - ssim(module(x), x, data_range=1.0))
    x = torch.rand(2, 3, 32, 32)
    return lambda: gradients(module, compiled(x))


@program("vector_quantize_pytorch", tolerance=1e-3)
def vector_quantisation(compile: Compile) -> Run:
    """A codebook with moving averages, and a finite scalar quantiser."""
    from vector_quantize_pytorch import FSQ, VectorQuantize

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 8), nn.Linear(8, 3)
            self.codes = VectorQuantize(dim=8, codebook_size=16, decay=0.9)
            self.scalars = FSQ(levels=[5, 5, 5])

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x, ids, loss = self.codes(self.first(x))
            x, more = self.scalars(self.second(x))
            return x, ids, more, loss

    module = Model()
    compiled = compile(module)
    x = torch.randn(2, 12, 16)

    def run() -> Any:
        out, ids, more, loss = compiled(x)
        return ids, more, gradients(module, out.square().mean() + loss.sum())

    return run


@program()
def neural_radiance_field(compile: Compile) -> Run:
    """Rays, positions encoded by sines, densities composed along each ray."""
    from benchmarks.libraries.programs.common import perceptron

    body = perceptron(3 + 3 * 2 * 4, 32, 4, activation=nn.ReLU)

    @compile
    def render(origin: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        depth = torch.linspace(0.5, 2.0, 12)
        depth = depth + torch.rand(len(origin), 12) * 0.1
        points = origin[:, None] + direction[:, None] * depth[..., None]
        waves = points[..., None] * 2.0 ** torch.arange(4)
        features = torch.cat([points, waves.sin().flatten(-2), waves.cos().flatten(-2)], -1)
        colour, density = body(features).split([3, 1], -1)
        step = torch.diff(depth, append=depth[:, -1:] + 0.1)
        opacity = 1 - (-density[..., 0].relu() * step).exp()
        clear = torch.cumprod(1 - opacity + 1e-10, -1).roll(1, -1)
        clear[:, 0] = 1.0
        return ((opacity * clear)[..., None] * colour.sigmoid()).sum(1)

    origin, direction = torch.randn(32, 3), torch.randn(32, 3)
    return lambda: gradients(body, render(origin, direction).square().mean())
