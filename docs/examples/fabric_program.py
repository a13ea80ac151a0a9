"""A fabric for `gpuops allreduce simulate --program`: two units of 8 nodes, in which one NIC is 30 % slow."""

import json
import random
import sys

RAILS = range(8)
NODES = [f"gpu{number:02}" for number in range(16)]
SLOW = ("gpu05", 3)  # its node and rail


def node(number):
    unit = f"U{number // 8}"
    nics = [{"name": f"mlx5_{rail}", "rail": rail, "leaf": f"{unit}-L{rail}"} for rail in RAILS]
    return {"unit": unit, "gpus": len(RAILS), "nics": nics}


def figure(group):
    if len(group["nodes"]) == 1:
        bandwidth = 360 if group["gpus"] or group["variant"] == "ring" else 475
    else:
        rails = RAILS if group["rail"] is None else [group["rail"]]
        bandwidth = 48 * len(rails) * min(0.7 if (n, r) == SLOW else 1 for n in group["nodes"] for r in rails)
    return {"gb_per_s": bandwidth * random.gauss(1, 0.003), "trouble": "", "detail": ""}


print(json.dumps({"nodes": {name: node(number) for number, name in enumerate(NODES)}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    print(json.dumps({"figures": [figure(group) for group in request["groups"]]}), flush=True)
