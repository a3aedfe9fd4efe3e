"""LiteLLM's helper for many prompts, with one thread per prompt in flight."""

import litellm

import common

args = common.arguments(__doc__)
ids, texts = common.read(args)
litellm.suppress_debug_info = True
replies = litellm.batch_completion(
    model=f"openai/{args.model}",
    messages=[common.messages(text) for text in texts],
    api_base=f"http://{args.address}/v1",
    api_key="none",
    max_tokens=256,
    max_workers=args.in_flight,
)
failed = [r for r in replies if isinstance(r, Exception)]
if failed:
    raise SystemExit(f"{len(failed)} rows failed: {failed[0]}")
common.write(args, ids, [r.choices[0].message.content for r in replies])
