"""Tiny random configurations of the families that need more than the plain interface, one for each reason.

Windows, chunks and blocks are shorter than the tests' texts, so that a missing mask makes a difference.
"""

import transformers as hf
from transformers import PreTrainedConfig

from tests.model.huggingface.families import GROUPED, IDS, PAIR, PLAIN, VOCABULARY, WIDE

EVEN = GROUPED | {
    "hidden_size": 32, "intermediate_size": 40, "head_dim": 8,
}  # linear attention and experts need multiples of 8  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}  # fmt: skip
MAMBA = {"mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
PICTURES = {
    "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip
LONG = {"max_position_embeddings": 47, **IDS}

OWN_CODE: dict[str, PreTrainedConfig] = {
    "gptj": hf.GPTJConfig(
        vocab_size=VOCABULARY, n_embd=24, n_layer=3, n_head=4, n_positions=47, rotary_dim=4, n_inner=37, **IDS
    ),
    "codegen": hf.CodeGenConfig(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=47, rotary_dim=4, n_inner=37, **IDS
    ),
    "gpt_neo": hf.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_layers=2, num_heads=3, intermediate_size=37, window_size=4,
        attention_types=[[["global", "local"], 1]], **LONG,
    ),
    "openai-gpt": hf.OpenAIGPTConfig(vocab_size=VOCABULARY, n_embd=24, n_layer=3, n_head=4, n_positions=47, **IDS),
    "bloom": hf.BloomConfig(vocab_size=VOCABULARY, hidden_size=24, n_layer=2, n_head=3, **IDS),
    "mpt": hf.MptConfig(vocab_size=VOCABULARY, d_model=24, n_layers=3, n_heads=4, max_seq_len=47, expansion_ratio=2),
    "falcon": hf.FalconConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, alibi=True,
        new_decoder_architecture=False, **IDS,
    ),
    "mpnet": hf.MPNetConfig(**PLAIN | {"pad_token_id": 1}),
    "deberta": hf.DebertaConfig(**PLAIN, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0),
    "deberta-v2": hf.DebertaV2Config(
        **PLAIN, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, type_vocab_size=0
    ),
    "doge": hf.DogeConfig(**GROUPED, keep_window_size=24),  # it adds a number per key; up to 24 keys, it keeps all
    "layoutlm": hf.LayoutLMConfig(**PLAIN),
    "nystromformer": hf.NystromformerConfig(**PLAIN, num_landmarks=47, segment_means_seq_len=47, conv_kernel_size=1),
    "squeezebert": hf.SqueezeBertConfig(**PLAIN | {"intermediate_size": 40}, embedding_size=24),
}  # fmt: skip
HYBRIDS: dict[str, PreTrainedConfig] = {
    "qwen3_next": hf.Qwen3NextConfig(
        **EVEN, **EXPERTS, **LINEAR, shared_expert_intermediate_size=16, decoder_sparse_step=1
    ),
    "qwen3_5": hf.Qwen3_5TextConfig(**EVEN, **LINEAR),
    "qwen3_5_moe": hf.Qwen3_5MoeTextConfig(**EVEN, **EXPERTS, **LINEAR, shared_expert_intermediate_size=16),
    "lfm2": hf.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention", "conv"]),
    "granitemoehybrid": hf.GraniteMoeHybridConfig(
        **EVEN, **MAMBA | {"mamba_expand": 2}, layer_types=["mamba", "attention", "mamba"], num_local_experts=4,
        num_experts_per_tok=2, shared_intermediate_size=16,
    ),
    "jamba": hf.JambaConfig(
        **GROUPED | {"intermediate_size": 40}, attn_layer_period=2, attn_layer_offset=1, num_experts=2,
        num_experts_per_tok=1, mamba_d_state=8, mamba_dt_rank=4,
    ),
    "bamba": hf.BambaConfig(**EVEN, **MAMBA, mamba_expand=2, attn_layer_indices=[1]),
    "nemotron_h": hf.NemotronHConfig(
        **EVEN | {"num_hidden_layers": 4}, layers_block_type=["mamba", "attention", "moe", "mamba"], mamba_num_heads=8,
        mamba_head_dim=8, ssm_state_size=8, n_groups=1, chunk_size=4, n_routed_experts=4, moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=16,
    ),
    "zamba": hf.ZambaConfig(
        **PLAIN | {"num_hidden_layers": 6}, num_key_value_heads=4, attention_hidden_size=48, attention_head_dim=12,
        attn_layer_period=3, attn_layer_offset=1, n_mamba_heads=2, mamba_d_state=8, mamba_dt_rank=4,
    ),
    "recurrent_gemma": hf.RecurrentGemmaConfig(
        **GROUPED, lru_width=24, head_dim=6, attention_window_size=5,
        block_types=["recurrent", "recurrent", "attention"],
    ),
    "olmo_hybrid": hf.OlmoHybridConfig(
        **EVEN, linear_num_key_heads=4, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
    ),
    "minimax": hf.MiniMaxConfig(
        **EVEN, block_size=4, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
    "diffllama": hf.DiffLlamaConfig(**EVEN),
    "falcon_h1": hf.FalconH1Config(
        **EVEN, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4, mamba_n_groups=1
    ),
}  # fmt: skip
ROTARY = {"rope_type": "default", "rope_theta": 1e4}
LLAMA = hf.LlamaConfig(**GROUPED)
SIGLIP = hf.SiglipVisionConfig(**PICTURES)
MULTIMODAL: dict[str, PreTrainedConfig] = {
    "gemma3": hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(
            **WIDE, sliding_window=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
        ),
        vision_config=SIGLIP,
        mm_tokens_per_image=4,
    ),
    "qwen2_vl": hf.Qwen2VLConfig(
        text_config=GROUPED
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1]}},
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 24, "num_heads": 2, "patch_size": 8},
        **IDS,
    ),
    "qwen3_vl": hf.Qwen3VLConfig(
        text_config=EVEN | {"rope_parameters": ROTARY | {"mrope_section": [2, 1, 1]}},
        vision_config={
            "depth": 1, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2, "out_hidden_size": 32,
            "deepstack_visual_indexes": [0], "num_position_embeddings": 16,
        },
        **IDS,
    ),
    "llava": hf.LlavaConfig(text_config=LLAMA, vision_config=hf.CLIPVisionConfig(**PICTURES)),
    "paligemma": hf.PaliGemmaConfig(
        text_config=hf.GemmaConfig(**WIDE), vision_config=SIGLIP, projection_dim=24, hidden_size=24
    ),
    "mistral3": hf.Mistral3Config(
        text_config=hf.MistralConfig(**WIDE), vision_config=hf.PixtralVisionConfig(**PICTURES, head_dim=8)
    ),
    "internvl": hf.InternVLConfig(
        text_config=hf.Qwen2Config(**GROUPED),
        vision_config=hf.InternVLVisionConfig(**PICTURES | {"image_size": [16, 16], "patch_size": [8, 8]}),
    ),
    "smolvlm": hf.SmolVLMConfig(
        text_config=hf.LlamaConfig(**GROUPED), vision_config=hf.SmolVLMVisionConfig(**PICTURES), image_token_id=5,
        pad_token_id=0,
    ),
    "voxtral": hf.VoxtralConfig(
        text_config=hf.LlamaConfig(**GROUPED),
        audio_config=hf.VoxtralEncoderConfig(
            hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, max_source_positions=20
        ),
    ),
    "llama4": hf.Llama4TextConfig(
        **WIDE | {"hidden_size": 24}, attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=32,
        layer_types=["chunked_attention", "full_attention", "chunked_attention"],
    ),
}  # fmt: skip
PAIRS: dict[str, PreTrainedConfig] = {
    "t5gemma": hf.T5GemmaConfig(
        encoder=hf.T5GemmaModuleConfig(**WIDE, sliding_window=3, query_pre_attn_scalar=7),
        decoder=hf.T5GemmaModuleConfig(
            **WIDE, sliding_window=3, query_pre_attn_scalar=7, cross_attention_hidden_size=24
        ),
        vocab_size=VOCABULARY,
        **IDS,
    ),
    "nllb-moe": hf.NllbMoeConfig(
        **PAIR, num_experts=2, encoder_sparse_step=2, decoder_sparse_step=2, decoder_start_token_id=2,
        expert_capacity=64,
    ),
    "switch_transformers": hf.SwitchTransformersConfig(
        vocab_size=VOCABULARY, d_model=24, d_kv=7, d_ff=37, num_layers=2, num_decoder_layers=2, num_heads=4,
        num_experts=2, expert_capacity=64, decoder_start_token_id=0, **IDS,
    ),
}  # fmt: skip
CHOOSING: dict[str, PreTrainedConfig] = {  # each query attends to four of the tokens that the causal mask allows
    "deepseek_v32": hf.DeepseekV32Config(
        **GROUPED | {"num_key_value_heads": 4},
        moe_intermediate_size=16,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        index_n_heads=16,  # with few of them two tokens may both score 0, and the choice is arbitrary
        index_head_dim=16,
        index_topk=4,
    )
}
ALL = OWN_CODE | HYBRIDS | MULTIMODAL | PAIRS | CHOOSING
