"""Permits of throttle's waiting API, for Python 3.8 and later. Nothing has to be installed.

    with acquire({"policy": "shop", "key": "acme"}, wait=60) as permit:
        response = requests.get("https://acme.example.com/orders")
        if response.status_code == 429: permit.penalize(30)
"""
import http.client, json, os, time, urllib.error, urllib.request, uuid, warnings

URL = os.environ.get("THROTTLE_URL", "http://127.0.0.1:7070")
NO_ANSWER = (OSError, http.client.HTTPException)


class Refused(Exception):
    def __init__(self, problem): # says why the work may not start
        super().__init__(problem["detail"])
        self.problem = problem


class Later(Exception):
    def __init__(self, answer): # says when to come again, and with which place; see docs/use/jobs.md
        super().__init__("come again in %.1f s" % answer["retryAfter"])
        self.place, self.retry_after = answer["place"], answer["retryAfter"]


def post(path, body, timeout=20, **headers):
    headers["Content-Type"] = "application/json"
    if "THROTTLE_TOKEN" in os.environ:
        headers["Proxy-Authorization"] = "Bearer " + os.environ["THROTTLE_TOKEN"]
    request = urllib.request.Request(URL + "/v1/" + path, json.dumps(body).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as response:
        return json.loads(response.read() or "{}")


class Permit:
    def __init__(self, answer):
        self.name, self.waited, self.lifetime = answer["permit"], answer["waited"], answer["lifetime"]

    def settle(self, cost, **budget): # budget is policy and key, for a permit of several budgets
        post("settle", {"permit": self.name, "cost": cost, **budget})

    def penalize(self, duration, **policies):
        post("penalize", {"permit": self.name, "duration": duration, **policies})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            post("release", {"permit": self.name})
        except NO_ANSWER as error:  # it expires, or has expired: then its lifetime was too short
            warnings.warn("the permit was not released: %s" % error)


def acquire(*demands, wait=60, **options): # options: priority, lifetime and place. With place="" or a Later's place it raises Later
    key, end = str(uuid.uuid4()), time.monotonic() + wait
    while True:
        left = max(0, end - time.monotonic())
        try:
            answer = post("acquire", {"demands": demands, "wait": left, **options}, left + 20, **{"Idempotency-Key": key})
            if "place" in answer:
                raise Later(answer)
            return Permit(answer)
        except urllib.error.HTTPError as error:
            failure, pause = Refused(json.load(error)), float(error.headers.get("Retry-After", "inf"))
        except NO_ANSWER as error:  # with the same key nothing is charged twice
            failure, pause = ConnectionError("no throttle proxy answers at %s: %s" % (URL, error)), 0.5
        if time.monotonic() + pause > end:
            raise failure
        time.sleep(pause)
