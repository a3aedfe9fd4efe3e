"""Ray Data's processor for an HTTP server. Each worker sends the rows of a batch one
after another; the workers are processes, one for each core of this machine."""

import os

os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.data.llm import HttpRequestProcessorConfig, build_processor

import common

args = common.arguments(__doc__)
ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
ray.data.DataContext.get_current().execution_options.preserve_order = True
config = HttpRequestProcessorConfig(
    url=f"http://{args.address}/v1/chat/completions",
    batch_size=args.in_flight,
    concurrency=os.cpu_count(),
    qps=None,
)
processor = build_processor(
    config,
    preprocess=lambda row: dict(
        payload={"model": args.model, "messages": common.messages(row["text"]), "max_tokens": 256}, id=row["id"]
    ),
    postprocess=lambda row: dict(id=row["id"], output=row["http_response"]["choices"][0]["message"]["content"]),
)
rows = processor(ray.data.read_parquet(args.input, columns=["id", "text"]).limit(args.rows)).take_all()
ray.shutdown()
common.write(args, [row["id"] for row in rows], [row["output"] for row in rows])
