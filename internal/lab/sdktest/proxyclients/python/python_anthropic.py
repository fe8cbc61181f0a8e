"""Calls a model with the SDK of Anthropic, at $ANTHROPIC_BASE_URL."""
import json, os, sys
import anthropic

options = {}
if "TIMEOUT" in os.environ:
    options["timeout"] = float(os.environ["TIMEOUT"])
if "RETRIES" in os.environ:
    options["max_retries"] = int(os.environ["RETRIES"])
client = anthropic.Anthropic(**options)
QUESTION = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}


def say(**fields):
    print(json.dumps(fields), flush=True)


def call():
    try:
        raw = client.messages.with_raw_response.create(**QUESTION)
        say(status=raw.status_code, answer=raw.parse().to_dict(), timing=raw.headers.get("Server-Timing"))
    except anthropic.APIStatusError as e:
        say(error=type(e).__name__, message=str(e), status=e.status_code, answer=e.body,
            retryAfter=e.response.headers.get("Retry-After"), via=e.response.headers.get("Via"))
    except anthropic.APIError as e:
        say(error=type(e).__name__, message=str(e))


def stream():
    for event in client.messages.create(**QUESTION, stream=True):
        if event.type == "content_block_delta":
            yield event.delta.text


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
    say(timeout=client.timeout.read, retries=client.max_retries)
