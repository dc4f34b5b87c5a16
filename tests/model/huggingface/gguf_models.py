"""A tiny random Llama in GGUF files as llama.cpp writes them, and its weights, dequantized.

The package gguf quantizes F16 and Q8_0; blocks of Q4_K and Q6_K, which it only dequantizes, are written here at random.
"""

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM

from model.training.story import train_tokenizer
from tests.model.huggingface.families import WORDS

WIDTH, LAYERS, HEADS, SHARED, INNER = 256, 2, 8, 2, 512  # rows of K-quants are multiples of 256 numbers
TOKENIZER = json.loads(train_tokenizer([" ".join(WORDS)] * 3, 277).to_str())["model"]
TOKENS = sorted(TOKENIZER["vocab"], key=TOKENIZER["vocab"].__getitem__)
PAD, START = 0, 1
CHAT = "{% for message in messages %}<start>{{ message.role }}: {{ message.content }}{% endfor %}"
PARTS = {  # of a layer: llama.cpp's name -> transformers' name, rows
    "attn_q": ("self_attn.q_proj", WIDTH), "attn_k": ("self_attn.k_proj", WIDTH * SHARED // HEADS),
    "attn_v": ("self_attn.v_proj", WIDTH * SHARED // HEADS), "attn_output": ("self_attn.o_proj", WIDTH),
    "ffn_gate": ("mlp.gate_proj", INNER), "ffn_up": ("mlp.up_proj", INNER), "ffn_down": ("mlp.down_proj", WIDTH),
}  # fmt: skip
NAMES = {f"blk.{layer}.{part}.weight": (f"model.layers.{layer}.{name}.weight", rows)
         for layer in range(LAYERS) for part, (name, rows) in PARTS.items()}  # fmt: skip


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=SHARED, intermediate_size=INNER, max_position_embeddings=47, rms_norm_eps=1e-5,
        pad_token_id=PAD, bos_token_id=START, eos_token_id=START, tie_word_embeddings=False,
    )  # fmt: skip


def q4_k(rows: int, columns: int, random: np.random.Generator) -> np.ndarray:
    """Return valid block_q4_K data of ggml: d, dmin (float16), 12 bytes of 6-bit scales and minima, 128 of 4-bit."""
    count = rows * columns // 256
    blocks = random.integers(0, 256, (count, 144), np.uint8)
    blocks[:, :4] = np.tile(np.array([2e-4, 1.5e-3], np.float16).view(np.uint8), (count, 1))
    return blocks.reshape(rows, -1)


def q6_k(rows: int, columns: int, random: np.random.Generator) -> np.ndarray:
    """Return valid block_q6_K data of ggml: 192 bytes of 6-bit numbers, 16 scales (int8), d (float16)."""
    count = rows * columns // 256
    blocks = random.integers(0, 256, (count, 210), np.uint8)
    blocks[:, 192:208] = random.integers(-9, 10, (count, 16), np.int8).view(np.uint8)
    blocks[:, 208:] = np.array([1e-3], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def save(path: Path, quantization: str) -> LlamaForCausalLM:
    """Write a GGUF file, and return transformers' network of the same weights, dequantized.

    quantization: "F16", "Q8_0", or "Q4_K_M", llama.cpp's mixture of Q4_K and, for half of two parts, Q6_K.
    """
    random = np.random.default_rng(7)
    network = LlamaForCausalLM(config()).eval()
    writer = _writer(path)
    state = network.state_dict()

    def add(name: str, theirs: str, rows: int, columns: int, kind: Kind) -> None:
        if kind in (Kind.Q4_K, Kind.Q6_K):
            data = (q4_k if kind is Kind.Q4_K else q6_k)(rows, columns, random)
        else:
            data = quantize(random.normal(0, 0.1, (rows, columns)).astype(np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        weights = dequantize(data, kind).reshape(rows, columns)
        if "attn_q" in name or "attn_k" in name:  # llama.cpp rotates pairs of neighbours, transformers halves
            heads = HEADS if "attn_q" in name else SHARED
            weights = weights.reshape(heads, -1, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        state[theirs] = torch.from_numpy(np.ascontiguousarray(weights, np.float32))

    usual = {"F16": Kind.F16, "Q8_0": Kind.Q8_0, "Q4_K_M": Kind.Q4_K}[quantization]
    add("token_embd.weight", "model.embed_tokens.weight", len(TOKENS), WIDTH, usual)
    add("output.weight", "lm_head.weight", len(TOKENS), WIDTH, Kind.Q6_K if usual is Kind.Q4_K else usual)
    for name, (theirs, rows) in NAMES.items():
        finer = usual is Kind.Q4_K and name.startswith("blk.0.") and ("attn_v" in name or "ffn_down" in name)
        add(name, theirs, rows, INNER if "ffn_down" in name else WIDTH, Kind.Q6_K if finer else usual)
    norms = {f"blk.{layer}.{ours}_norm.weight": f"model.layers.{layer}.{theirs}.weight" for layer in range(LAYERS)
             for ours, theirs in (("attn", "input_layernorm"), ("ffn", "post_attention_layernorm"))}  # fmt: skip
    for name, theirs in {**norms, "output_norm.weight": "model.norm.weight"}.items():
        scale = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        writer.add_tensor(name, scale)
        state[theirs] = torch.from_numpy(scale)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    network.load_state_dict(state)
    return network


def _writer(path: Path) -> GGUFWriter:
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(47)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges([" ".join(pair) for pair in TOKENIZER["merges"]])
    writer.add_token_types([3 if index in (PAD, START) else 1 for index in range(len(TOKENS))])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(START)
    writer.add_pad_token_id(PAD)
    writer.add_chat_template(CHAT)
    return writer
