from rows import MAX_TOKENS, key, messages, model, outcome, prompts, report, url

import openai
from openai_batch_helper import BatchHelper

helper = BatchHelper(openai.OpenAI(base_url=url, api_key=key), workdir=".")
job = helper.init_job()
for row, prompt in enumerate(prompts):
    job.add_task(str(row), body={"model": model, "messages": messages(prompt), "max_tokens": MAX_TOKENS})
job.submit_file().submit_batch_job().wait_for_completion(poll_seconds=0.2)
job = helper.resume_job(job.batch_id)  # as a program does that was started again
job.download_result("results.jsonl")
job.download_errors("errors.jsonl")
report(*outcome(job.iter_results("results.jsonl"), job.iter_results("errors.jsonl")))
