"""OpenAI's client for asyncio, under a semaphore."""

import asyncio

import openai

import common


async def run(args):
    ids, texts = common.read(args)
    free = asyncio.Semaphore(args.in_flight)
    async with openai.AsyncOpenAI(base_url=f"http://{args.address}/v1", api_key="none") as client:

        async def ask(text):
            async with free:
                reply = await client.chat.completions.create(model=args.model, messages=common.messages(text), max_tokens=256)
            return reply.choices[0].message.content

        common.write(args, ids, await asyncio.gather(*map(ask, texts)))


asyncio.run(run(common.arguments(__doc__)))
