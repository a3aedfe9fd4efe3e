import json
import time

from rows import OVER, answer, messages, model, prompts, report

import openai
import pydantic
from instructor.batch import BatchProcessor


class Card(pydantic.BaseModel):
    word: str
    count: int


processor = BatchProcessor("openai/" + model, Card)
batch = processor.submit_batch(processor.create_batch_from_messages([messages(prompt) for prompt in prompts], max_tokens=200))
while processor.get_batch_status(batch)["status"] not in OVER:
    time.sleep(0.2)
results = processor.get_results(batch)
assert all(isinstance(one.result, Card) for one in results), results

# The package keeps no usage: it is read of the file that the package has read.
client = openai.OpenAI()
bodies = [json.loads(line)["response"]["body"] for line in client.files.content(client.batches.retrieve(batch).output_file_id).iter_lines()]
assert [one.result for one in results] == [Card.model_validate_json(body["choices"][0]["message"]["content"]) for body in bodies]
report([
    answer(int(one.custom_id.removeprefix("request-")), one.result.model_dump_json(), body["usage"])
    for one, body in zip(results, bodies, strict=True)
])
