"""Calls a model with aiohttp, at $BASE_URL."""
import asyncio, json, os, sys
import aiohttp

BASE_URL = os.environ["BASE_URL"]  # of the call and not of the session, which takes no path
options = {"trust_env": True}
if "TIMEOUT" in os.environ:
    options["timeout"] = aiohttp.ClientTimeout(total=float(os.environ["TIMEOUT"]))
if "PREFER" in os.environ:
    options["headers"] = {"Prefer": os.environ["PREFER"]}


def say(**fields):
    print(json.dumps(fields), flush=True)


async def call(session):
    try:
        async with session.post(BASE_URL + "/chat/completions", json={"model": "m"}) as answer:
            body = await answer.json(content_type=None)  # before raise_for_status, which closes the answer
            try:
                answer.raise_for_status()
                say(status=answer.status, answer=body, timing=answer.headers.get("Server-Timing"))
            except aiohttp.ClientResponseError as e:
                say(error=type(e).__name__, message=str(e), status=e.status, answer=body,
                    retryAfter=e.headers.get("Retry-After"), via=e.headers.get("Via"))
    except (aiohttp.ClientError, asyncio.TimeoutError) as e:
        say(error=type(e).__name__, message=str(e))


async def stream(session, most):
    async with session.post(BASE_URL + "/chat/completions", json={"model": "m", "stream": True}) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                say(event=json.loads(line[6:])["choices"][0]["delta"]["content"])
                most -= 1
                if most == 0:  # in the middle of a stream
                    return


async def main(story):
    async with aiohttp.ClientSession(**options) as session:
        if story == "calls":
            for _ in range(int(sys.argv[2])):
                await call(session)
        elif story == "stream":
            await stream(session, -1)
        elif story == "stop":
            await stream(session, 1)
        elif story == "defaults":
            say(timeout=session.timeout.total, retries=0)


asyncio.run(main(sys.argv[1]))
