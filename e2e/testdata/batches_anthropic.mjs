// Drives a node with Anthropic's client for Node, unmodified:
// node batches_anthropic.mjs CLIENT BASE KEY.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [, , where, base, key] = process.argv;
const { default: Anthropic, BadRequestError, NotFoundError, AuthenticationError } = createRequire(where + "/")("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: base, apiKey: key });
const batches = client.messages.batches;

const ask = (id, more = {}) => ({
  custom_id: id,
  params: { model: "llama-3.1-8b", max_tokens: 8, messages: [{ role: "user", content: "a\u2028b" }], ...more },
});

async function wait(batch) {
  for (let n = 0; batch.processing_status !== "ended"; n++) {
    assert(n < 1200, `${batch.id} is ${batch.processing_status}`);
    await new Promise((done) => setTimeout(done, 100));
    batch = await batches.retrieve(batch.id);
  }
  return batch;
}

async function read(batch) {
  const lines = [];
  for await (const line of await batches.results(batch.id)) lines.push(line);
  return lines;
}

async function refused(kind, promise, text = "") {
  await assert.rejects(promise, (e) => e instanceof kind && e.message.includes(text) && Boolean(e.requestID));
}

const tool = { name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } } } };
const made = await batches.create({
  requests: [...Array.from({ length: 200 }, (_, n) => ask(`row ${n}`)), ask("tool", { tools: [tool], tool_choice: { type: "tool", name: "weather" }, max_tokens: 200 }), ask("bad", { max_tokens: "many" })],
});
assert.deepEqual({ ...made.request_counts }, { processing: 202, succeeded: 0, errored: 0, canceled: 0, expired: 0 });
const batch = await wait(made);
assert.deepEqual({ ...batch.request_counts }, { processing: 0, succeeded: 201, errored: 1, canceled: 0, expired: 0 });
const lines = await read(batch);
assert.deepEqual(lines.map((l) => l.custom_id), [...Array.from({ length: 200 }, (_, n) => `row ${n}`), "tool", "bad"]);
assert.equal(lines[0].result.message.stop_reason, "max_tokens");
assert.equal(lines[200].result.message.content.at(-1).type, "tool_use");
assert.equal(lines[201].result.error.error.type, "invalid_request_error");

const ids = [];
for (let n = 0; n < 12; n++) ids.unshift((await batches.create({ requests: [ask("a")] })).id);
const seen = [];
for await (const b of batches.list({ limit: 5 })) seen.push(b.id);
assert.deepEqual(seen, [...ids, batch.id]);
const back = [];
for await (const b of batches.list({ limit: 5, before_id: batch.id })) back.push(b.id);
assert.deepEqual(new Set(back), new Set(ids));

await wait(await batches.cancel((await batches.create({ requests: Array.from({ length: 5000 }, (_, n) => ask(`${n}`, { max_tokens: 500 })) })).id));
assert.equal((await batches.delete(batch.id)).type, "message_batch_deleted");
await refused(NotFoundError, batches.retrieve(batch.id));
await refused(BadRequestError, batches.create({ requests: [ask("a".repeat(65))] }), "String should have at most 64 characters");
await refused(AuthenticationError, new Anthropic({ baseURL: base, apiKey: "nobody's" }).messages.batches.retrieve(ids[0]));
const token = new Anthropic({ baseURL: base, authToken: key, apiKey: null });
assert.equal((await wait(await token.beta.messages.batches.create({ requests: [ask("beta")] }))).request_counts.succeeded, 1);
