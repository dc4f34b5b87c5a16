"""Tiny random image-text checkpoints with their processors, saved as users save theirs.

Image sizes, patches and merges are small; an image gives between four and about eighty tokens.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.aria.image_processing_pil_aria import AriaImageProcessorPil
from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.ovis2.image_processing_pil_ovis2 import Ovis2ImageProcessorPil
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import VideoLlama3ImageProcessorPil

from model.huggingface.internals import images_only, processor_of
from tests.model.huggingface.families import IDS, SPECIAL, WORDS

SPECIALS = {  # the tokenizer's attributes that processors read
    "image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>", "video_token": "<video>",
    "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<image>",
    "image_boundary_token": "<fake_token_around_image>", "image_break_token": "[IMG_BREAK]",
    "image_end_token": "[IMG_END]",
}  # fmt: skip
OTHERS = [
    "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<imgpad>",
    "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "TILE_GLOBAL", "TILE", "<IMG_START>", "<IMG_ATOM>",
    "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>", "<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>",
    "<row_2_col_2>", "<|vision_start|>", "<|vision_end|>",
]  # fmt: skip
TOKENS = [*SPECIAL, *WORDS, *dict.fromkeys([*SPECIALS.values(), *OTHERS])]
VOCABULARY = 1300  # PaliGemma's processor adds a thousand tokens
IMAGE = TOKENS.index("<image>")
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 37, "max_position_embeddings": 512, **IDS,
}  # fmt: skip
WIDE = TEXT | {"head_dim": 10}
EVEN = TEXT | {"hidden_size": 32, "head_dim": 8}
EYE = {  # an image of 32 × 32 pixels, patches of 8 × 8
    "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
CLIP, SIGLIP = hf.CLIPVisionConfig(**EYE, projection_dim=16), hf.SiglipVisionConfig(**EYE, vision_use_head=False)
LLAMA = hf.LlamaConfig(**TEXT)
QWEN = {"min_pixels": 32 * 32, "max_pixels": 64 * 64, "patch_size": 8, "merge_size": 2}
QWEN_EYE = {
    "depth": 2, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "intermediate_size": 20,
}  # fmt: skip
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
SQUARE = {"height": 32, "width": 32}
MARKS = {"image_token_id": IMAGE, "video_token_id": TOKENS.index("<video>")}
STARTS = {
    "vision_start_token_id": TOKENS.index("<|vision_start|>"),
    "vision_end_token_id": TOKENS.index("<|vision_end|>"),
}
TILES = {"size": SQUARE, "crop_to_patches": True, "min_patches": 1, "max_patches": 4}
PATCHES = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
Made = tuple[PreTrainedConfig, Callable[[Any], Any]]  # the configuration, and tokenizer -> processor


def _llava(config: type = hf.LlavaConfig) -> Made:
    eye = LlavaImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE)
    more = {"vision_feature_layers": [-1, -2]} if config is hf.VipLlavaConfig else {"image_seq_length": 16}
    found = config(text_config=LLAMA, vision_config=CLIP, image_token_index=IMAGE, **more)
    return found, lambda tokenizer: hf.LlavaProcessor(eye, tokenizer, **PATCHES)


def _llava_next() -> Made:
    grid = [[32, 64], [64, 32], [64, 64]]
    eye = LlavaNextImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE, image_grid_pinpoints=grid)
    config = hf.LlavaNextConfig(
        text_config=LLAMA, vision_config=CLIP, image_token_index=IMAGE, image_grid_pinpoints=grid
    )
    return config, lambda tokenizer: hf.LlavaNextProcessor(eye, tokenizer, **PATCHES)


def _llava_onevision() -> Made:
    grid = [[32, 64], [64, 32], [64, 64]]
    eye = LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=grid)
    config = hf.LlavaOnevisionConfig(
        text_config=hf.Qwen2Config(**TEXT), vision_config=SIGLIP, image_token_index=IMAGE,
        video_token_index=MARKS["video_token_id"], image_grid_pinpoints=grid,
    )  # fmt: skip
    more = {"num_image_tokens": 16, "vision_feature_select_strategy": "full"}
    return config, lambda tokenizer: images_only(hf.LlavaOnevisionProcessor)(eye, tokenizer, **more)


def _paligemma(side: int = 32) -> Made:
    eye = SiglipImageProcessorPil(size={"height": side, "width": side})
    eye.image_seq_length = (side // 8) ** 2
    vision = hf.SiglipVisionConfig(**EYE | {"image_size": side}, projection_dim=24, vision_use_head=False)
    config = hf.PaliGemmaConfig(
        text_config=hf.GemmaConfig(**WIDE), vision_config=vision, projection_dim=24, hidden_size=24,
        image_token_index=IMAGE,
    )  # fmt: skip
    return config, lambda tokenizer: hf.PaliGemmaProcessor(eye, tokenizer)


def _gemma3() -> Made:
    text = hf.Gemma3TextConfig(
        **WIDE | {"num_hidden_layers": 3}, sliding_window=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )  # fmt: skip
    config = hf.Gemma3Config(
        text_config=text, vision_config=SIGLIP, mm_tokens_per_image=4, image_token_index=IMAGE,
        boi_token_index=TOKENS.index("<boi>"), eoi_token_index=TOKENS.index("<eoi>"),
    )  # fmt: skip
    eye = Gemma3ImageProcessorPil(size=SQUARE)
    return config, lambda tokenizer: hf.Gemma3Processor(eye, tokenizer, image_seq_length=4)


def _qwen(name: str) -> Made:
    eye = Qwen2VLImageProcessorPil(**QWEN)
    if name == "qwen2_vl":
        vision = QWEN_EYE | {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
        config, processor = hf.Qwen2VLConfig, hf.Qwen2VLProcessor
    elif name == "qwen2_5_vl":
        vision = QWEN_EYE | {"hidden_size": 16, "out_hidden_size": 32, "window_size": 32, "fullatt_block_indexes": [1]}
        config, processor = hf.Qwen2_5_VLConfig, hf.Qwen2_5_VLProcessor
    else:
        vision = QWEN_EYE | {
            "hidden_size": 16, "out_hidden_size": 32, "deepstack_visual_indexes": [0], "num_position_embeddings": 16,
        }  # fmt: skip
        config, processor = hf.Qwen3VLConfig, hf.Qwen3VLProcessor
    found = config(text_config=EVEN | SECTIONS, vision_config=vision, **MARKS, **STARTS, **IDS)
    return found, lambda tokenizer: images_only(processor)(eye, tokenizer)


def _glm4v() -> Made:
    eye = Glm4vImageProcessorPil(
        size={"shortest_edge": 32 * 32, "longest_edge": 2 * 64 * 64}, patch_size=8, merge_size=2
    )
    vision = QWEN_EYE | {"hidden_size": 16, "out_hidden_size": 32, "image_size": 32}
    config = hf.Glm4vConfig(
        text_config=EVEN | {"rope_parameters": SECTIONS["rope_parameters"] | {"partial_rotary_factor": 1.0}},
        vision_config=vision, **MARKS,
    )  # fmt: skip
    return config, lambda tokenizer: images_only(hf.Glm4vProcessor)(eye, tokenizer)


def _video_llama_3() -> Made:
    eye = VideoLlama3ImageProcessorPil(**QWEN)
    vision = {name: EYE[name] for name in EYE if name != "image_size"}
    config = hf.VideoLlama3Config(text_config=hf.Qwen2Config(**TEXT), vision_config=vision, **MARKS)
    return config, lambda tokenizer: images_only(hf.VideoLlama3Processor)(eye, tokenizer)


def _paddleocr_vl() -> Made:
    eye = PaddleOCRVLImageProcessorPil(min_pixels=32 * 32, max_pixels=64 * 64, patch_size=8, merge_size=2)
    config = hf.PaddleOCRVLConfig(text_config=EVEN | SECTIONS, vision_config=EYE, **MARKS, **STARTS)
    return config, lambda tokenizer: hf.PaddleOCRVLProcessor(eye, tokenizer)


def _idefics3(smol: bool = False) -> Made:
    eye = (SmolVLMImageProcessorPil if smol else Idefics3ImageProcessorPil)(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    config = (hf.SmolVLMConfig if smol else hf.Idefics3Config)(
        text_config=LLAMA, vision_config=EYE, image_token_id=IMAGE, scale_factor=2, pad_token_id=0
    )
    kind = images_only(hf.SmolVLMProcessor) if smol else hf.Idefics3Processor
    return config, lambda tokenizer: kind(eye, tokenizer, image_seq_len=4)


def _idefics2() -> Made:
    eye = Idefics2ImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 32})
    perceiver = {
        "hidden_size": 24, "resampler_n_latents": 5, "resampler_depth": 1, "resampler_n_heads": 2,
        "resampler_head_dim": 8, "num_key_value_heads": 1,
    }  # fmt: skip
    config = hf.Idefics2Config(
        text_config=hf.MistralConfig(**TEXT), vision_config=EYE, perceiver_config=perceiver, image_token_id=IMAGE
    )
    return config, lambda tokenizer: hf.Idefics2Processor(eye, tokenizer, image_seq_len=5)


def _internvl() -> Made:
    eye = GotOcr2ImageProcessorPil(**TILES)
    config = hf.InternVLConfig(
        text_config=hf.Qwen2Config(**TEXT), image_token_id=IMAGE, image_seq_length=4,
        vision_config=hf.InternVLVisionConfig(**EYE | {"image_size": [32, 32], "patch_size": [8, 8]}),
    )  # fmt: skip
    return config, lambda tokenizer: images_only(hf.InternVLProcessor)(eye, tokenizer, image_seq_length=4)


def _pixtral(name: str) -> Made:
    eye = PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size={"height": 16, "width": 16})
    vision = hf.PixtralVisionConfig(**EYE | {"image_size": 64}, head_dim=8)
    if name == "mistral3":
        mark = TOKENS.index("[IMG]")
        config = hf.Mistral3Config(text_config=hf.MistralConfig(**WIDE), vision_config=vision, image_token_index=mark)
        return config, lambda tokenizer: processor_of(config)(eye, tokenizer, patch_size=8, spatial_merge_size=2)
    config = hf.LightOnOcrConfig(text_config=hf.Qwen3Config(**WIDE), vision_config=vision, image_token_id=IMAGE)
    return config, lambda tokenizer: hf.LightOnOcrProcessor(eye, tokenizer, patch_size=8, spatial_merge_size=2)


def _aya_vision() -> Made:
    config = hf.AyaVisionConfig(
        text_config=hf.Cohere2Config(**TEXT, sliding_window=9), vision_config=SIGLIP,
        image_token_index=TOKENS.index("<|IMG_PATCH|>"),
    )  # fmt: skip
    more = {"patch_size": 8, "img_size": 32, "downsample_factor": 2}
    return config, lambda tokenizer: hf.AyaVisionProcessor(GotOcr2ImageProcessorPil(**TILES), tokenizer, **more)


def _janus() -> Made:
    eye = JanusImageProcessorPil(size=SQUARE, min_size=8)
    vision = {name: EYE[name] for name in EYE if name != "intermediate_size"}
    config = hf.JanusConfig(
        text_config=LLAMA, vision_config=vision | {"projection_dim": 24, "num_image_tokens": 16, "mlp_ratio": 2},
        vq_config={"base_channels": 32, "latent_channels": 8, "num_embeddings": 12, "projection_dim": 24,
                   "channel_multiplier": [1], "num_patches": 4, "image_token_embed_dim": 24},
        image_token_id=IMAGE,
    )  # fmt: skip
    return config, lambda tokenizer: hf.JanusProcessor(eye, tokenizer, num_image_tokens=16)


def _deepseek_vl() -> Made:
    eye = DeepseekVLImageProcessorPil(size=SQUARE, min_size=8)
    config = hf.DeepseekVLConfig(text_config=LLAMA, vision_config=SIGLIP, image_token_id=IMAGE)
    return config, lambda tokenizer: hf.DeepseekVLProcessor(eye, tokenizer, num_image_tokens=16)


def _aria() -> Made:
    eye = AriaImageProcessorPil(max_image_size=980, min_image_size=64)
    vision = hf.Idefics3VisionConfig(**EYE | {"image_size": 980, "patch_size": 140})
    config = hf.AriaConfig(
        text_config=hf.AriaTextConfig(**TEXT | {"intermediate_size": 16}, moe_num_experts=4), vision_config=vision,
        projector_patch_to_query_dict={49: 6}, image_token_index=IMAGE,
    )  # fmt: skip
    return config, lambda tokenizer: hf.AriaProcessor(eye, tokenizer, size_conversion={980: 6})


def _ovis2() -> Made:
    eye = Ovis2ImageProcessorPil(size=SQUARE, crop_to_patches=True, min_patches=1, max_patches=4)
    ids = [TOKENS.index(f"<IMG_{name}>") for name in ("START", "GRID", "COL", "ROW", "END")]
    config = hf.Ovis2Config(
        text_config=hf.Qwen2Config(**TEXT), vision_config=EYE | {"vocab_size": 30, "hidden_stride": 2},
        image_token_id=TOKENS.index("<IMG_ATOM>"), visual_indicator_token_ids=ids, vocab_size=VOCABULARY,
        hidden_size=24,
    )  # fmt: skip
    return config, lambda tokenizer: hf.Ovis2Processor(eye, tokenizer, image_seq_length=4)


FAMILIES: dict[str, Callable[[], Made]] = {
    "llava": _llava, "vipllava": partial(_llava, hf.VipLlavaConfig), "llava_next": _llava_next,
    "llava_onevision": _llava_onevision, "paligemma": _paligemma, "gemma3": _gemma3,
    **{name: partial(_qwen, name) for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")},
    "glm4v": _glm4v, "video_llama_3": _video_llama_3, "paddleocr_vl": _paddleocr_vl, "idefics3": _idefics3,
    "smolvlm": partial(_idefics3, True), "idefics2": _idefics2, "internvl": _internvl,
    **{name: partial(_pixtral, name) for name in ("mistral3", "lighton_ocr")},
    "aya_vision": _aya_vision, "janus": _janus, "deepseek_vl": _deepseek_vl, "aria": _aria,
    "ovis2": _ovis2,
}  # fmt: skip


def tokenizer() -> Any:
    made = Tokenizer(models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    found = hf.PreTrainedTokenizerFast(tokenizer_object=made, **names, extra_special_tokens=dict(SPECIALS))
    found.add_special_tokens({"additional_special_tokens": OTHERS}, replace_extra_special_tokens=False)
    return found


def save(name: str, folder: Path) -> Path:
    """Save config.json, model.safetensors, the tokenizer and the processor of one family; return their folder."""
    torch.manual_seed(5)
    config, processor = FAMILIES[name]()
    network: PreTrainedModel = hf.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    network.save_pretrained(folder)
    processor(tokenizer()).save_pretrained(folder)
    return folder


def picture(width: int = 60, height: int = 40, seed: int = 3) -> Image.Image:
    """Return an image of random pixels, so that every patch differs from every other."""
    levels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(levels)
