"""Does work under a permit: drive.py POLICY KEY WAIT URL [place=TEXT] [settle=N] [penalize=N] [fail]."""
import sys, urllib.request
sys.path.insert(0, sys.argv[1])
from throttle_client import Later, Refused, acquire

policy, key, wait, url, *orders = sys.argv[2:]
options = {"place": order[6:] for order in orders if order.startswith("place=")}
orders = [order for order in orders if not order.startswith("place=")]
try:
    with acquire({"policy": policy, "key": key}, wait=float(wait), **options) as permit:
        urllib.request.urlopen(url).read()
        for order in orders:
            if order == "fail":
                sys.exit(3)
            name, value = order.split("=")
            {"settle": permit.settle, "penalize": permit.penalize}[name](int(value))
except Later as later:
    print(later.place)
    sys.exit(74)
except Refused as refused:
    print(refused, file=sys.stderr)
    sys.exit(75)
