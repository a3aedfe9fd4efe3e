"""What schemathesis has to know of the service beyond its OpenAPI document.

Run by TestAPIByItsDocument. ROWMILL_FUZZ_JOBS, ROWMILL_FUZZ_FUNCTIONS: what
there is; ROWMILL_FUZZ_NODE: the node, which must not be told to end.
"""

import os
import re
import zlib

import schemathesis

JOBS = os.environ["ROWMILL_FUZZ_JOBS"].split(",")
FUNCTIONS = os.environ["ROWMILL_FUZZ_FUNCTIONS"].split(",")
NODE = os.environ["ROWMILL_FUZZ_NODE"]
MODELS = ["gpt-oss-20b", "llama-3.1-8b", "qwen-3-30b-a3b-thinking", "qwen-3-embedding-0.6b"]

# Rules that no schema can say: the fields of a request that the document finds
# good and the service may refuse all the same, by the beginnings of their names.
BEYOND = {
    # each id once, one model that there is in all requests
    "createMessageBatch": ("model", "requests"),
    "listMessageBatches": ("before_id",),  # not beside after_id
    "completeUpload": ("part_ids", "md5"),  # of the upload, each once, with as many bytes as it has
    "createBatch": ("input_file_id", "model"),  # a file for batches, with a model that there is
    # names what is not there, is a URL, or goes only with a URL; dedup is not beside random_seed_per_input
    "submitBatch": ("inputs", "model", "column_name", "id_column_name", "output_name", "prompt", "function", "input_format", "json_schema", "sampling_params", "system_prompt", "dedup", "repair", "sample", "cost_estimate", "keep_columns", "messages", "where", "reuse", "output", "deadline", "admit"),
    "submitSet": ("inputs", "variants", "model", "column_name", "id_column_name", "output_name", "prompt", "function", "input_format", "json_schema", "sampling_params", "system_prompt", "dedup", "repair", "sample", "cost_estimate", "keep_columns", "messages", "where", "reuse", "output", "deadline", "admit"),
    "publishFunction": ("name", "model", "inputs", "prompt", "system_prompt", "json_schema", "sampling_params", "account"),
    "runFunction": ("input", "inputs", "definition", "revision"),  # not both of these, and a definition that could be published
    "createKey": ("expires_at", "account"),  # in the future; the same in body and query
    "createWebhook": ("url", "account"),  # a host, without a password or a fragment
    "patchWebhook": ("url", "account"),
    "listDeliveries": ("cursor",),
    "getStats": ("node",),  # that there is
    "patchSettings": ("account",),
    "putQuotas": ("quotas", "account"),  # each priority once
    "rollbackFunction": ("account",),
    "resumeJob": ("rows",),
    "listenEvents": ("topics",),
    "getResults": ("result_format", "columns", "unpack"),  # the same as format; of a job that keeps columns, or has a schema with properties
    "getResultsURL": ("columns", "unpack"),
    "getUsage": ("from", "to"),  # which is before which, and how far
    "listJobs": ("cursor", "since"),  # a time that there is
    "cancelJobs": ("job_ids", "filter"),  # one of the two
    "listKeys": ("cursor",),
    "listAudit": ("cursor",),
    "listErrors": ("cursor",),
}

# Paths that a path with a parameter has too, which takes other methods.
SHADED = ("/console/session", "/v1/jobs/cancel", "/v1/jobs/compare", "/v1/jobs/counts")

# What is no more what it was, which is no matter of the request's form.
ENDED = ("upload_completed", "upload_cancelled", "upload_expired", "too_many_parts")


def one_of(pool, text):
    """One of the pool, or the text itself, as the text decides."""
    n = zlib.crc32(str(text).encode("utf-8", "surrogatepass")) % (len(pool) + 1)
    return text if n == len(pool) else pool[n]


def operation(of):
    return of.operation.definition.raw.get("operationId")


@schemathesis.auth().skip_for(path_regex="^/objects/")  # a signed URL is its own credential
class Key:
    def get(self, case, context):
        return os.environ["ROWMILL_FUZZ_KEY"]

    def set(self, case, data, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = "Key " + data


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    given = path_parameters or {}
    if "job_id" in given:
        given["job_id"] = one_of(JOBS, given["job_id"])
    if re.fullmatch("[A-Za-z0-9._-]{1,64}", str(given.get("function", ""))):
        given["function"] = one_of(FUNCTIONS, given["function"])
    return path_parameters


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        if isinstance(body.get("model"), str):
            body["model"] = one_of(MODELS, body["model"])
        if isinstance(body.get("job_id"), str):
            body["job_id"] = one_of(JOBS, body["job_id"])
    return body


@schemathesis.hook
def map_headers(context, headers):
    """What is no HTTP never gets to the service: who sends it is cut off, at times
    before there is an answer to read. White space at the beginning of a value the
    client refuses itself."""
    return {name: re.sub(r"[\x00-\x1f\x7f]", "", str(value)).lstrip() for name, value in (headers or {}).items()}


@schemathesis.hook
def before_call(context, case, kwargs):
    """What is needed on is not taken away, and no stream begun that has no end."""
    if operation(case) == "drainNode" and NODE in str(case.path_parameters):
        case.path_parameters = {"node": "another"}
    if operation(case) == "deleteData" and case.path_parameters.get("job_id") in JOBS[:-1]:
        case.path_parameters = {"job_id": JOBS[-1]}
    if operation(case) == "listenEvents":
        case.query = {"topics": "no such topic"}


def beyond(case, response):
    """Whether a refusal is for a rule that the document cannot say."""
    body = response.json()
    fields = [e["field"] for e in body.get("errors", [])]
    if "request_id" in body and "error" in body:  # in the form of Anthropic's clients
        fields = [re.match(r"[\w.]+(?=: )|", body["error"]["message"]).group() or "model"]
    elif "error" in body:  # in the form of OpenAI's clients
        if body["error"]["code"] in ENDED:
            return True
        fields = [body["error"]["param"] or ""]
    may = BEYOND.get(operation(case), ())
    return bool(fields) and all(f.startswith(may) for f in fields)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    # The document never forbids members and parameters that it does not know.
    if type(failure).__name__ == "AcceptedNegativeData":
        said = str(failure.message)
        return set(re.findall(r"violates `(\w+)`", said)) != {"additionalProperties"} and "object with unexpected properties" not in said
    if type(failure).__name__ == "AllowHeaderMismatch":
        return case.path not in SHADED
    if type(failure).__name__ != "RejectedPositiveData":
        return True
    if response.status_code in (400, 422) and case.method != "HEAD":
        return not beyond(case, response)
    # What has expired, or has changed meanwhile, is no matter of the request's form.
    return response.status_code not in (410, 412)
