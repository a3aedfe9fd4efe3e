"""Drives the Python SDK of this API family through all its calls.

sdk.py URL KEY INPUT: the address of a node, a key of the dialect sdk, and the
URL of a CSV with the columns id and text, three rows. Functions "grade" (field
"text", no schema) and "judge" (field "text", a schema with "points") must be
published. Whatever a call does not do ends the program with an error.
"""

import os, pathlib, sys, tempfile

url, key, csv = sys.argv[1:4]
home = pathlib.Path(tempfile.mkdtemp())
os.environ.update(HOME=str(home), SUTRO_API_KEY=key, SUTRO_API_URL=url, POLARS_TABLE_WIDTH="9999")
os.chdir(home)

import pandas, polars, requests
import sutro.sdk
from click.testing import CliRunner
from sutro import Sutro

import time

pause = time.sleep
time.sleep = lambda seconds: pause(min(seconds, 0.2))  # the client looks every 5 seconds

recent = hasattr(Sutro, "download_job_results")
client = Sutro(api_key=key, api_url=url) if recent else Sutro(api_key=key, base_url=url + "/v1")
texts = ["A mill grinds.", "A row waits.", "A job ends."]
schema = {
    "type": "object",
    "properties": {"points": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["points"],
}
called = set()


def call(method, *args, **kwargs):
    called.add(method)
    return getattr(client, method)(*args, **kwargs)


def check(what, holds, seen=None):
    if not holds:
        sys.exit(f"{what}: {seen!r}")


# Keys and quotas.
check("a key", call("try_authentication", key) == {"authenticated": True})
check("a wrong key", call("try_authentication", "rk_wrong") is None)
quotas = call("get_quotas")
check("quotas", [q["row_quota"] for q in quotas] == [1000, 1_000_000], quotas)

# A job that is attached to, in every form that rows come in.
pathlib.Path("texts.txt").write_text("\n".join(texts))
polars.DataFrame({"text": texts}).write_csv("texts.csv")
polars.DataFrame({"text": texts}).write_parquet("texts.parquet")
frame = polars.DataFrame({"text": texts})
for data, column in [
    (texts, None), (frame, "text"), (pandas.DataFrame({"text": texts}), "text"),
    ("texts.txt", None), ("texts.csv", "text"), ("texts.parquet", "text"), (frame, ["text", " and ", "text"]),
]:
    job = call("infer", data, model="llama-3.1-8b", column=column, name="attached", stay_attached=True)
    check("an attached job", job and client.get_job_status(job) == "SUCCEEDED", job)

# One that is left alone and awaited, with its inputs by URL.
job = call("infer", csv, model="llama-3.1-8b", column="text", job_priority=1, sampling_params={"max_tokens": 20}, **({"id_column": "id"} if recent else {}))
results = call("await_job_completion", job)
check("awaited results", results is not None and results.height == 3, results)
results = call("get_job_results", job, include_inputs=True, include_cumulative_logprobs=True, disable_cache=True)
check("inputs", results["inputs"].to_list() == texts, results)
check("scores", "cumulative_logprobs" in results.columns, results.columns)
check("status", call("get_job_status", job) == "SUCCEEDED")
again = call("get_job_results", job, with_original_df=frame)
check("results beside the originals", again.height == 3 and "text" in again.columns, again)
if recent:
    check("ids", results["id"].to_list() == ["007", "008", "009"], results)
    urls = call("results_download_url", job)
    check("signed URLs", urls and urls["urls"]["get"].startswith("http"), urls)
    path = call("download_job_results", job, "results.parquet", include_inputs=True)
    check("a download", polars.read_parquet(path).height == 3)

# Structured answers, of a model that reasons too.
job = call("infer", texts, model="llama-3.1-8b", output_schema=schema)
points = client.await_job_completion(job)
check("columns of an answer", points.columns == ["points"] and points["points"].dtype.is_integer(), points)
job = call("infer", texts, model="qwen-3-14b-thinking", output_schema=schema)
thought = client.await_job_completion(job, **({"unwrap_reasoning": True} if recent else {}))
check("columns of a reasoning answer", {"points", "reasoning_content"} <= set(thought.columns), thought.columns)

# What it would cost, and several models.
check("an estimate", call("infer", texts, model="llama-3.1-8b", dry_run=True))
jobs = call("infer_per_model", texts, models=["llama-3.1-8b", "gpt-oss-20b"], names=["one", "other"])
check("a job for each model", len(jobs) == 2 and all(client.await_job_completion(j).height == 3 for j in jobs), jobs)

# Templates.
check("embeddings", len(call("embed", texts)["inference_result"][0]) == 1024)
# Without the scratchpad it looks for a column that it has unpacked itself.
check("classes", call("classify", texts, classes=["good", "bad"], include_scratchpad=True).height == 3)
check("scores", call("score", texts, criteria="brevity").height == 3)
try:
    call("rank", data=[texts, texts], option_labels=["a", "b", "c"], criteria="brevity", run_elo=False)
except ValueError as refused:  # both versions refuse the name that they give the column themselves
    check("rankings", "conflict" in str(refused), refused)
ratings = call("elo", [["a", "b", "c"], ["b", "a", "c"]])
check("ratings", len(ratings) == 3, ratings)

# Attaching right away, the end of a job, and lists.
many = ["x" * 50] * 900
job = call("infer", many, model="llama-3.1-8b", stay_attached=False)
check("the number of rows, at once", client._fetch_job(job)["num_rows"] == 900)
call("attach", job)
job = call("infer", csv + "/endless", model="llama-3.1-8b", column="text", job_priority=1)
check("a cancel", call("cancel_job", job)["cancelled"] is True)
check("cancelled", client.get_job_status(job) == "CANCELLED")
call("attach", job)
failing = call("infer", csv, model="llama-3.1-8b", column="nothing", job_priority=1)
check("a failed job", client.await_job_completion(failing) is None and client.get_job_status(failing) == "FAILED")
jobs = call("list_jobs")
check("a list", {j["status"] for j in jobs} >= {"SUCCEEDED", "FAILED", "CANCELLED"}, jobs)

# Functions.
if recent:
    run = call("run_function", "judge", {"text": "A mill grinds."}, confidence_scoring=False)
    check("a Function's answer", isinstance(run.output["points"], int) and run.request_id and run.usage["input_tokens"] > 0, run)
    run = call("run_function", "grade", "A prompt.")
    check("a Function's text", isinstance(run.output, str), run)
    try:
        client.run_function("judge", {})
    except sutro.sdk.SutroValidationError as refused:
        check("a missing field", "text" in refused.detail, refused)
    else:
        sys.exit("a missing field was not refused")
job = call("batch_run_function", "judge", frame)
check("a Function's rows", client.await_job_completion(job)["points"].len() == 3)

# The command line.
from sutro.cli import cli

with requests.Session() as session:  # the table of a list is made by its first hundred
    for n in range(101):
        made = session.post(url + "/v1/batch-inference", json={"inputs": ["x"], "model": "llama-3.1-8b"}, headers={"Authorization": "Key " + key})
check("many jobs", client.await_job_completion(made.json()["results"]) is not None)
(home / ".sutro").mkdir(exist_ok=True)
for args, says in [
    (["set-api-url" if recent else "set-base-url", url if recent else url + "/v1"], "set to"),
    (["login"], "authenticated"),
    (["quotas"], "1000000"), (["jobs", "list"], "SUCCEEDED"), (["jobs", "list", "--all"], "FAILED"), (["jobs", "status", job], "SUCCEEDED"),
    (["jobs", "results", job], "points"), (["jobs", "results", job, "--save", "--save-format", "csv"], "saved"),
    (["jobs", "attach", "--latest"], ""), (["cache", "show"], "Size"), (["cache", "clear"], "cleared"),
] + ([(["functions", "run", "judge", "--input", '{"text": "E"}', "--no-confidence-scoring"], "points")] if recent else []):
    done = CliRunner().invoke(cli, args, input="\n" * recent + key + "\n")
    check("sutro " + " ".join(args), done.exit_code == 0 and says in done.output, (done.output[-2000:], done.exception))

print("called:", *sorted(called))
