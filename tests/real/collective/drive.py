"""Pairs of an inventory's hosts by the tcp engine, in rounds; what happens is said in lines of JSON.

drive.py INVENTORY ROUNDS SECONDS: in round r every host is measured with another partner, for SECONDS.
"""

import json
import sys
from pathlib import Path

from gpuops.collective.engines import Load
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.inventory import Inventory
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.transport.connections import Connections


def pairs(names, number):
    """Round ``number`` of a round robin."""
    turned = names[1 + number :] + names[1 : 1 + number]
    order = [names[0], *turned]
    half = len(order) // 2
    return tuple(RankGroup(pair) for pair in zip(order[:half], reversed(order[half:]), strict=True))


def say(**message):
    print(json.dumps(message), flush=True)  # noqa: T201


def main(inventory, rounds, seconds):
    hosts = list(Inventory.load(Path(inventory)).hosts.values())
    group = Connections().group()
    engine = TcpEngine(hosts, group, Load(seconds=float(seconds)))
    try:
        say(lost={name: reason.why for name, reason in engine.open().items()})
        for number in range(int(rounds)):
            say(round=number)
            for figure in engine.measure(Round("pair", pairs([host.name for host in hosts], number))):
                say(nodes=figure.group.nodes, mb_per_s=figure.gb_per_s and figure.gb_per_s * 1e3,
                    trouble=figure.trouble, absent=figure.absent, detail=figure.detail)  # fmt: skip
    finally:
        engine.close()
        group.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
