"""Calls a model with the SDK of OpenAI, at $OPENAI_BASE_URL."""
import json, os, sys
import openai

options = {}
if "TIMEOUT" in os.environ:
    options["timeout"] = float(os.environ["TIMEOUT"])
if "RETRIES" in os.environ:
    options["max_retries"] = int(os.environ["RETRIES"])
client = openai.OpenAI(**options)
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def say(**fields):
    print(json.dumps(fields), flush=True)


def call():
    try:
        raw = client.chat.completions.with_raw_response.create(**QUESTION)
        say(status=raw.status_code, answer=raw.parse().to_dict(), timing=raw.headers.get("Server-Timing"))
    except openai.APIStatusError as e:
        say(error=type(e).__name__, message=str(e), status=e.status_code, answer=e.body,
            retryAfter=e.response.headers.get("Retry-After"), via=e.response.headers.get("Via"))
    except openai.APIError as e:
        say(error=type(e).__name__, message=str(e))


def stream():
    for chunk in client.chat.completions.create(**QUESTION, stream=True):
        yield chunk.choices[0].delta.content


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
