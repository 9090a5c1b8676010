"""Architectures of the transformers library, built small, through the whole compiler: which are
captured as one graph, with eager's results and gradients, and how fast?

    python -m benchmarks.architectures [--only NAME … | --timm] [--peer] [--jobs N]
        [--resume FILE.json] [--markdown FILE.md]

Every architecture is measured in a process of its own, with empty caches, by
`benchmarks.measure_architecture`: inference and one training step. `--peer` measures torch.compile
in place of fusewright. With `--resume`, what passes in FILE is not measured again, and what is
measured is added to it at once. "Sizes of data" behind the kind of one: it is compiled with the
option that keeps sizes which depend on data in the graph. `--timm` measures a model of each module
of timm instead, a small one of those that it was made for. The exit status is 1 if a result is
wrong, or something failed or fell back.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import nn

from benchmarks import architecture_inputs as inputs
from benchmarks import architecture_report as report
from benchmarks import image_models
from benchmarks.architecture_inputs import IMAGE, IMAGE_TOKEN, LENGTH, VOCABULARY
from benchmarks.compare import environment, fresh_caches, run
from benchmarks.compilers import OURS, PEER
from benchmarks.models import Inputs

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One row: how to build a model and what to call it with."""

    model: str
    """The class, a name of the transformers library."""

    kind: str
    settings: Settings
    """What the configuration is made with; the rest are its defaults."""

    inputs: Callable[[], Inputs]
    """Makes the keyword arguments of a call."""

    left_out: str
    """What of the architecture does not run here, beside its size and a cache; and why."""

    train_mode: bool = False
    """Whether the training step is in train mode, because the model refuses another. Nowhere is
    there dropout.
    """

    sizes_of_data: bool = False
    """Whether it is compiled with the option that keeps sizes which depend on data in the graph;
    torch.compile has such options too.
    """

    @property
    def about(self) -> str:
        """Its kind, and what it is compiled with."""
        return f"{self.kind}, sizes of data" if self.sizes_of_data else self.kind


def build(name: str) -> tuple[nn.Module, Inputs]:
    """The model `name` in eval mode and its inputs, the same in every process.

    Raises LookupError if the transformers library that is installed has no such model.
    """
    if name.startswith(image_models.PREFIX):
        return image_models.build(name)
    import transformers

    transformers.logging.set_verbosity_error()
    row = architecture(name)
    model = getattr(transformers, row.model, None)
    if model is None:
        raise LookupError(f"transformers {transformers.__version__} has no {row.model}")
    torch.manual_seed(0)
    module = model(model.config_class(**row.settings)).eval()
    return module, row.inputs()


def architecture(name: str) -> Architecture:
    """The row of a name: one of the table, or one of timm's."""
    if name.startswith(image_models.PREFIX):
        return Architecture(model=name, kind="images", settings={}, inputs=dict, left_out="")
    return ARCHITECTURES[name]


# -- settings that many share ----------------------------------------------------------------------

TEXT: Settings = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

DECODER: Settings = {**TEXT, "num_key_value_heads": 2, "use_cache": False}

EXPERTS: Settings = {
    **DECODER,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}

VISION: Settings = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": IMAGE,
    "patch_size": 8,
}

STAGES: Settings = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1]}
"""Convolutions that make images smaller, stage by stage."""

T5: Settings = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 3,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "use_cache": False,
    "pad_token_id": 0,
}

BART: Settings = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}

SPEECH: Settings = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
    "mask_time_prob": 0.0,
}


def section(
    kind: str, shared: Settings, usual_inputs: Callable[[], Inputs]
) -> Callable[..., Architecture]:
    """What makes the rows of one kind from what they do not share."""

    def row(
        model: str,
        call_with: Callable[[], Inputs] = usual_inputs,
        left_out: str = "",
        train_mode: bool = False,
        sizes_of_data: bool = False,
        **settings: Any,
    ) -> Architecture:
        return Architecture(
            model=model,
            kind=kind,
            settings=shared | settings,
            inputs=call_with,
            left_out=left_out,
            train_mode=train_mode,
            sizes_of_data=sizes_of_data,
        )

    return row


encoder = section("text encoder", TEXT, inputs.text)
words = section("text encoder", {"vocab_size": VOCABULARY}, inputs.text)
words_pair = section("encoder and decoder", {"vocab_size": VOCABULARY}, inputs.text_pair)
decoder = section("text decoder", DECODER, inputs.text)
experts = section("mixture of experts", EXPERTS, inputs.text)
recurrent = section("state space, recurrent", EXPERTS, inputs.text)
t5 = section("encoder and decoder", T5, inputs.text_pair)
bart = section("encoder and decoder", BART, inputs.text_pair)
vision = section("vision", VISION, inputs.image)
pyramid = section("vision", STAGES, inputs.large_image)
sight = section("vision", {}, inputs.large_image)
speech = section("audio", SPEECH, inputs.waveform)
audio = section("audio", {}, inputs.audio_channel)
multimodal = section(
    "multimodal", {"text_config": TEXT, "vision_config": VISION}, inputs.captioned_image
)
numbers = section("numbers, inputs.series, control", {}, inputs.series)

KERNELS = "the fused kernels of mamba_ssm and causal_conv1d, which need CUDA"

# -- the rows --------------------------------------------------------------------------------------

_ROWS: tuple[Architecture, ...] = (
    encoder("BertForMaskedLM"),
    encoder("AlbertModel", embedding_size=16),
    encoder("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    encoder("MPNetModel"),
    encoder("ConvBertModel", embedding_size=32),
    encoder("FNetModel", inputs.unmasked_text),
    words("FunnelModel", block_sizes=[1, 1, 1], d_model=32, n_head=4, d_head=8, d_inner=64),
    encoder("LongformerModel", inputs.long_text, attention_window=16, max_position_embeddings=96),
    encoder("BigBirdModel", inputs.long_text, block_size=4, num_random_blocks=1),
    encoder(
        "NystromformerModel",
        num_landmarks=LENGTH,
        segment_means_seq_len=LENGTH,
        left_out="fewer landmarks than tokens: that fails in the library once it is traced, "
        "whatever traces it, for its mask is then made in another shape",
    ),
    encoder("ModernBertModel", cls_token_id=1, sep_token_id=2, local_attention=8),
    encoder("SqueezeBertModel", embedding_size=32),
    words(
        "XLNetModel",
        d_model=32,
        n_layer=3,
        n_head=4,
        d_inner=64,
        use_mems_eval=False,
        use_mems_train=False,
    ),
    encoder("CanineModel", num_hash_buckets=64, local_transformer_stride=8, downsampling_rate=4),
    encoder("MobileBertModel", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    encoder("EsmModel", mask_token_id=3),
    encoder(
        "ReformerModel",
        inputs.long_text,
        axial_pos_embds_dim=(16, 16),
        axial_pos_shape=(8, 8),
        attn_layers=["local", "lsh", "local"],
        attention_head_size=8,
        feed_forward_size=64,
        num_buckets=4,
        lsh_attn_chunk_length=16,
        local_attn_chunk_length=16,
        is_decoder=False,
        hidden_dropout_prob=0.0,
        lsh_attention_probs_dropout_prob=0.0,
        local_attention_probs_dropout_prob=0.0,
        train_mode=True,
    ),
    decoder("GPT2LMHeadModel"),
    decoder(
        "GPTNeoForCausalLM",
        attention_types=[[["global", "local"], 1], [["global"], 1]],
        window_size=8,
    ),
    decoder("GPTJForCausalLM", rotary_dim=4),
    decoder("OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32),
    decoder("BloomForCausalLM"),
    decoder("FalconForCausalLM"),
    decoder("LlamaForCausalLM"),
    decoder("Qwen3ForCausalLM", head_dim=8),
    decoder("Gemma3ForCausalLM", head_dim=8, sliding_window=8),
    decoder("Phi3ForCausalLM"),
    decoder("CohereForCausalLM"),
    decoder("MptForCausalLM"),
    experts("MixtralForCausalLM"),
    experts("Qwen2MoeForCausalLM", shared_expert_intermediate_size=32),
    experts("OlmoeForCausalLM"),
    experts(
        "DeepseekV3ForCausalLM",
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        num_key_value_heads=4,
    ),
    experts("GptOssForCausalLM", head_dim=8, sliding_window=8),
    experts(
        "DbrxForCausalLM",
        d_model=32,
        attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    experts("JetMoeForCausalLM", sizes_of_data=True, kv_channels=8),
    t5(
        "SwitchTransformersForConditionalGeneration",
        num_experts=4,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        router_jitter_noise=0.0,
    ),
    recurrent("MambaForCausalLM", left_out=KERNELS, state_size=8, time_step_rank=4),
    recurrent(
        "Mamba2ForCausalLM",
        left_out=KERNELS,
        num_heads=8,
        head_dim=8,
        state_size=8,
        n_groups=2,
        chunk_size=8,
    ),
    recurrent("FalconMambaForCausalLM", left_out=KERNELS, state_size=8, time_step_rank=4),
    recurrent(
        "RwkvForCausalLM",
        inputs.unmasked_text,
        left_out="the fused kernel of its recurrence, which needs CUDA",
        attention_hidden_size=32,
        context_length=64,
    ),
    recurrent("RecurrentGemmaForCausalLM", lru_width=32, attention_window_size=8, head_dim=8),
    recurrent(
        "JambaForCausalLM",
        left_out=KERNELS,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    recurrent(
        "xLSTMForCausalLM",
        inputs.unmasked_text,
        left_out="the fused kernels of mlstm_kernels, which need CUDA",
        num_heads=4,
        num_blocks=3,
        chunk_size=8,
        qk_dim_factor=1.0,
    ),
    recurrent(
        "Qwen3NextForCausalLM",
        left_out="the fused kernels of flash-linear-attention, which need CUDA",
        head_dim=8,
        shared_expert_intermediate_size=32,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
    recurrent(
        "Lfm2ForCausalLM",
        layer_types=["conv", "full_attention", "conv"],
        block_dim=32,
        block_ff_dim=64,
        block_multiple_of=8,
    ),
    t5("T5ForConditionalGeneration"),
    t5(
        "LongT5Model",
        local_radius=4,
        global_block_size=4,
        encoder_attention_type="transient-global",
    ),
    bart("BartForConditionalGeneration"),
    bart("M2M100Model"),
    bart(
        "LEDModel",
        inputs.long_text_pair,
        attention_window=8,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
    words_pair(
        "ProphetNetModel",
        hidden_size=32,
        encoder_ffn_dim=64,
        num_encoder_layers=3,
        num_encoder_attention_heads=4,
        decoder_ffn_dim=64,
        num_decoder_layers=3,
        num_decoder_attention_heads=4,
        max_position_embeddings=64,
        use_cache=False,
    ),
    vision("ViTModel"),
    vision("BeitModel", use_relative_position_bias=True),
    vision("Dinov2Model"),
    vision("YolosForObjectDetection", image_size=[IMAGE, IMAGE], num_detection_tokens=8),
    vision(
        "ViTMAEForPreTraining",
        decoder_hidden_size=32,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=4,
        decoder_intermediate_size=64,
    ),
    vision("VideoMAEModel", inputs.video, num_frames=4),
    vision("SamVisionModel", output_channels=16, window_size=2, global_attn_indexes=[1]),
    sight(
        "Swinv2Model",
        inputs.image,
        image_size=IMAGE,
        patch_size=2,
        embed_dim=16,
        depths=[1, 1, 2],
        num_heads=[2, 2, 4],
        window_size=4,
    ),
    pyramid("ConvNextV2Model"),
    pyramid("ResNetModel", embedding_size=8),
    pyramid("PoolFormerModel"),
    pyramid("SegformerForSemanticSegmentation", decoder_hidden_size=32),
    sight(
        "MobileViTModel",
        image_size=64,
        hidden_sizes=[16, 16, 16],
        neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32],
    ),
    sight(
        "EfficientNetModel",
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.2,
        hidden_dim=320,
    ),
    sight(
        "LevitModel",
        image_size=64,
        hidden_sizes=[16, 32, 48],
        num_attention_heads=[2, 2, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    sight(
        "CvtModel",
        embed_dim=[8, 16, 32],
        num_heads=[1, 2, 4],
        depth=[1, 2, 3],
    ),
    sight(
        "HieraModel",
        embed_dim=16,
        image_size=[64, 64],
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 2, 4],
    ),
    sight(
        "DetrForObjectDetection",
        use_timm_backbone=False,
        backbone=None,
        backbone_config={
            "model_type": "resnet",
            "embedding_size": 8,
            "out_features": ["stage4"],
            **STAGES,
        },
        num_queries=8,
        **{name: value for name, value in BART.items() if name not in ("vocab_size", "use_cache")},
    ),
    sight(
        "SuperPointForKeypointDetection",
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        descriptor_decoder_dim=16,
    ),
    speech("Wav2Vec2Model"),
    speech("WavLMModel"),
    audio("Wav2Vec2BertModel", inputs.speech_features, feature_projection_input_dim=16, **TEXT),
    audio(
        "WhisperModel",
        inputs.speech_and_text,
        num_mel_bins=8,
        max_source_positions=32,
        max_target_positions=32,
        **BART,
    ),
    audio(
        "ASTModel",
        inputs.spectrogram,
        max_length=32,
        num_mel_bins=16,
        frequency_stride=4,
        time_stride=4,
        **VISION | {"patch_size": 4},
    ),
    audio(
        "EncodecModel",
        num_filters=4,
        hidden_size=16,
        codebook_size=32,
        codebook_dim=16,
        upsampling_ratios=[4, 2],
        target_bandwidths=[24.0],
        num_lstm_layers=1,
    ),
    audio(
        "DacModel",
        encoder_hidden_size=8,
        decoder_hidden_size=32,
        downsampling_ratios=[2, 4],
        upsampling_ratios=[4, 2],
        n_codebooks=2,
        codebook_size=32,
        codebook_dim=4,
    ),
    audio(
        "VitsModel",
        inputs.phonemes,
        vocab_size=38,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=64,
        flow_size=32,
        spectrogram_bins=33,
        upsample_initial_channel=32,
        use_stochastic_duration_prediction=False,
        left_out="the stochastic predictor of durations: its random numbers decide about sizes",
    ),
    audio(
        "MusicgenForCausalLM",
        inputs.codebooks,
        **DECODER | {"num_codebooks": 2, "ffn_dim": 64, "pad_token_id": VOCABULARY},
    ),
    multimodal("CLIPModel", projection_dim=16),
    multimodal(
        "BlipForConditionalGeneration",
        text_config={**TEXT, "encoder_hidden_size": 32, "projection_dim": 16},
        vision_config={**VISION, "projection_dim": 16},
        projection_dim=16,
    ),
    multimodal(
        "Blip2ForConditionalGeneration",
        inputs.captioned_by_four,
        text_config={**DECODER, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32},
        qformer_config={**TEXT, "encoder_hidden_size": 32},
        num_query_tokens=4,
        image_token_index=IMAGE_TOKEN,
    ),
    multimodal(
        "GroupViTModel",
        vision_config={
            **VISION,
            "depths": [1, 1, 1],
            "num_group_tokens": [8, 4, 0],
            "num_output_groups": [8, 4, 0],
        },
        projection_dim=16,
        projection_intermediate_dim=32,
    ),
    multimodal(
        "LlavaForConditionalGeneration",
        inputs.llava_inputs,
        text_config={**DECODER, "model_type": "llama"},
        vision_config={**VISION, "model_type": "clip_vision_model"},
        image_token_index=IMAGE_TOKEN,
        image_seq_length=16,
    ),
    multimodal(
        "PaliGemmaForConditionalGeneration",
        inputs.pali_gemma_inputs,
        text_config={**DECODER, "model_type": "gemma", "head_dim": 8},
        vision_config={**VISION, "model_type": "siglip_vision_model"},
        image_token_index=IMAGE_TOKEN,
        projection_dim=32,
        hidden_size=32,
    ),
    multimodal(
        "Gemma3ForConditionalGeneration",
        inputs.gemma3_inputs,
        text_config={**DECODER, "head_dim": 8, "sliding_window": 8},
        mm_tokens_per_image=4,
        image_token_index=IMAGE_TOKEN,
    ),
    multimodal(
        "Qwen2VLForConditionalGeneration",
        inputs.qwen_vision_inputs,
        text_config={
            **DECODER,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "depth": 3,
            "embed_dim": 32,
            "num_heads": 4,
            "hidden_size": 32,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=IMAGE_TOKEN,
        vision_start_token_id=VOCABULARY - 2,
        vision_end_token_id=VOCABULARY - 3,
        video_token_id=VOCABULARY - 4,
    ),
    multimodal(
        "Idefics3ForConditionalGeneration",
        inputs.idefics_inputs,
        text_config={**DECODER, "model_type": "llama"},
        scale_factor=2,
        image_token_id=IMAGE_TOKEN,
    ),
    multimodal(
        "LayoutLMv3Model",
        inputs.document,
        coordinate_size=6,
        shape_size=4,
        max_2d_position_embeddings=64,
        input_size=IMAGE,
        **VISION | TEXT,
    ),
    multimodal(
        "LxmertModel",
        inputs.text_and_regions,
        l_layers=1,
        x_layers=1,
        r_layers=1,
        visual_feat_dim=16,
        **TEXT,
    ),
    multimodal(
        "FlavaModel",
        image_config=VISION,
        multimodal_config=VISION,
        projection_dim=16,
        hidden_size=32,
    ),
    multimodal(
        "ClapModel",
        inputs.spectrogram_and_text,
        audio_config={
            "patch_embeds_hidden_size": 16,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "hidden_size": 32,
            "num_mel_bins": 16,
            "spec_size": 64,
            "window_size": 4,
            "patch_size": 4,
            "patch_stride": (4, 4),
            "enable_fusion": False,
            "projection_dim": 16,
        },
        projection_dim=16,
        left_out="the fusion of long recordings, which picks pieces of them by chance",
    ),
    numbers(
        "PatchTSTModel",
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        num_hidden_layers=3,
        d_model=32,
        num_attention_heads=4,
        ffn_dim=64,
        do_mask_input=False,
    ),
    numbers(
        "AutoformerModel",
        inputs.past_and_future,
        left_out="heads that are not as wide as both sequences are long: the library's own masks "
        "fail there",
        prediction_length=4,
        context_length=12,
        label_length=8,
        num_time_features=1,
        lags_sequence=[1, 2],
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        use_cache=False,
    ),
    numbers(
        "TimesFmModel",
        inputs.padded_series,
        patch_length=8,
        context_length=32,
        horizon_length=8,
        head_dim=8,
        **DECODER,
    ),
    numbers(
        "DecisionTransformerModel",
        inputs.trajectory,
        state_dim=5,
        act_dim=3,
        hidden_size=32,
        n_layer=3,
        n_head=4,
        max_ep_len=64,
    ),
    numbers(
        "PerceiverModel",
        inputs.vectors,
        d_model=32,
        num_latents=8,
        d_latents=32,
        num_blocks=1,
        num_self_attends_per_block=3,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
    ),
)

ARCHITECTURES = {row.model: row for row in _ROWS}


# -- the command -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; return the exit status."""
    options = _parse(arguments)
    console = Console()
    column = PEER if options.peer else OURS
    record = {"column": column, "date": date.today().isoformat(), "rows": {}, **environment()}
    if options.resume is not None and options.resume.exists():
        record = json.loads(options.resume.read_text())
    rows = record["rows"]

    names = image_models.names() if options.timm else options.only
    wanted = [name for name in names if name not in rows or not report.passes(rows[name])]
    with ThreadPoolExecutor(options.jobs) as pool:
        started = {pool.submit(measure, column, name, options.jobs): name for name in wanted}
        for done in track(as_completed(started), total=len(wanted), console=console):
            rows[started[done]] = done.result()
            if options.resume is not None:
                options.resume.write_text(json.dumps(record, indent=1) + "\n")

    shown = {name: rows[name] for name in names}
    console.print(report.table(shown))
    for line in (*report.problems(shown), *report.sentences(shown)):
        console.print(line, markup=False, highlight=False)
    if options.markdown is not None:
        described = {name: architecture(name) for name in names}
        about = {name: (row.about, row.left_out) for name, row in described.items()}
        options.markdown.write_text("\n".join(report.document(record, about)))
    return int(not all(map(report.passes, shown.values())))


def measure(column: str, name: str, jobs: int) -> dict[str, Any]:
    """Both halves of one architecture, measured in a process of its own; a failure of the process
    counts for both.
    """
    settings = {"FUSEWRIGHT_STRICT": "0"}  # Breaks are counted, not raised.
    if jobs > 1:
        settings["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    with fresh_caches() as caches:
        found = run([column, name], caches | settings, "benchmarks.measure_architecture")
    return {"inference": found, "training": found} if "failure" in found else found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = list(ARCHITECTURES)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--timm", action="store_true", help="measure models of timm instead")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--resume", type=Path, metavar="FILE.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write the table to FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
