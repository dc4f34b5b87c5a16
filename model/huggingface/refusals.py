"""What can be said of a model from its config.json alone: which architectures cannot be shown, and why.

The proof at loading (verify.py) would refuse each of these too, after its weights were fetched.
"""

from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from i18n import N_, say
from model.errors import NotSupported
from model.huggingface import formats

SUPPORTED = (
    "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, gpt_neox, gptj, bloom, falcon, opt, phi3, olmo2, gpt_oss, "
    "bert, roberta, deberta, distilbert, t5, bart, marian"
)
NOT_SHOWN = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), N_("its layers are a state space, which looks at no tokens")),
    **dict.fromkeys(("rwkv", "xlstm"), N_("its layers are a recurrence, which looks at no tokens")),
    "fnet": N_("it mixes its tokens by Fourier transforms, without attention"),
    "perceiver": N_("its attention is from latent vectors to a text, not from token to token"),
    **dict.fromkeys(
        ("longformer", "led", "longt5", "pegasus_x", "reformer", "mra", "yoso"),
        N_("its attention is sparse, computed in blocks or by hashes by code of its own, not as scores of all tokens"),
    ),
    "funnel": N_("its layers pool the tokens, so that queries and keys are no tokens of the text any more"),
    "deepseek_v4": N_("its attention looks at compressed groups of tokens beside the tokens"),
    "t5gemma2": N_("its decoder looks at its source and its target in one attention, not in two"),
    "prophetnet": N_("its decoder predicts several tokens at once, with an attention of its own for each"),
    "blt": N_("it reads bytes in patches, and its attention is between bytes and patches by code of its own"),
    "cpmant": N_("it puts vectors of its own before every text, so that its attention is not on the text's tokens "
                 "alone"),
    "fsmt": N_("its decoder is given its masks in a way of its own, and its two vocabularies are no tokenizer's here"),
    **dict.fromkeys(
        ("dots3_note", "dots3_note_text", "minimax_m3_vl", "minimax_m3_vl_text", "qwen4_exp", "qwen4_exp_text"),
        N_("an indexer of its own chooses the blocks of tokens that it looks at, for each query others"),
    ),
    **dict.fromkeys(
        ("musicgen", "musicgen_decoder", "musicgen_melody", "musicgen_melody_decoder"),
        N_("it writes music: its tokens are sounds, no text"),
    ),
    "udop": N_("it reads a text with the place of each word on a page, never a text alone"),
    "voxtral_realtime": N_("it runs on sound with a text, never on a text alone"),
    "pi0": N_("it moves robots: it runs on pictures and the state of joints, never on a text alone"),
    **dict.fromkeys(("pix2struct", "pp_formulanet", "vision-encoder-decoder"),
                    N_("its encoder reads pictures, no text")),
    **dict.fromkeys(("blip", "blip-2", "instructblip", "instructblipvideo", "kosmos-2", "idefics"),
                    N_("it runs on a picture with a text, never on a text alone")),
}  # fmt: skip
OTHER_SENSES = (
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", N_("it is a speech model: what it reads is sound, no text")),
    ("MODEL_FOR_CTC_MAPPING_NAMES", N_("it is a speech model: what it reads is sound, no text")),
    ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", N_("it is a sound model: what it reads is sound, no text")),
    ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", N_("it is an image model: what it reads is pictures, no text")),
    ("MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", N_("it is an image model: what it reads is pictures, no text")),
    ("MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES", N_("it writes sound, no text")),
)
READS_TEXT = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
)


def refusal(name: str, model_type: str, why: str) -> NotSupported:
    return NotSupported(
        say(
            "{model} ({kind}) cannot be shown: {why}. Supported are {supported} and most others.",
            model=name, kind=model_type, why=why, supported=SUPPORTED,
        )
    )  # fmt: skip


def check_type(name: str, config: dict[str, Any]) -> None:
    """Raises NotSupported for an architecture that transformers lacks or that is known not to be shown, CheckpointError
    for weights that are stored quantised."""
    model_type = config["model_type"]
    formats.check_config(name, config)
    if model_type not in CONFIG_MAPPING and "auto_map" in config:
        raise refusal(name, model_type, say("it needs code of its own, which this program never runs"))
    if model_type not in CONFIG_MAPPING:
        raise refusal(name, model_type, say("the installed transformers does not know its architecture"))
    why = NOT_SHOWN.get(model_type) or _reads_no_text(model_type, bool(config.get("is_encoder_decoder")))
    if why is not None:
        raise refusal(name, model_type, say(why))


def _reads_no_text(model_type: str, encoder_decoder: bool) -> str | None:
    """An encoder-decoder of speech is among the causal models too, as its decoder alone."""
    text = READS_TEXT[2:] if encoder_decoder else READS_TEXT
    if any(model_type in getattr(modeling_auto, names) for names in text):
        return None
    return next((why for names, why in OTHER_SENSES if model_type in getattr(modeling_auto, names)), None)
