from rows import MAX_TOKENS, completion, messages, model, prompts, report

from openai_batch_api import OpenaiBatchAPI

# The package knows two models by name; the node gives one of them to its server.
client = OpenaiBatchAPI(req_cooldown=0.2)
conversations = [{"id": str(row), "content": messages(prompt)} for row, prompt in enumerate(prompts)]
answers, failed = [], []
for batch in client.batchs_completion(conversations, batch_size=5, model=model, max_tokens=MAX_TOKENS):
    answers += [completion(int(line["id"]), line) for line in batch.output_file.contents]
    failed += [int(line["id"]) for line in (batch.error_file.contents if batch.error_file else [])]
report(answers, failed, [client.usage["prompt"]["tokens"], client.usage["completion"]["tokens"]])
