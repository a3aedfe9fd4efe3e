#!/usr/bin/env python3
"""Write a tiny random model in Hugging Face's format (config, safetensors,
tokenizer with chat template), for vLLM, SGLang and transformers.

usage: tiny_hf.py KIND OUT_DIR [--context N]     KIND: chat, think or embed

Same vocabulary, preferences and special dimensions as tiny_gguf.py of internal/llama,
but attention heads of width 32: vLLM's CPU attention does not support width 16.
Needs torch, safetensors, tokenizers, transformers (vLLM brings them).
"""
import argparse, json, math, os, struct, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "llama"))
import tiny_gguf as g
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, decoders, AddedToken

p = argparse.ArgumentParser()
p.add_argument("kind", choices=["chat", "think", "embed"])
p.add_argument("out")
p.add_argument("--context", type=int, default=2048)
a = p.parse_args()
os.makedirs(a.out, exist_ok=True)

g.WIDTH, g.HEADS, g.KV_HEADS, g.FEED_FORWARD = 128, 4, 2, 256
g.HEAD_WIDTH = g.WIDTH // g.HEADS
tokens = g.vocabulary(a.kind == "think")
pad = -len(tokens) % 64
half = g.HEAD_WIDTH // 2


def unpermute(t, heads):  # rotary pairs (2j, 2j+1) of GGUF become (j, j+half)
    return t.view(heads, half, 2, -1).transpose(1, 2).reshape(t.shape)


names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
state = {}
for name, dims, data in g.tensors(tokens):
    t = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(tuple(reversed(dims)))
    base = name.removesuffix(".weight")
    if base.startswith("blk."):
        _, layer, part = base.split(".")
        if part == "attn_q":
            t = unpermute(t, g.HEADS)
        if part == "attn_k":
            t = unpermute(t, g.KV_HEADS)
        key = f"model.layers.{layer}.{parts[part]}.weight"
    else:
        key = names[base] + ".weight"
    if base in ("token_embd", "output") and pad:
        t = torch.cat([t, torch.zeros(pad, g.WIDTH)])
    state[key] = t.contiguous()
if a.kind == "embed":
    state = {k: v for k, v in state.items() if k != "lm_head.weight"}
save_file(state, os.path.join(a.out, "model.safetensors"), metadata={"format": "pt"})

json.dump({
    "architectures": ["LlamaModel" if a.kind == "embed" else "LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": g.WIDTH, "intermediate_size": g.FEED_FORWARD, "num_hidden_layers": g.LAYERS,
    "num_attention_heads": g.HEADS, "num_key_value_heads": g.KV_HEADS, "head_dim": g.HEAD_WIDTH,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1e6, "vocab_size": len(tokens) + pad,
    "max_position_embeddings": a.context, "tie_word_embeddings": False, "attention_bias": False,
    "mlp_bias": False, "bos_token_id": g.BOS, "eos_token_id": g.EOS, "pad_token_id": g.PAD,
    "torch_dtype": "float32", "initializer_range": 0.02,
}, open(os.path.join(a.out, "config.json"), "w"), indent=1)
json.dump({"bos_token_id": g.BOS, "eos_token_id": [g.EOS, 2], "pad_token_id": g.PAD, "do_sample": True},
          open(os.path.join(a.out, "generation_config.json"), "w"))

vocab, merges = {}, []
for n, t in enumerate(tokens):
    vocab[t[0]] = n
for t in tokens:
    if t[1] == g.NORMAL and len(t[0]) > 1:
        merges.append((t[0][:-1], t[0][-1]))
tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
tok.normalizer = normalizers.Replace(" ", g.SPACE)
tok.decoder = decoders.Sequence([decoders.Replace(g.SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
tok.add_special_tokens([AddedToken(t[0], special=True, normalized=False) for t in tokens if t[1] in (g.CONTROL, g.UNKNOWN)])
tok.add_tokens([AddedToken(t[0], special=False, normalized=False) for t in tokens if t[1] == g.USER_DEFINED])
tok.save(os.path.join(a.out, "tokenizer.json"))
template = {"chat": g.CHAT_TEMPLATE, "think": g.THINK_TEMPLATE}.get(a.kind)
conf = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>",
        "unk_token": "<unk>", "pad_token": "</s>", "model_max_length": a.context,
        "clean_up_tokenization_spaces": False, "add_bos_token": False}
if template:
    conf["chat_template"] = template
json.dump(conf, open(os.path.join(a.out, "tokenizer_config.json"), "w"), indent=1)
