"""Random inputs of the architectures, by what they stand for: text, images, sound, series."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.models import Inputs

BATCH = 2
LENGTH = 16
VOCABULARY = 99
IMAGE = 32
"""Pixels on each side of an image."""

IMAGE_TOKEN = VOCABULARY - 1
"""Stands in a text where features of an image go."""


def random_tokens(*shape: int) -> torch.Tensor:
    """Tokens, none of them special: the first three and the last four are."""
    return torch.randint(3, VOCABULARY - 4, shape)


def padding() -> torch.Tensor:
    """An attention mask whose last row ends in padding."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[-1, LENGTH - 5 :] = 0
    return mask


def text() -> Inputs:
    return {"input_ids": random_tokens(BATCH, LENGTH), "attention_mask": padding()}


def unmasked_text() -> Inputs:
    return {"input_ids": random_tokens(BATCH, LENGTH)}


def long_text() -> Inputs:
    return {"input_ids": random_tokens(BATCH, 64)}


def text_pair() -> Inputs:
    """What an encoder and a decoder read."""
    return {**text(), "decoder_input_ids": random_tokens(BATCH, 8)}


def long_text_pair() -> Inputs:
    return {**long_text(), "decoder_input_ids": random_tokens(BATCH, 8)}


def image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, IMAGE, IMAGE)}


def large_image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 2 * IMAGE, 2 * IMAGE)}


def video() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 4, 3, IMAGE, IMAGE)}


def waveform() -> Inputs:
    return {"input_values": torch.randn(BATCH, 800)}


def audio_channel() -> Inputs:
    return {"input_values": torch.randn(BATCH, 1, 320)}


def captioned_image() -> Inputs:
    return {**text(), **image()}


def image_in_text(image_tokens: int, images: Callable[[], Inputs] = image) -> Inputs:
    """A text that begins with an image of so many tokens."""
    placeholders = torch.full((BATCH, image_tokens), IMAGE_TOKEN)
    return {"input_ids": torch.cat([placeholders, random_tokens(BATCH, 8)], 1), **images()}


def captioned_by_four() -> Inputs:
    return image_in_text(4)


def llava_inputs() -> Inputs:
    return image_in_text(16)


def pali_gemma_inputs() -> Inputs:
    inputs = image_in_text(16)
    tokens = inputs["input_ids"]
    prefix = torch.zeros_like(tokens)
    return {**inputs, "attention_mask": torch.ones_like(tokens), "token_type_ids": prefix}


def gemma3_inputs() -> Inputs:
    inputs = image_in_text(4)
    of_image = inputs["input_ids"] == IMAGE_TOKEN
    return {**inputs, "token_type_ids": of_image.long()}


def tiled_images() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 1, 3, IMAGE, IMAGE)}


def idefics_inputs() -> Inputs:
    return image_in_text(4, tiled_images)


def qwen_vision_inputs() -> Inputs:
    """Two images of 4 x 4 patches, merged by twos to 4 tokens each."""
    inputs = image_in_text(4, dict)
    tokens = inputs["input_ids"]
    return {
        **inputs,
        "attention_mask": torch.ones_like(tokens),
        "mm_token_type_ids": (tokens == IMAGE_TOKEN).int(),
        "pixel_values": torch.randn(BATCH * 16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * BATCH),
    }


def document() -> Inputs:
    """Words with the boxes where they stand."""
    boxes = torch.randint(0, 30, (BATCH, LENGTH, 4)).sort(-1).values
    return {**captioned_image(), "bbox": boxes}


def text_and_regions() -> Inputs:
    regions = {"visual_feats": torch.randn(BATCH, 5, 16), "visual_pos": torch.rand(BATCH, 5, 4)}
    return {**text(), **regions}


def spectrogram_and_text() -> Inputs:
    return {**text(), "input_features": torch.randn(BATCH, 1, 100, 16)}


def speech_features() -> Inputs:
    return {"input_features": torch.randn(BATCH, 20, 16)}


def speech_and_text() -> Inputs:
    """Mel bins over time for an encoder, tokens for a decoder."""
    spectrogram = torch.randn(BATCH, 8, 64)
    return {"input_features": spectrogram, "decoder_input_ids": random_tokens(BATCH, 8)}


def spectrogram() -> Inputs:
    return {"input_values": torch.randn(BATCH, 32, 16)}


def codebooks() -> Inputs:
    return {"input_ids": random_tokens(2 * BATCH, 12)}


def phonemes() -> Inputs:
    return {"input_ids": torch.randint(1, 38, (1, 12))}


def series() -> Inputs:
    return {"past_values": torch.randn(BATCH, 32, 3)}


def padded_series() -> Inputs:
    return {
        "past_values": torch.randn(BATCH, 32),
        "past_values_padding": torch.zeros(BATCH, 32),
        "freq": torch.zeros(BATCH, 1, dtype=torch.int64),
    }


def past_and_future() -> Inputs:
    return {
        "past_values": torch.randn(BATCH, 14),
        "past_time_features": torch.randn(BATCH, 14, 1),
        "past_observed_mask": torch.ones(BATCH, 14),
        "future_values": torch.randn(BATCH, 4),
        "future_time_features": torch.randn(BATCH, 4, 1),
    }


def trajectory() -> Inputs:
    """States, actions and rewards of six steps."""
    return {
        "states": torch.randn(BATCH, 6, 5),
        "actions": torch.randn(BATCH, 6, 3),
        "rewards": torch.randn(BATCH, 6, 1),
        "returns_to_go": torch.randn(BATCH, 6, 1),
        "timesteps": torch.arange(6).repeat(BATCH, 1),
        "attention_mask": torch.ones(BATCH, 6),
    }


def vectors() -> Inputs:
    return {"inputs": torch.randn(BATCH, LENGTH, 32)}
