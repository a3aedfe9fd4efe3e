// Drives a node with OpenAI's client for Node, unmodified:
// node batches_openai.mjs CLIENT BASE KEY FILE, FILE being of 200 MB.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const [, , where, base, key, large] = process.argv;
const { default: OpenAI, toFile, NotFoundError, BadRequestError, AuthenticationError } = createRequire(where + "/")("openai");
const client = new OpenAI({ baseURL: base + "/v1", apiKey: key });

const line = (id, text, more = {}) =>
  JSON.stringify({
    custom_id: id, method: "POST", url: "/v1/chat/completions",
    body: { model: "llama-3.1-8b", messages: [{ role: "user", content: text }], max_tokens: 8, ...more },
  });

async function wait(batch) {
  for (let n = 0; !["completed", "failed", "expired", "cancelled"].includes(batch.status); n++) {
    assert(n < 1200, `${batch.id} is ${batch.status}`);
    await new Promise((done) => setTimeout(done, 100));
    batch = await client.batches.retrieve(batch.id);
  }
  return batch;
}

async function refused(kind, promise, code) {
  await assert.rejects(promise, (e) => e instanceof kind && (!code || e.code === code) && Boolean(e.requestID));
}

// The file comes first in the form, from memory and as a stream without a length.
const lines = Array.from({ length: 100 }, (_, n) => line(`row ${n}`, `What is ${n}?`));
const sent = await client.files.create({ file: await toFile(Buffer.from(lines.join("\n")), "in.jsonl"), purpose: "batch" });
assert.equal(sent.filename, "in.jsonl");
const batch = await wait(await client.batches.create({ input_file_id: sent.id, endpoint: "/v1/chat/completions", completion_window: "24h" }));
assert.equal(batch.status, "completed");
const answers = (await (await client.files.content(batch.output_file_id)).text()).trimEnd().split("\n").map(JSON.parse);
assert.deepEqual(answers.map((a) => a.custom_id), Array.from({ length: 100 }, (_, n) => `row ${n}`));

const stream = await client.files.create({ file: fs.createReadStream(large), purpose: "batch" });
assert.equal(stream.bytes, fs.statSync(large).size);
assert((await client.files.delete(stream.id)).deleted);

const ids = [];
for await (const b of client.batches.list({ limit: 1 })) ids.push(b.id);
assert.deepEqual(ids, [batch.id]);
const files = [];
for await (const f of client.files.list({ limit: 1 })) files.push(f.purpose);
assert.deepEqual(files.sort(), ["batch", "batch_output"]);

await refused(NotFoundError, client.files.retrieve("file-" + "0".repeat(32)));
await refused(BadRequestError, client.files.create({ file: await toFile(Buffer.from("x")), purpose: "vision" }));
await refused(AuthenticationError, new OpenAI({ baseURL: base + "/v1", apiKey: "wrong" }).batches.list());
console.log("all right");
