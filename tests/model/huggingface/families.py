"""Tiny random checkpoints of the families that the tests of Hugging Face models run, saved as users save theirs.

Sizes are small and, where the architecture lets them, all different, so that a swapped axis cannot pass.
"""

import copy
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedConfig, PreTrainedModel

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PAD, START, END, UNKNOWN = range(4)
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "saw", "one", "big", "red", "ball", "near", "old"]
VOCABULARY = 61  # more than the tokenizer has, as in many published models
IDS = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}

PLAIN = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 37, "max_position_embeddings": 47, **IDS,
}  # fmt: skip
GROUPED = PLAIN | {"num_key_value_heads": 2}  # two query heads share each key-value head
WIDE = GROUPED | {"head_dim": 10}  # heads · head_dim is not the width
PAIR = {
    "vocab_size": VOCABULARY, "d_model": 24, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 41, "max_position_embeddings": 47, **IDS,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]

DECODERS: dict[str, PreTrainedConfig] = {
    "gpt2": hf.GPT2Config(vocab_size=VOCABULARY, n_embd=24, n_layer=3, n_head=4, n_positions=47, **IDS),
    "llama": hf.LlamaConfig(**WIDE),
    "mistral": hf.MistralConfig(**WIDE, sliding_window=3),
    "qwen2": hf.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": hf.Qwen3Config(**WIDE),
    "gemma2": hf.Gemma2Config(
        **WIDE, sliding_window=3, layer_types=MIXED, attn_logit_softcapping=2.0, final_logit_softcapping=5.0,
        query_pre_attn_scalar=7,
    ),
    "gemma3": hf.Gemma3TextConfig(**WIDE, sliding_window=3, layer_types=MIXED, query_pre_attn_scalar=7),
    "gpt_neox": hf.GPTNeoXConfig(**PLAIN),
    "opt": hf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, ffn_dim=37,
        max_position_embeddings=47, word_embed_proj_dim=14, **IDS,
    ),
    "phi3": hf.Phi3Config(**GROUPED, sliding_window=5),
    "olmo2": hf.Olmo2Config(**GROUPED),
    "gpt_oss": hf.GptOssConfig(
        **WIDE | {"hidden_size": 32, "intermediate_size": 32, "head_dim": 8},  # its experts need multiples of 16 bytes
        sliding_window=3,
        layer_types=MIXED,
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    "mixtral": hf.MixtralConfig(
        **WIDE | {"intermediate_size": 36}, sliding_window=3, num_local_experts=4, num_experts_per_tok=2
    ),
    "phi": hf.PhiConfig(**PLAIN | {"hidden_size": 32}),  # half of a head's width is rotated, and must be even
}  # fmt: skip
ENCODERS: dict[str, PreTrainedConfig] = {
    "bert": hf.BertConfig(**PLAIN),
    "roberta": hf.RobertaConfig(**PLAIN | {"pad_token_id": PAD}),
    "distilbert": hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=24, n_layers=3, n_heads=4, hidden_dim=37, max_position_embeddings=47, **IDS
    ),
    "modernbert": hf.ModernBertConfig(**PLAIN, local_attention=4, cls_token_id=START, sep_token_id=END),
}
PAIRS: dict[str, PreTrainedConfig] = {
    "t5": hf.T5Config(
        vocab_size=VOCABULARY, d_model=24, d_kv=7, d_ff=37, num_layers=3, num_decoder_layers=2, num_heads=4,
        decoder_start_token_id=PAD, **IDS,
    ),
    "bart": hf.BartConfig(**PAIR, decoder_start_token_id=END),
    "marian": hf.MarianConfig(**PAIR, decoder_start_token_id=PAD),
}  # fmt: skip
REFUSED: dict[str, PreTrainedConfig] = {
    "bloom": hf.BloomConfig(vocab_size=VOCABULARY, hidden_size=24, n_layer=2, n_head=3),
    "gpt_neo": hf.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]]
    ),
    "falcon": hf.FalconConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=3),
}
TEMPLATES = {  # the tokens that each family's tokenizers add around a text
    "gpt2": "$A",
    "gpt_neox": "$A",
    "qwen2": "$A",
    "qwen3": "$A",
    "bert": "<s> $A </s>",
    "roberta": "<s> $A </s>",
    "distilbert": "<s> $A </s>",
    "modernbert": "<s> $A </s>",
    "t5": "$A </s>",
    "marian": "$A </s>",
    "bart": "<s> $A </s>",
}
ALL = DECODERS | ENCODERS | PAIRS
ALIKE = {  # families that run the same code here as another; `python -m tests.benchmarks.families` compares them too
    "qwen3", "gemma3", "gpt_neox", "phi3", "mixtral", "phi", "distilbert", "codegen", "qwen3_5", "qwen3_5_moe",
    "granitemoehybrid", "olmo_hybrid", "paligemma", "mistral3", "internvl", "smolvlm", "switch_transformers",
}  # fmt: skip
SOME = {name: config for name, config in ALL.items() if name not in ALIKE}


def network_class(name: str) -> type:
    if name in PAIRS:
        return hf.AutoModelForSeq2SeqLM
    return hf.AutoModelForMaskedLM if name in ENCODERS else hf.AutoModelForCausalLM


def random_network(name: str, config: PreTrainedConfig | None = None) -> PreTrainedModel:
    """Return a network with weights large enough for non-uniform attention, and no norm or bias at its 1 or 0."""
    config = copy.deepcopy(config or (ALL | REFUSED)[name])  # a network keeps the config it is given
    network = network_class(name).from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            centre = 0.0 if parameter.ndim > 1 else float(parameter.mean())
            parameter.copy_(centre + 0.3 * torch.randn(parameter.shape, generator=generator))
        for weight_name, parameter in network.named_parameters():
            if name == "t5" and weight_name.endswith("Attention.q.weight"):
                parameter *= network.config.d_kv**-0.5  # T5 has this scale in its query weights, not in its scores
    return network


def word_tokenizer(template: str = "$A") -> Tokenizer:
    """Return a tokenizer with one token per word, the ids of SPECIAL first, and this post-processing template."""
    entries = {token: index for index, token in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    if template != "$A":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", START), ("</s>", END)]
        )
    return tokenizer


def save_tokenizer(folder: Path, template: str = "$A") -> None:
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(template), bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>",
    )  # fmt: skip
    tokenizer.save_pretrained(folder)


def save(name: str, folder: Path, config: PreTrainedConfig | None = None) -> Path:
    """Save config.json, model.safetensors and the tokenizer of one family, and return their folder."""
    random_network(name, config).save_pretrained(folder)
    save_tokenizer(folder, TEMPLATES.get(name, "<s> $A"))
    return folder
