import asyncio

from rows import MAX_TOKENS, completion, key, messages, model, prompts, report, url

from autobatcher import BatchOpenAI


async def main():
    client = BatchOpenAI(
        api_key=key, base_url=url, completion_window="24h", batch_window_seconds=0.2, poll_interval_seconds=0.2, batch_size=1000
    )
    got = await asyncio.gather(
        *(client.chat.completions.create(model=model, messages=messages(prompt), max_tokens=MAX_TOKENS) for prompt in prompts),
        return_exceptions=True,
    )
    await client.close()
    report(
        [completion(row, one.model_dump()) for row, one in enumerate(got) if not isinstance(one, Exception)],
        [row for row, one in enumerate(got) if isinstance(one, Exception)],
    )


asyncio.run(main())
