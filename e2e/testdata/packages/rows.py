"""What the programs of this folder share: PROGRAM.py BASE KEY MODEL FOLDER PROMPT…

Each program gives the prompts to one package of PyPI, as the pages of that package
say, and prints what the package returns as one line of JSON. e2e/packages_test.go
compares that line with what the inference server answers to the same prompts.
"""

import importlib.metadata
import json
import os
import sys

PACKAGE = os.path.basename(sys.argv[0]).removesuffix(".py")
sys.path.pop(0)  # this folder, where a program has the name of its package
base, key, model, folder, *prompts = sys.argv[1:]
url = base + "/v1"
MAX_TOKENS = 8
OVER = {"completed", "failed", "expired", "cancelled"}

# Packages without an argument for the address read these, as OpenAI's client does.
os.environ.update(OPENAI_BASE_URL=url, OPENAI_API_KEY=key)
os.chdir(folder)  # some packages write files where they run


def messages(prompt):
    return [{"role": "user", "content": prompt}]


def request(row, prompt):
    """A line of the file of a batch."""
    body = {"model": model, "messages": messages(prompt), "max_tokens": MAX_TOKENS}
    return {"custom_id": str(row), "method": "POST", "url": "/v1/chat/completions", "body": body}


def answer(row, text, usage):
    """One answer, with the usage of chat or of responses."""
    sent = usage.get("prompt_tokens", usage.get("input_tokens"))
    got = usage.get("completion_tokens", usage.get("output_tokens"))
    return {"row": row, "text": text, "input_tokens": sent, "output_tokens": got}


def completion(row, body):
    """The answer in the body of a chat completion."""
    return answer(row, body["choices"][0]["message"]["content"], body["usage"])


def outcome(output, errors):
    """The answers and the refused rows in the lines of the two files of a batch."""
    refused = [line for line in errors if line["response"]["status_code"] == 400]
    return [completion(int(line["custom_id"]), line["response"]["body"]) for line in output], [int(line["custom_id"]) for line in refused]


def report(answers, failed=(), usage=None):
    """Print the answers in the order of the package, the rows that it calls failed, and
    its sums of input and output tokens where it makes them."""
    version = importlib.metadata.version(PACKAGE)
    print("\nREPORT " + json.dumps({"version": version, "answers": answers, "failed": list(failed), "usage": usage}))
