"""tiktoken_rows.py ROWS RANKS: the original tiktoken as a contender.

ROWS is a JSON object of lists of texts by corpus, RANKS the rank file of
o200k_base. For each line on standard input, the name of a corpus, it encodes the
rows of that corpus one after another in one thread, and prints the processor time
in seconds and the number of tokens.
"""

import json
import sys
import time

import tiktoken
import tiktoken.load
import tiktoken_ext.openai_public as public

rows = json.load(open(sys.argv[1], encoding="utf-8"))
public.load_tiktoken_bpe = lambda url, expected_hash=None: tiktoken.load.load_tiktoken_bpe(sys.argv[2], expected_hash)
encoding = tiktoken.Encoding(**public.o200k_base())
print(tiktoken.__version__, flush=True)
for line in sys.stdin:
    texts = rows[line.strip()]
    tokens = 0
    begun = time.process_time()
    for text in texts:
        tokens += len(encoding.encode_ordinary(text))
    print(time.process_time() - begun, tokens, flush=True)
