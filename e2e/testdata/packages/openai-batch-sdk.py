import json
import time

from rows import OVER, outcome, prompts, report, request

from deps.oai.batch_api import batch_api

with open("requests.jsonl", "w") as f:
    for row, prompt in enumerate(prompts):
        print(json.dumps(request(row, prompt)), file=f)
batch = batch_api.submit_batch_job("requests.jsonl", "rows")
while (seen := batch_api.check_batch_status(batch)).status not in OVER:
    time.sleep(0.2)


def lines(file):
    return [json.loads(line) for line in batch_api.retrieve_batch_result(file).text.splitlines()]


report(*outcome(lines(seen.output_file_id), lines(seen.error_file_id)))
