"""What happens to a fleet: faults that build up, sudden faults, and what people do to nodes.

Rates: 584 faults in 400 nodes and 348 days, their kinds and outages, from stepfun-ai/InfiniteHBD-Trace (Apache-2.0).
"""

import math
from dataclasses import dataclass, field

PER_NODE_DAY = 4.20e-3
SHARES = {"gpu": 158, "unknown": 144, "stress": 97, "other": 56, "cable": 40, "fan": 33, "nic": 30, "power": 26}
PRONENESS = 0.9
"""Shape of the gamma distribution of a node's rate: it gives 231 nodes of 400 hit, and 138 more than once (of the trace
135)."""
OUTAGE_MEDIAN, OUTAGE_SIGMA = 0.85, 1.93
"""Days; log-normal, with the trace's mean of 5.5."""
BUILD_UP = {"gpu": ("nvlink", "ecc", "rows", "hot"), "cable": ("symbols",), "nic": ("symbols",), "fan": ("hot",)}
SEEN_BY = {"gpu": "xid", "cable": "ib-ports", "nic": "ib-ports", "fan": "bmc", "power": "bmc", "stress": "own-stress"}
TOTALS = {"nvlink": (20, 600), "ecc": (10, 5000), "symbols": (30, 60000), "rows": (2, 10), "hot": (5, 20)}
"""What is counted from the onset to the failure; of `hot`, degrees Celsius against its peers."""
PARTS = {"nvlink": "gpu", "ecc": "gpu", "rows": "gpu", "hot": "gpu", "symbols": "hca", "gpu": "gpu", "cable": "hca"}
BEYOND = 10
"""Days after the end in which faults may fail that begin before it."""


@dataclass(eq=False)
class Fault:
    """A fault of a part (of the node, if None). One that builds up begins at ``onset``, which else is ``fails``."""

    kind: str
    node: str
    part: object
    onset: float
    fails: float
    outage: float
    total: float = 0.0
    growth: float = 1.0
    activity: float = 1.0
    link: int = 0
    check: str = "own-stress"
    is_replaced: bool = False
    is_silent: bool = False
    """Seen only as a node that does not answer."""
    is_over: bool = False
    found: dict = field(default_factory=dict)
    """The day of the first finding on its part, by check."""
    found_beside: dict = field(default_factory=dict)

    @property
    def builds_up(self):
        return self.onset < self.fails

    def reached(self, day):
        """Return how much of ``total`` there is on a day."""
        share = (day - self.onset) / (self.fails - self.onset)
        return self.total * min(1.0, max(0.0, share)) ** self.growth


@dataclass(frozen=True)
class Event:
    """What people do, on a day: reboot, swap, cable, roll-out, clock-node, clock-control."""

    day: float
    what: str
    nodes: tuple
    slots: tuple = ()
    is_unreachable: bool = False


def _log(random, low, high):
    return math.exp(random.uniform(math.log(low), math.log(high)))


def _fault(random, nodes, name, fails, ways):
    origin = random.choices(list(SHARES), SHARES.values())[0]
    node = nodes[name]
    outage = random.lognormvariate(math.log(OUTAGE_MEDIAN), OUTAGE_SIGMA)
    builds = origin in BUILD_UP and random.random() < ways[origin]
    kind = random.choice(BUILD_UP[origin]) if builds else origin
    wanted = PARTS.get(kind, "hca" if kind == "nic" else "")
    part = random.choice([p for p in node.slots.values() if p.kind == wanted]) if wanted else None
    fault = Fault(kind, name, part, fails, fails, outage, check=SEEN_BY.get(origin, "own-stress"))
    fault.is_replaced, fault.is_silent = random.random() < 0.6, origin in ("unknown", "power")
    if builds:
        fault.onset = fails - min(12.0, max(0.5, random.lognormvariate(math.log(4), 0.7)))
        fault.total, fault.growth = _log(random, *TOTALS[kind]), random.uniform(0.8, 4)
        fault.activity, fault.link = random.uniform(0.3, 1.0), random.randrange(12)
    return fault


def faults(random, nodes, days, times):
    """Return the faults by node, none begins before the one before is repaired; and the names of planted lemons."""
    ways = {origin: random.uniform(0.3, 0.8) for origin in BUILD_UP}
    found = {}
    for name in nodes:
        rate = PER_NODE_DAY * times * random.gammavariate(PRONENESS, 1 / PRONENESS)
        own, day = [], 0.0
        while rate and (day := day + random.expovariate(rate)) < days + BEYOND:
            fault = _fault(random, nodes, name, day, ways)
            free = own[-1].fails + own[-1].outage + 0.5 if own else -math.inf
            if free < fault.onset < days:
                own.append(fault)
        found[name] = own
    lemons = random.sample(sorted(nodes), round(random.uniform(0.01, 0.03) * len(nodes)))
    for name in lemons:
        found[name], day, rate = [], random.uniform(0, days / 3), random.uniform(5, 12) / 30
        slot = random.choice(["node", "gpu3", "mlx5_5"])
        while (day := day + 0.5 + random.expovariate(rate)) < days:
            part = nodes[name].slots.get(slot)
            fault = Fault("lemon", name, part, day, day, random.uniform(0.1, 1), check="xid" if part else "own-stress")
            found[name].append(fault)
            day += fault.outage
    return found, frozenset(lemons)


def events(random, nodes, days, planted):
    """Return what people do, in order."""
    names, made = sorted(nodes), []
    per_day = random.uniform(0.5, 3) / 30
    for name in names:
        day = 0.0
        while (day := day + random.expovariate(per_day)) < days:
            made.append(Event(day, "reboot", (name,), is_unreachable=random.random() < 0.2))
    night = random.uniform(0.2, 0.9) * days
    rebooted = random.sample(names, len(names) // 4)
    made += [Event(night, "reboot", (name,), is_unreachable=random.random() < 0.1) for name in rebooted]
    building = [f for own in planted.values() for f in own if f.builds_up and f.part.kind == "gpu"]
    for number in range(max(1, len(names) // 50)):
        a, b = random.sample(names, 2)
        slots, day = (f"gpu{random.randrange(8)}", f"gpu{random.randrange(8)}"), random.uniform(0.1, 0.9) * days
        if building and number % 2 == 0:  # a card that is about to fail, moved half-way
            fault = random.choice(building)
            a = fault.node
            b = random.choice([n for n in names if n != a])
            slots = (next(s for s, p in nodes[a].slots.items() if p is fault.part), slots[1])
            day = (max(0.0, fault.onset) + min(days, fault.fails)) / 2
        made.append(Event(day, "swap", (a, b), slots))
    for _ in range(max(1, len(names) // 40)):
        made.append(Event(random.uniform(0.1, 0.95) * days, "cable", (random.choice(names),), ("mlx5_2",)))
        made.append(Event(random.uniform(0.1, 0.95) * days, "clock-node", (random.choice(names),)))
    made.append(Event(random.uniform(0.2, 0.8) * days, "clock-control", ()))
    made.append(Event(random.uniform(0.4, 0.8) * days, "roll-out", tuple(random.sample(names, len(names) // 2))))
    return sorted(made, key=lambda each: each.day)
