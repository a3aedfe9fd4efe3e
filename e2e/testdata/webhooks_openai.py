"""Has OpenAI's client for Python, unmodified, unwrap what a receiver got: webhooks_openai.py FILE.

FILE holds {"secret", "deliveries": [{"headers", "body", "type", "batch"}]}.
"""

import json
import sys

import openai
from openai import OpenAI

with open(sys.argv[1]) as file:
    got = json.load(file)
client = OpenAI(api_key="none", base_url="http://127.0.0.1:1")
for one in got["deliveries"]:
    event = client.webhooks.unwrap(one["body"], one["headers"], secret=got["secret"])
    assert event.type == one["type"], event
    assert event.data.id == one["batch"], event
    assert event.object == "event" and event.id.startswith("evt_") and event.created_at > 0, event
    for body, secret in ((one["body"] + " ", got["secret"]), (one["body"], "whsec_AAAA")):
        try:
            client.webhooks.unwrap(body, one["headers"], secret=secret)
        except openai.InvalidWebhookSignatureError:
            continue
        raise AssertionError("what was not sent was taken")
