"""Calls a model with requests, at $BASE_URL."""
import json, os, sys
import requests

BASE_URL = os.environ["BASE_URL"]
TIMEOUT = float(os.environ["TIMEOUT"]) if "TIMEOUT" in os.environ else None
HEADERS = {"Prefer": os.environ["PREFER"]} if "PREFER" in os.environ else {}

session = requests.Session()
if int(os.environ.get("RETRIES", 0)) > 0:  # what a program sets that wants repeats
    from requests.adapters import HTTPAdapter, Retry
    session.mount("http://", HTTPAdapter(max_retries=Retry(
        int(os.environ["RETRIES"]), status_forcelist=[429, 503], allowed_methods=None, raise_on_status=False)))


def say(**fields):
    print(json.dumps(fields), flush=True)


def call():
    try:
        answer = session.post(BASE_URL + "/chat/completions", json={"model": "m"}, headers=HEADERS, timeout=TIMEOUT)
        answer.raise_for_status()
        say(status=answer.status_code, answer=answer.json(), timing=answer.headers.get("Server-Timing"))
    except requests.HTTPError as e:
        say(error=type(e).__name__, message=str(e), status=e.response.status_code, answer=e.response.json(),
            retryAfter=e.response.headers.get("Retry-After"), via=e.response.headers.get("Via"))
    except requests.RequestException as e:
        say(error=type(e).__name__, message=str(e))


def stream():
    with session.post(BASE_URL + "/chat/completions", json={"model": "m", "stream": True}, stream=True) as answer:
        for line in answer.iter_lines(chunk_size=1):
            if line.startswith(b"data: {"):
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
