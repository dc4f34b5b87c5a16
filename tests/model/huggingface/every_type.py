"""A tiny random network of every model type in transformers' causal, masked and seq2seq mappings.

Sizes are set by the names of the fields of a configuration and its parts. Windows, chunks and top k are EDGE tokens;
matrices have a gain of about 1, so that attention is far from uniform.
"""

import dataclasses
import re
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

MAPPINGS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
V, W, L, H, D, EDGE, CONTEXT = 320, 64, 2, 4, 16, 9, 128
SIZES = {  # value -> the names of the fields that get it
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
    "num_decoder_layers num_blocks depth num_layers_per_stack text_layers t2u_encoder_layers "
    "t2u_decoder_layers speech_encoder_layers num_key_value_heads num_kv_heads swa_num_key_value_heads "
    "o_groups num_experts_per_tok moe_k moe_topk topk_group_experts eos_token_id decoder_start_token_id "
    "sep_token_id eos_index n_mamba_heads linear_num_key_heads type_vocab_size num_self_attends_per_block",
    16: "head_dim kv_channels v_head_dim qk_nope_head_dim d_kv dim_head swa_head_dim index_head_dim d_head "
    "attention_head_size linear_key_head_dim linear_value_head_dim linear_head_dim kv_lora_rank "
    "global_head_dim attention_head_dim o_lora_rank mamba_d_state ssm_state_size state_size mamba_d_head "
    "mamba_head_dim router_hidden_size hidden_size_per_layer_input unit_embed_dim num_mel_bins prompt_mid_dim "
    "embedding_rank hc_lowrank ple_embed_dim",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "attention_heads num_encoder_attention_heads num_decoder_attention_heads index_n_heads "
    "swa_num_attention_heads speech_encoder_attention_heads t2u_encoder_attention_heads "
    "t2u_decoder_attention_heads num_experts n_routed_experts num_local_experts moe_num_experts "
    "zero_expert_num mask_index linear_num_value_heads linear_num_heads prompt_length block_size "
    "num_self_attention_heads num_cross_attention_heads num_landmarks segment_means_seq_len",
    64: "hidden_size d_model n_embd emb_dim dim embedding_size input_embedding_size output_embedding_size "
    "word_embed_proj_dim embedding_dim attention_hidden_size lru_width prediction_head_size "
    "backbone_hidden_size embed_dim decoder_hidden_size projection_dim text_embed_dim entity_emb_size "
    "max_num_patches d_latents",
    96: "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim d_inner dff ffn_hidden_size dim_ff "
    "hidden_dim dense_intermediate_size intermediate_size_mlp feed_forward_size "
    "shared_expert_intermediate_size mlp_dim shared_intermediate_size n_inner speech_encoder_intermediate_size "
    "t2u_encoder_ffn_dim t2u_decoder_ffn_dim",
    1: "n_shared_experts num_shared_experts moe_num_shared_experts n_group topk_group first_k_dense_replace "
    "num_dense_layers moe_layer_start_index moe_layer_end_index max_window_layers bos_token_id cls_token_id "
    "bos_index n_groups mamba_ngroups num_random_blocks split_ngram_parts",
    8: "qk_rope_head_dim rotary_dim laurel_rank attention_window mamba_n_heads mamba_num_heads mamba_dt_rank "
    "time_step_rank mamba_chunk_size chunk_size adapter_rank patch_size num_latents",
    128: "max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length context_length "
    "max_source_positions max_target_positions max_encoder_position_embeddings max_decoder_position_embeddings "
    "seq_length mamba_d_ssm",
    9: "sliding_window window_size attention_window_size sliding_window_size index_topk keep_window_size "
    "local_attention_window_len local_radius attention_chunk_size",
    320: "vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size vocab_size_per_layer_input",
    32: "moe_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size image_size "
    "intra_bottleneck_size",
    0: "pad_token_id pad_index num_kv_shared_layers num_mtp_layers num_nextn_predict_layers",
    3: "mask_token_id unk_token_id unk_index vocoder_num_langs vocoder_num_spkrs",
    50: "unit_hifi_gan_vocab_size t2u_vocab_size char_vocab_size",
    24: "q_lora_rank",
    18: "local_attention",
    20: "entity_vocab_size",
    500: "encoder_hash_byte_group_vocab",
    200: "ngram_vocab_size_base",
}
# What a type needs beyond SIZES: fields that are replaced or added, in its text part too.
MIX = ["linear_attention", "full_attention"]
BY_TYPE = {
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": {"layer_types": MIX},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "zamba": {
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
        "num_hidden_layers": 6,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
    },
    "zaya": {"num_experts_per_tok": 1},
    "esm": {"vocab_size": V},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "hunyuan_v1_dense": {"head_dim": D},
    "hunyuan_v1_moe": {"head_dim": D},
    "ministral": {"head_dim": D},
    # as published, with 16 blocks of 128, it equals dense attention on texts no longer than all blocks together
    "minimax_m3_vl_text": {
        "index_block_size": 8,
        "index_topk_blocks": 2,
        "index_local_blocks": 1,
        "layer_types": ["full_attention", "minimax_m3_sparse"],
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": W},
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": D,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "xmod": {"default_language": "en_XX"},
    "dots3_note_text": {
        "num_key_value_heads": 4,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "qk_rope_head_dim": 8,
        "index_head_dim": 16,
        "n_routed_experts": 4,
    },
    "hrm_text": {"num_hidden_layers": 1, "head_dim": D, "num_layers_per_stack": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "big_bird": {"attention_type": "original_full"},
    "albert": {"embedding_size": 32},
    "funnel": {"block_sizes": [1, 1], "d_head": 16, "num_decoder_layers": 2},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "local"]},
    "xlstm": {"num_heads": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "rwkv": {"attention_hidden_size": W},
    "gemma3n_text": {"intermediate_size": [96, 96], "activation_sparsity_pattern": [0.0, 0.0]},
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "ctrl": {"dff": 96},
    "mpt": {"d_model": W},
    "longt5": {"local_radius": 4},
    "seamless_m4t": {"hidden_size": W},
    "tapas": {"type_vocab_sizes": [3, 8, 8, 2, 8, 8, 10]},
}

BY_NAME = {name: size for size, names in SIZES.items() for name in names.split()}
LEFT_NONE = (  # fields that are set although their default is None
    "pad_token_id|num_key_value_heads|eos_token_id|bos_token_id|^ple_|sliding_window|decoder_start"
)
LISTS = "layer_types", "mlp_layer_types", "layers_block_type", "indexer_types"
COUNTS = "num_hidden_layers", "n_layer", "num_layers"
DROPPED = (  # fields left out, set after set, until a configuration accepts the rest
    *((), ("mlp_layer_types",), ("layer_types",), ("indexer_types",), ("layer_types", "mlp_layer_types")),
    *(("head_dim",), ("sliding_window",), ("num_key_value_heads",), ("layers_block_type",)),
)
AS_DECODERS = {  # in the causal mapping, but encoders unless is_decoder is set
    *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"),
    *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    "reformer",
}


def network_of(mapping: str, model_type: str) -> nn.Module:
    """Return a type's network in eval mode with random weights. Raises what the type's own classes raise."""
    name = MAPPINGS[mapping][model_type]
    loader: Any = getattr(hf, name[0] if isinstance(name, tuple | list) else name)
    config = _pair() if model_type == "encoder-decoder" else _config_of(loader, model_type)
    if mapping == "causal" and model_type in AS_DECODERS:
        config.is_decoder = True
    torch.manual_seed(0)
    network = loader(config)
    _fill(network)
    return network.eval()


def _config_of(loader: Any, model_type: str) -> Any:
    declared = CONFIG_MAPPING[model_type]
    own = getattr(loader, "config_class", None)  # a composite's text part has its own
    return tiny(declared if own is None else own)


def _pair() -> Any:
    def part() -> Any:  # a new one each time: one of them becomes a decoder
        sizes = {"num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": 96, "pad_token_id": 0}
        return hf.BertConfig(vocab_size=V, hidden_size=W, max_position_embeddings=CONTEXT, **sizes)

    return hf.EncoderDecoderConfig.from_encoder_decoder_configs(
        part(), part(), decoder_start_token_id=1, pad_token_id=0
    )


def tiny(kind: Any) -> Any:
    """Return a small configuration of a class, its parts included."""
    try:
        usual = kind()
    except Exception:  # noqa: BLE001 - some need sizes that fit each other
        usual = None
    given = _sizes_of(kind, usual)
    if "qk_rope_head_dim" in given and "head_dim" in given:
        given["head_dim"] = given["qk_rope_head_dim"]  # the width of the rotated part
    if {"num_key_value_heads", "kv_lora_rank", "qk_rope_head_dim"} <= set(given):
        given["num_key_value_heads"] = H
    given |= _layers_of(kind, usual, given) | BY_TYPE.get(kind.model_type, {})
    errors = []
    for without in DROPPED:
        try:
            return kind(**{name: value for name, value in given.items() if name not in without})
        except Exception as error:  # noqa: BLE001 - configurations have many checks
            errors.append(error)
    raise errors[0]


def _sizes_of(kind: Any, usual: Any) -> dict[str, Any]:
    given: dict[str, Any] = {}
    parts = getattr(kind, "sub_configs", None) or {}
    for name in [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []:
        default = _value(usual, name)
        if name in parts:
            part = parts[name] if default is None or isinstance(default, dict) else type(default)
            if part.__name__ != "AutoConfig":
                given[name] = tiny(part).to_dict()
        elif name not in BY_NAME or isinstance(default, bool) or (default is None and not re.search(LEFT_NONE, name)):
            continue
        elif isinstance(default, list | tuple) and name != "eos_token_id":
            given[name] = type(default)([BY_NAME[name]] * min(len(default), L))
        else:
            given[name] = BY_NAME[name]
    return given


def _layers_of(kind: Any, usual: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that give at least one layer of every kind in the default configuration."""
    kinds = {name: found for name in LISTS if isinstance(found := _value(usual, name), list | tuple) and found}
    first = [*dict.fromkeys(kinds.get("layer_types") or kinds.get("layers_block_type") or [])]
    layers, fields = max(L, len(first)), {field.name for field in dataclasses.fields(kind)}
    lists = {name: ([*dict.fromkeys(some)] * layers)[:layers] for name, some in kinds.items() if name in fields}
    return lists | {name: layers for name in COUNTS if name in given}


def _value(config: Any, name: str) -> Any:
    if config is None:
        return 0 if name in BY_NAME else None
    try:
        return getattr(config, name, True)  # True: no such field, it is left alone
    except Exception:  # noqa: BLE001 - may be an attribute of each layer
        return 0


def _fill(network: Any) -> None:
    """Fill matrices with a gain of about 1, more for queries and keys; move norms and biases off 1 and 0."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if not parameter.is_floating_point():
            continue
        with torch.no_grad():
            if parameter.ndim == 2 or ("experts" in name and parameter.ndim == 3):
                gain = 1.6 if re.search(r"q_|k_|query|key|qkv|c_attn|\.q\.|\.k\.|Wqkv", name) else 1.0
                if hasattr(network.config, "d_kv") and re.search(r"\.q\.", name):
                    gain *= network.config.d_kv**-0.5  # T5 has this scale in its query weights, not in its scores
                table = parameter.shape[0] in (V, CONTEXT, CONTEXT + 2) and "head" not in name
                parameter.copy_(noise * (0.5 if table else gain / parameter.shape[-1] ** 0.5))
            elif parameter.ndim == 1 and re.search(r"norm|bias$", name) and "dt_bias" not in name:
                parameter.add_(0.1 * noise)
