import asyncio

from rows import MAX_TOKENS, answer, key, model, prompts, report, url

from inspect_ai.model import BatchConfig, GenerateConfig, get_model


async def main():
    batch = BatchConfig(size=len(prompts), send_delay=0.5, tick=0.2)
    config = GenerateConfig(max_tokens=MAX_TOKENS, batch=batch, max_retries=0, max_connections=len(prompts))
    client = get_model("openai/" + model, base_url=url, api_key=key, config=config, responses_api=False)
    got = await asyncio.gather(*(client.generate(prompt) for prompt in prompts), return_exceptions=True)
    report(
        [answer(row, one.completion, one.usage.model_dump()) for row, one in enumerate(got) if not isinstance(one, Exception)],
        [row for row, one in enumerate(got) if isinstance(one, Exception)],
    )


asyncio.run(main())
