"""What one simulated fabric is like: machines, cabling, routing, noise and other tenants, drawn wide from a seed."""

import dataclasses
import random

CELLS = tuple("calm noisy outliers inside-outliers tenant drift ecmp lid flapping spine fleet errors mixed".split())
MACHINES = (  # bus bandwidth of 8 GPUs with NVLink SHARP and in a ring; the GB/s of a NIC, of one direction
    ((225, 240), (225, 240), (25,)),  # A100 has no NVLink SHARP
    ((440, 490), (330, 375), (50, 25)),  # H100 and H200
    ((780, 860), (600, 690), (50, 100)),  # B200 and B300
)


@dataclasses.dataclass
class Tenant:
    """Another job behind a leaf. It takes a fraction of its uplinks, which changes from round to round."""

    leaf: int
    taken: float
    bursts: float | None  # the chance that it sends in a round; None: in all rounds from first to last
    first: int
    last: int


@dataclasses.dataclass
class Setting:
    cell: str
    nodes: int
    seed: int
    names: list
    nic_names: list
    rails: int
    gpus: int
    unit: int
    leaf_per_rail: bool
    oversubscription: float
    spines: int
    routing: str
    flows: int
    ordered_lids: bool
    states_leaves: bool
    states_units: bool
    sharp: float
    ring: float
    few: float  # a pair of GPUs, as a fraction of the ring
    line: float
    efficiency: float
    pair_gain: float
    loss_by_size: float
    noise: float
    freedom: float
    outliers: float
    inside_noise: float
    inside_outliers: float
    nic_spread: float
    node_spread: float
    drift: float
    drift_rounds: float
    tenants: list

    @property
    def units(self):
        return -(-self.nodes // self.unit)

    @property
    def leaves(self):
        return self.units * (self.rails if self.leaf_per_rail else 1)

    def leaf(self, node, rail):
        return node // self.unit * self.rails + rail if self.leaf_per_rail else node // self.unit

    @property
    def uplink_gb_per_s(self):
        """What one link from a leaf to one spine carries."""
        ports = self.unit * (1 if self.leaf_per_rail else self.rails)
        return ports * self.line / self.oversubscription / self.spines


def draw_setting(cell, nodes, seed):
    rng = random.Random(f"{cell}/{nodes}/{seed}/setting")
    dirty = cell == "mixed"

    def is_in(*cells, chance=0.5):
        return cell in cells or (dirty and rng.random() < chance)

    sharp, ring, lines = rng.choice(MACHINES)
    rails = rng.choice((8, 8, 8, 4))
    line = rng.choice(lines)
    leaf_per_rail = rng.random() < 0.75
    unit = _unit(nodes, rng, leaf_per_rail=leaf_per_rail)
    oversubscription = rng.choice((1, 1, 1, 1.5, 2, 3))
    ports = unit * (1 if leaf_per_rail else rails)
    spines = max(2, round(ports / oversubscription / rng.choice((1, 1, 2, 4))))
    prefix, width = rng.choice(("gpu", "node", "dgx-", "h")), len(str(nodes))
    numbers = rng.choice((list(range(16)), [0, 3, 4, 5, 6, 9, 10, 11], [2 * i for i in range(16)]))
    setting = Setting(
        cell=cell, nodes=nodes, seed=seed,
        names=[f"{prefix}{number:0{width}}" for number in range(nodes)],
        nic_names=[f"mlx5_{number}" for number in numbers[:rails]],
        rails=rails, gpus=8, unit=unit, leaf_per_rail=leaf_per_rail,
        oversubscription=oversubscription, spines=min(spines, 32),
        routing=_routing(cell, rng), flows=rng.choice((1, 2, 4, 8)), ordered_lids=rng.random() < 0.5,
        states_leaves=not dirty or rng.random() < 0.8, states_units=rng.random() < 0.7,
        sharp=rng.uniform(*sharp), ring=rng.uniform(*ring), few=rng.uniform(0.7, 1.0), line=line,
        efficiency=rng.uniform(0.8, 0.98), pair_gain=rng.uniform(1.0, 1.9), loss_by_size=rng.uniform(0, 0.02),
        noise=rng.uniform(0.01, 0.03) if is_in("noisy", "outliers") else rng.uniform(0.001, 0.006),
        freedom=rng.uniform(3, 10) if is_in("noisy", "outliers") else rng.uniform(6, 30),
        outliers=rng.uniform(0.005, 0.05) if is_in("outliers") else 0.0,
        inside_noise=rng.uniform(0.005, 0.012) if is_in("noisy") else rng.uniform(0.001, 0.005),
        inside_outliers=rng.uniform(0.01, 0.05) if is_in("inside-outliers", chance=0.3) else 0.0,
        nic_spread=rng.uniform(0, 0.01), node_spread=rng.uniform(0, 0.006),
        drift=rng.uniform(0.03, 0.15) if is_in("drift") else rng.uniform(0, 0.005),
        drift_rounds=rng.uniform(1, 8) * rng.choice((1, -1)),
        tenants=[],
    )  # fmt: skip
    if is_in("tenant"):
        setting.tenants = [_tenant(setting, rng) for _ in range(rng.randint(1, 4) + setting.leaves // 64)]
    return setting


def _unit(nodes, rng, *, leaf_per_rail):
    """Units of 4 to 32 nodes; one unit alone only where each rail has its leaf."""
    sizes = [size for size in (4, 8, 16, 32) if size <= nodes // 2 and nodes / size <= 128]
    if leaf_per_rail and nodes <= 32 and rng.random() < 0.15:
        return nodes
    return rng.choice(sizes) if sizes else max(1, nodes // 2)


def _routing(cell, rng):
    if cell in ("ecmp", "lid"):
        return cell
    if cell == "spine":
        return rng.choice(("lid", "lid", "ecmp"))
    return rng.choice(("adaptive", "adaptive", "lid", "ecmp")) if cell == "mixed" else "adaptive"


def _tenant(setting, rng):
    first = rng.randrange(12)
    lasts = rng.choice((1, 3, 8, 40))
    bursts = rng.uniform(0.2, 0.7) if rng.random() < 0.5 else None
    return Tenant(rng.randrange(setting.leaves), rng.uniform(0.2, 0.7), bursts, first, first + lasts)
