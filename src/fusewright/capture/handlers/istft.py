"""`torch.istft`, which looks at the window's values, written as operators and a check."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fusewright.capture.handlers.registry import handles, polyfill
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import Machine, Value


@polyfill(torch.istft)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose windowed parts have these spectra: the transformed parts are added where
    they overlap, and divided by what the squares of their windows add up to (Griffin and Lim,
    "Signal estimation from modified short-time Fourier transform", 1984).

    `input` of shape (batch, frequencies, parts), or without the batch. What is raised here is never
    seen: the call runs as it was written then, and raises so.
    """
    spectra = input if input.dim() == 3 else input.unsqueeze(0)
    frequencies, parts = spectra.shape[1:]
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if window is None:
        window = torch.ones(width, dtype=spectra.real.dtype, device=spectra.device)
    half = frequencies != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if half else n_fft
    if (
        not spectra.is_complex()
        or frequencies != expected
        or (half and return_complex)
        or (window.is_complex() and not return_complex)
        or not 0 < hop <= width <= n_fft
        or window.shape != (width,)
        or spectra.numel() == 0
    ):
        raise RuntimeError("istft is given what does not fit together")
    before = (n_fft - width) // 2
    window = functional.pad(window, (before, n_fft - width - before))
    norm = "ortho" if normalized else "backward"
    transform = torch.fft.ifft if return_complex else torch.fft.irfft
    windowed = transform(spectra.transpose(1, 2), n_fft, 2, norm) * window
    whole = n_fft + hop * (parts - 1)
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    signal = _add_overlapping(windowed, hop, whole)[:, start:end]
    squares = _add_overlapping((window**2).expand(1, parts, n_fft), hop, whole)[:, start:end]
    if end <= start or squares.abs().min() < 1e-11:
        raise RuntimeError("istft is given windows that leave something out")
    signal = functional.pad(signal / squares, (0, max(end - whole, 0)))
    return signal if input.dim() == 3 else signal.squeeze(0)


def _add_overlapping(parts: Tensor, hop: int, whole: int) -> Tensor:
    """The sum of parts that begin `hop` apart, of shape (batch, parts, length): (batch, whole)."""
    sizes = [parts.shape[0], whole]
    return torch.ops.aten.unfold_backward(parts, sizes, 1, parts.shape[2], hop)  # type: ignore[no-any-return]


@handles(torch.Tensor.istft)
def istft_method(machine: Machine, /, tensor: Value, *arguments: Value, **keywords: Value) -> Value:
    function = machine.wrap(torch.istft, ConstantSource(torch.istft))
    return machine.call(function, [tensor, *arguments], keywords)
