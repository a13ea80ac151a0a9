"""Nodes and their parts: what they count when they are well, and how warm they are."""

import math
from dataclasses import dataclass, field

GPUS, HCAS, DRIVES, DIMMS = 8, 8, 2, 16
LINKS = {"NVIDIA A100-SXM4-80GB": 12, "NVIDIA H100 80GB HBM3": 18}
NVLINK = ("replay_errors", "recovery_errors", "crc_errors")
VOLATILE = {
    "gpu": ("ecc_corrected_volatile", "ecc_uncorrected_volatile", "pcie_replays", *NVLINK),
    "hca": (
        *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards"),
        *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "rnr_nak_retry_err"),
        *("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "roce_slow_restart"),
    ),
    "nvme": (),
    "interface": ("rx_errors", "tx_errors"),
    "dimm": ("corrected_errors",),
}
REMEMBERED = {
    "gpu": ("ecc_uncorrected_aggregate", "rows_remapped_corrected", "rows_remapped_uncorrected", "exhausted_banks"),
    "nvme": ("used_percent", "media_errors"),
}
CONGESTION = ("out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "port_xmit_discards")
"""What full queues count on a converged Ethernet, without any fault."""


@dataclass(frozen=True)
class Habits:
    """How this fleet behaves when it is well, all drawn from the seed. Rates are events a day and part."""

    rates: dict
    spread: float
    burst: float
    tail: float
    converged: bool
    congestion: float
    ambient: float
    season: float
    daily: float
    heat: float
    warmth: float
    jitter: float
    outliers: float
    busy: float
    partial: float


def habits(random):
    """Return the habits of one fleet."""
    wide = lambda low, high: math.exp(random.uniform(math.log(low), math.log(high)))  # noqa: E731
    return Habits(
        rates={
            "ecc_corrected_volatile": wide(2e-4, 5e-2),
            "pcie_replays": wide(1e-4, 1e-1),
            "replay_errors": wide(2e-4, 5e-2),
            "crc_errors": wide(2e-4, 5e-2),
            "recovery_errors": wide(1e-5, 2e-3),
            "symbol_error": wide(1e-3, 5e-1),
            "port_rcv_errors": wide(1e-4, 5e-2),
            "link_error_recovery": wide(1e-5, 2e-3),
            "link_downed": wide(1e-5, 5e-3),
            "local_ack_timeout_err": wide(1e-4, 5e-2),
            "rx_errors": wide(1e-4, 1e-1),
            "corrected_errors": wide(1e-4, 2e-2),
            "rows_remapped_corrected": wide(1e-5, 3e-4),
            "media_errors": wide(1e-6, 1e-4),
        },
        spread=random.uniform(0.3, 2.0),
        burst=random.uniform(0.02, 0.3),
        tail=random.uniform(1.1, 2.5),
        converged=random.random() < 0.4,
        congestion=wide(0.05, 20),
        ambient=random.uniform(26, 38),
        season=random.uniform(0, 5),
        daily=random.uniform(0, 3),
        heat=random.uniform(15, 38),
        warmth=random.uniform(0.7, 3.0),
        jitter=random.uniform(0.3, 1.8),
        outliers=random.uniform(0, 0.01),
        busy=random.choice((0.0, 0.1, 0.5, 0.9)),
        partial=random.uniform(0, 0.3),
    )


@dataclass(eq=False)
class Part:
    """A part; ``volatile`` counters are lost with a boot, what it ``remembers`` goes with it to another node."""

    kind: str
    serial: str
    model: str
    volatile: dict
    remembers: dict
    rates: list
    warmth: float = 0.0
    faults: list = field(default_factory=list)

    def count(self, name, number, link=None):
        """Add to a counter, and to that of the link, if it is one."""
        own = self.remembers if name in self.remembers else self.volatile
        own[name] = own.get(name, 0) + number
        if link is not None:
            own[f"link{link}.{name}"] = own.get(f"link{link}.{name}", 0) + number

    def restart(self):
        """Forget what a boot or a reset clears."""
        self.volatile = dict.fromkeys(VOLATILE[self.kind], 0)


@dataclass(eq=False)
class Node:
    """A node, with its parts by slot. ``warmth`` is that of its place in the hall, ``slot_warmth`` of each GPU slot."""

    name: str
    model: str
    slots: dict
    warmth: float
    slot_warmth: list
    boot: int = 1
    until: float = -1.0
    """Down, or not yet repaired, until this day."""
    is_reachable: bool = True
    marks: list = field(default_factory=list)
    """What was done to it, as (day, what, slot or None)."""

    def reboot(self):
        self.boot += 1
        for part in self.slots.values():
            part.restart()


class Factory:
    """Makes parts, with a spread of their own, and no serial number twice."""

    def __init__(self, random, own):
        self.random, self.own, self.made = random, own, 0

    def part(self, kind, model=""):
        self.made += 1
        own, random = self.own, self.random
        rates = [
            (name, own.rates[name] * random.lognormvariate(0, own.spread))
            for name in (*VOLATILE[kind], *REMEMBERED.get(kind, ()))
            if name in own.rates
        ]
        if kind == "hca" and own.converged:
            rates += [(name, own.congestion * random.lognormvariate(0, own.spread / 2)) for name in CONGESTION]
        remembers = dict.fromkeys(REMEMBERED.get(kind, ()), 0)
        if kind == "gpu" and random.random() < 0.05:
            remembers["rows_remapped_corrected"] = random.randint(1, 3)
        if kind == "nvme":
            remembers["used_percent"] = random.randint(0, 30)
        made = Part(kind, f"{kind.upper()}{self.made:07d}", model, {}, remembers, rates, random.gauss(0, own.warmth))
        made.restart()
        return made

    def node(self, number, model):
        slots = {f"gpu{n}": self.part("gpu", model) for n in range(GPUS)}
        slots |= {f"mlx5_{n}": self.part("hca", "MT4129") for n in range(HCAS)}
        slots |= {f"nvme{n}n1": self.part("nvme", "SAMSUNG MZQL23T8HCLS") for n in range(DRIVES)}
        slots |= {"eth0": self.part("interface")}
        slots |= {f"CPU_SrcID#{n // 8}_MC#{n % 8 // 2}_Chan#{n % 2}_DIMM#0": self.part("dimm") for n in range(DIMMS)}
        return Node(f"node{number:04d}", model, slots, self.random.gauss(0, 1.5), [])


def fleet(random, nodes, own):
    """Return the factory and the nodes: one model, or two."""
    factory = Factory(random, own)
    models, share = random.sample(sorted(LINKS), 2), random.choice((1.0, 0.6))
    slot_warmth = {model: [random.gauss(0, 2.5) for _ in range(GPUS)] for model in models}
    made = [factory.node(n, models[n >= share * nodes]) for n in range(nodes)]
    for node in made:
        node.slot_warmth = slot_warmth[node.model]
    return factory, {node.name: node for node in made}


def poisson(random, mean):
    """Return a Poisson variate."""
    if mean > 50:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    count, product, floor = 0, random.random(), math.exp(-mean)
    while product > floor:
        count, product = count + 1, product * random.random()
    return count
