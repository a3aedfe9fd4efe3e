"""oracle.py REQUEST RESULT: what the original tokenizers make of texts.

REQUEST is JSON: {"ranks": {encoding: rank file}, "patterns": {name: pattern},
"texts": [...], "dir": folder}. RESULT becomes JSON: {"tiktoken": {encoding: [ids of
each text]}, "special": [...the same, of o200k_harmony with its special tokens],
"trained": [{"file", "ids"}], "classes": {library: {class: [[first, last], ...]}}}.

The tokenizers library has no vocabulary with it, so some are trained here, on
the texts, with the pre-tokenizers that Llama 3, Qwen, GPT-2 and others have.
"""

import json
import os
import sys

os.environ["TIKTOKEN_CACHE_DIR"] = ""  # read the files that are named, keep nothing

import tiktoken
import tiktoken.load
import tiktoken_ext.openai_public as public
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

request = json.load(open(sys.argv[1], encoding="utf-8"))
texts = request["texts"]


def load_ranks(url, expected_hash=None):
    name = url.split("/")[-1].removesuffix(".tiktoken")
    return tiktoken.load.load_tiktoken_bpe(request["ranks"][name], expected_hash)


public.load_tiktoken_bpe = load_ranks
result = {"tiktoken": {}, "trained": [], "classes": {"tiktoken": {}, "tokenizers": {}}}
for name in ["o200k_base", "cl100k_base", "r50k_base", "p50k_base", "o200k_harmony"]:
    definition = getattr(public, name)()
    definition.pop("explicit_n_vocab", None)
    encoding = tiktoken.Encoding(**definition)
    result["tiktoken"][name] = [encoding.encode_ordinary(t) for t in texts]
    if name == "o200k_harmony":
        result["special"] = [encoding.encode(t, allowed_special="all") for t in texts]

patterns = request["patterns"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def plain(regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


kinds = {
    "llama3": (None, [split(patterns["cl100k"]), plain()], True),
    "llama3-merges": (None, [split(patterns["cl100k"]), plain()], False),
    "qwen": (normalizers.NFC(), [split(patterns["qwen"]), plain()], False),
    "qwen-whole": (normalizers.NFC(), [split(patterns["qwen"]), plain()], True),
    "qwen-marks": (normalizers.NFC(), [split(patterns["qwen-marks"]), plain()], False),
    "o200k": (None, [split(patterns["o200k"]), plain()], True),
    "gpt2": (None, [plain(regex=True)], False),
    "prefix": (None, [plain(regex=True, prefix=True)], False),
    "digits": (None, [pre_tokenizers.Digits(individual_digits=True), plain(regex=True)], False),
    "runs": (None, [pre_tokenizers.Digits(individual_digits=False), plain(regex=True)], False),
    "several": (
        normalizers.Sequence([]),
        [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(patterns["gpt2"]), plain()],
        False,
    ),
}
for name, (normalizer, stages, ignore) in kinds.items():
    t = Tokenizer(models.BPE(ignore_merges=ignore))
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = stages[0] if len(stages) == 1 else pre_tokenizers.Sequence(stages)
    trainer = trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    t.train_from_iterator(texts, trainer)
    t.add_tokens(
        [
            AddedToken("<think>", normalized=False),
            AddedToken("<tool", normalized=False),
            AddedToken("<tool_call>", normalized=False),
            AddedToken("[left]", lstrip=True, normalized=False),
            AddedToken("[right]", rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
        ]
    )
    path = os.path.join(request["dir"], name + ".json")
    t.save(path)
    batch = t.encode_batch(texts, add_special_tokens=False)
    result["trained"].append({"file": path, "ids": [e.ids for e in batch]})

everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def spans(characters):
    found = []
    for c in map(ord, characters):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


single_bytes = {bytes([i]): i for i in range(256)}
for name in ["Lu", "Lt", "Ll", "Lm", "Lo", "M", "N", "s"]:
    pattern = r"\s" if name == "s" else rf"\p{{{name}}}"
    # tiktoken drops what a pattern does not match.
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=single_bytes, special_tokens={})
    result["classes"]["tiktoken"][name] = spans(c for c in everything if encoding.encode_ordinary(c))
    removed = pre_tokenizers.Split(Regex(pattern), "removed")
    result["classes"]["tokenizers"][name] = spans(c for c in everything if not removed.pre_tokenize_str(c))

# What NFC makes of every character behind marks of several classes.
nfc = normalizers.NFC()
marks = ["a\u05b7", "a\u0301", "\u0345", "\U00011935", "\u1100"]
result["nfc"] = [nfc.normalize_str("".join(m + c for m in marks)) for c in everything]

digits = pre_tokenizers.Digits(individual_digits=True)
result["digits"] = spans(c for c in everything if len(digits.pre_tokenize_str("a" + c)) > 1)

json.dump(result, open(sys.argv[2], "w", encoding="utf-8"))
print("tiktoken", tiktoken.__version__, "tokenizers", __import__("tokenizers").__version__)
