"""The script that most people write: aiohttp and a semaphore."""

import asyncio

import aiohttp

import common


async def run(args):
    ids, texts = common.read(args)
    free = asyncio.Semaphore(args.in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=args.in_flight)) as session:

        async def ask(text):
            body = {"model": args.model, "messages": common.messages(text), "max_tokens": 256}
            async with free, session.post(f"http://{args.address}/v1/chat/completions", json=body) as reply:
                reply.raise_for_status()
                return (await reply.json())["choices"][0]["message"]["content"]

        common.write(args, ids, await asyncio.gather(*map(ask, texts)))


asyncio.run(run(common.arguments(__doc__)))
