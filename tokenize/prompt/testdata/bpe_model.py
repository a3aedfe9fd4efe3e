#!/usr/bin/env python3
"""Write a tiny language model with a byte-level BPE vocabulary, twice.

usage: bpe_model.py DIR

DIR/model.gguf is for llama-server, with Qwen's way of splitting text;
DIR/tokenizer.json is the same vocabulary in the form of Hugging Face. The
merges are learned from a few sentences with much white space, so that line
breaks and blanks merge with each other. The weights are random: only the
counting of tokens means anything. Needs the Python standard library and
internal/llama/tiny_gguf.py, which the caller puts on PYTHONPATH.
"""

import json
import os
import re
import sys

import tiny_gguf as gguf

TEXT = """
user system assistant model developer Instructions Reasoning Today Date Cutting Knowledge
The prompt as the server sees it is more than the text of a row. Role markers stand around it.


  A system prompt comes first.   Then the text, and then the answer begins.

\tIndented lines\n \n  \n\n\n and line breaks of all kinds\r\n\r\n, some with blanks before them.
""" * 3

SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>
<|start|> <|message|> <|end|> <bos> <start_of_turn> <end_of_turn>""".split()
ADDED = ["<think>", "</think>"]  # tokens of their own, yet no special ones

# Qwen's pattern as tokenizer.json has it, and as Python's re understands it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT = re.compile(r"[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def alphabet():
    """GPT-2's table: the printable character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, spare = {}, 256
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte], spare = chr(spare), spare + 1
    return table


def learn(count):
    """The first merges of byte pair encoding over TEXT, as pairs."""
    table = alphabet()
    pieces = [[table[b] for b in piece.encode()] for piece in SPLIT.findall(TEXT)]
    merges = []
    while len(merges) < count:
        pairs = {}
        for piece in pieces:
            for pair in zip(piece, piece[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for n, piece in enumerate(pieces):
            at = 0
            while at + 1 < len(piece):
                if (piece[at], piece[at + 1]) == best:
                    piece[at : at + 2] = ["".join(best)]
                at += 1
            pieces[n] = piece
    return merges


def main():
    folder = sys.argv[1]
    merges = learn(300)
    tokens = dict.fromkeys([*alphabet().values(), *("".join(pair) for pair in merges)])
    names = [*tokens, *SPECIAL, *ADDED]
    kinds = [gguf.NORMAL] * len(tokens) + [gguf.CONTROL] * len(SPECIAL) + [gguf.USER_DEFINED] * len(ADDED)

    weights = gguf.tensors([(name, kind, 0.0, 0.0, 0.0) for name, kind in zip(names, kinds)])
    vocabulary = [
        ("tokenizer.ggml.model", gguf.scalar(gguf.STRING, "gpt2")),
        ("tokenizer.ggml.pre", gguf.scalar(gguf.STRING, "qwen2")),
        ("tokenizer.ggml.tokens", gguf.array(gguf.STRING, names)),
        ("tokenizer.ggml.token_type", gguf.array(gguf.I32, kinds)),
        ("tokenizer.ggml.merges", gguf.array(gguf.STRING, [" ".join(pair) for pair in merges])),
        ("tokenizer.ggml.eos_token_id", gguf.scalar(gguf.U32, names.index("<|im_end|>"))),
        ("tokenizer.ggml.add_bos_token", gguf.scalar(gguf.U8_BOOL, 0)),
    ]
    shape = [(k, v) for k, v in gguf.metadata("chat", weightless(names), 4096, "tiny-bpe") if not k.startswith("tokenizer.")]
    gguf.metadata = lambda *_: shape + vocabulary
    gguf.tensors = lambda _: weights
    with open(os.path.join(folder, "model.gguf"), "wb") as file:
        file.write(gguf.build("chat", 4096, "tiny-bpe"))

    added = [
        {"id": names.index(name), "content": name, "special": name in SPECIAL, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for name in [*SPECIAL, *ADDED]
    ]  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(
            {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
                "post_processor": None, "decoder": level,
                "model": {
                    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                    "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                    "vocab": {name: n for n, name in enumerate(tokens)}, "merges": [" ".join(pair) for pair in merges],
                },
            },
            file,
        )  # fmt: skip


def weightless(names):
    """Tokens as metadata wants them."""
    return [(name, gguf.NORMAL, 0.0) for name in names]


if __name__ == "__main__":
    main()
