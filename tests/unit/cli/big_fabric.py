"""A fabric of many nodes for ``gpuops allreduce simulate --program``: big_fabric.py CASE [NODES].

It shares no figure with gpuops: 6 GPUs and NICs of 37 GB/s per node, 20 nodes behind the same leaves.
"""

import json
import random
import sys
import zlib

LINE, WITHIN, RAILS, UNIT = 37.0, 311.0, 6, 20
case, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1024
names = [f"node{number:04}" for number in range(count)]
unmapped = case in ("unmapped", "unclear")
chosen = random.Random(case)
some = {(chosen.choice(names), chosen.randrange(RAILS)) for _ in range(count // 50)}
half = {name for name in names if chosen.random() < 0.5}
odd = set(chosen.sample(names, count // 50 if case == "dead" else count * 3 // 10))


def node(number):
    unit = f"SU{number // UNIT}"
    nics = [{"name": f"mlx5_{rail}", "rail": rail, "gb_per_s": LINE} for rail in range(RAILS)]
    if unmapped:
        return {"gpus": RAILS, "nics": nics}
    return {"unit": unit, "gpus": RAILS, "nics": [{**nic, "leaf": f"{unit}-{nic['rail']}"} for nic in nics]}


def kept(group, number):
    """Return the fraction of its rate that a group keeps; its draw is the same whenever it is asked again."""
    members, rail = group["nodes"], group["rail"]
    draw = random.Random(zlib.crc32(f"{case} {number} {members} {rail}".encode()))
    share, between = draw.gauss(0.985, 0.004), len(members) > 1
    if case == "hca" and between and rail in (None, 3) and "node0117" in members:
        share *= 0.7 if rail == 3 else 0.95
    if case == "leaf" and between and rail in (None, 2) and {int(name[4:]) // UNIT for name in members} & {7}:
        share *= 0.6
    if case == "even" and between:
        share *= 0.55
    if case == "half" and between and half & set(members):
        share *= 0.75
    if case == "contention" and between and draw.random() < 0.02:
        share *= draw.uniform(0.5, 0.8)
    if case == "unmapped" and between and any((name, rail) in some for name in members):
        share *= 0.66
    if case == "unclear" and between and odd & set(members) and draw.random() < 0.45:
        share *= 0.9
    return share


def figure(group, number):
    members, between = group["nodes"], len(group["nodes"]) > 1
    words = {"gb_per_s": None, "detail": ""}
    if case == "sockets" and between:
        return {**words, "trouble": "socket", "gb_per_s": 1.1, "detail": "NET/Socket : Using [0]eth0:10.1.2.3<0>"}
    if case == "errors" and between and number == 5 and odd & set(members):
        return {
            **words,
            "trouble": "error",
            "detail": f"{members[0]}: NET/IB: Got completion from peer 10.0.{number}.7",
        }
    if case == "dead" and between and odd & set(members):
        gone = sorted(odd & set(members))
        return {**words, "trouble": "unreachable", "detail": f"connect to {gone[0]} failed: No route to host"}
    rate = LINE if between and group["rail"] is not None else WITHIN if not between else LINE * RAILS
    return {**words, "trouble": "", "gb_per_s": rate * kept(group, number)}


def say(document):
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


say({"nodes": {name: node(number) for number, name in enumerate(names)}})
for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    say({"figures": [figure(group, request["round"]) for group in request["groups"]]})
