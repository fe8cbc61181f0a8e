"""Pulls the orders of some parts through throttle proxy. Files are those of main.go: either program goes on with a part of the other."""
import json, os, sys, time, urllib.error, urllib.parse, urllib.request

API = os.environ["API_HOST"]
PROXY = os.environ.get("PROXY", "http://127.0.0.1:7070")
MAX_WAIT = 600  # seconds, as in throttle proxy --max-wait 10m
token, expires = "", 0


def fresh_token():  # a token must outlast the longest wait in line
    global token, expires
    if expires - time.time() < 2:
        with urllib.request.urlopen("https://%s/token" % API, timeout=30) as answer:
            answer = json.load(answer)
            token, expires = answer["token"], time.time() + answer["lasts"]
    return token


def get(path):
    global expires
    while True:
        request = urllib.request.Request("%s/%s%s" % (PROXY, API, path), headers={"Authorization": "Bearer " + fresh_token()})
        try:
            with urllib.request.urlopen(request, timeout=MAX_WAIT + 60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code == 401:  # the token expired in line
                expires = 0
            elif refused.code == 429:
                time.sleep(float(refused.headers.get("Retry-After", 10)))
            else:
                raise


def pull(part):
    name, state = "part-%02d" % part, {"cursor": "", "size": 0, "done": False}
    if os.path.exists(name + ".state"):
        state = json.load(open(name + ".state"))
    with open(name + ".jsonl", "ab") as rows:
        rows.truncate(state["size"])  # drop the rows of a page that was not noted
        while not state["done"]:
            page = get("/v1/orders?part=%d&cursor=%s" % (part, urllib.parse.quote(state["cursor"])))
            for order in page["orders"]:
                rows.write(json.dumps(order, separators=(",", ":")).encode() + b"\n")
            rows.flush()
            os.fsync(rows.fileno())
            state = {"cursor": page["next"], "size": rows.tell(), "done": page["next"] == ""}
            with open(name + ".new", "w") as new:
                json.dump(state, new)
                new.flush()
                os.fsync(new.fileno())  # or a power failure could leave an empty state
            os.replace(name + ".new", name + ".state")


for part in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
    pull(part)
