"""Calls a model with httpx, at $BASE_URL."""
import json, os, sys
import httpx

options = {"base_url": os.environ["BASE_URL"]}
if "TIMEOUT" in os.environ:
    options["timeout"] = float(os.environ["TIMEOUT"])
if "PREFER" in os.environ:
    options["headers"] = {"Prefer": os.environ["PREFER"]}
client = httpx.Client(**options)


def say(**fields):
    print(json.dumps(fields), flush=True)


def call():
    try:
        answer = client.post("/chat/completions", json={"model": "m"})
        answer.raise_for_status()
        say(status=answer.status_code, answer=answer.json(), timing=answer.headers.get("Server-Timing"))
    except httpx.HTTPStatusError as e:
        say(error=type(e).__name__, message=str(e), status=e.response.status_code, answer=e.response.json(),
            retryAfter=e.response.headers.get("Retry-After"), via=e.response.headers.get("Via"))
    except httpx.HTTPError as e:
        say(error=type(e).__name__, message=str(e))


def stream():
    with client.stream("POST", "/chat/completions", json={"model": "m", "stream": True}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])["choices"][0]["delta"]["content"]


story = sys.argv[1]
if story == "calls":
    for _ in range(int(sys.argv[2])):
        call()
elif story == "stream":
    for text in stream():
        say(event=text)
elif story == "stop":  # in the middle of a stream
    for text in stream():
        say(event=text)
        break
elif story == "defaults":
    say(timeout=client.timeout.read, retries=0)
