// Has OpenAI's client for Node, unmodified, unwrap what a receiver got:
// node webhooks_openai.mjs CLIENT FILE, FILE as for webhooks_openai.py.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const [, , where, file] = process.argv;
const { default: OpenAI } = createRequire(where + "/")("openai");
const client = new OpenAI({ apiKey: "none", baseURL: "http://127.0.0.1:1" });
const { secret, deliveries } = JSON.parse(fs.readFileSync(file, "utf8"));
for (const { headers, body, type, batch } of deliveries) {
  const event = await client.webhooks.unwrap(body, new Headers(headers), secret);
  assert.equal(event.type, type);
  assert.equal(event.data.id, batch);
  await assert.rejects(client.webhooks.unwrap(body + " ", new Headers(headers), secret));
}
