"""No idle node is hotter, or draws more power, than the other idle nodes of its profile."""

from collections.abc import Iterator, Mapping
from statistics import median

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.trends import robust_spread

FEWEST_NODES = 6
"""With fewer, the spread of the others says little; a choice."""
DEVIATIONS = 6
"""Of a normal distribution, one node in a billion; real tails are heavier, so there are least differences, too."""
LEAST = {"temperature_celsius": (10.0, "°C", "temperature"), "power_draw_watts": (25.0, "W a GPU", "power")}
"""Less has other causes: the place in the rack, the model's spread; choices."""
_FIXES = {
    "temperature": "look at fans, filters, coolant and inlet of this node",
    "power": "look for clocks that are locked high (nvidia-smi -q -d CLOCK), or programs that hold the GPUs",
}


@check(
    needs=gpus,
    scope="group",
    severity="warn",
    tags=("quick", "gpu", "temperature"),
    applies_to="six or more idle nodes of one profile",
    catches="a node whose fans or coolant fail, or whose clocks were locked, before a job runs on it",
    fix="compare it with its neighbours in the rack",
)
def readings_agree(nodes: Mapping[str, tuple[Gpu, ...]], _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """The median of a node's GPUs is a finding six deviations (1.4826 MAD) above the median of the idle nodes.

    It must also be at least 10 °C or 25 W above it. Nodes with work are left out, because jobs differ. The limits are
    our own figures.
    """
    idle = {node: own for node, own in nodes.items() if all(_is_idle(gpu) for gpu in own)}
    if len(idle) < FEWEST_NODES:
        yield NotApplicable(f"fewer than {FEWEST_NODES} nodes of this profile are idle")
        return
    for reading, (least, unit, code) in LEAST.items():
        values = {node: median(own) for node, gpus in idle.items() if (own := _values(gpus, reading))}
        if len(values) < FEWEST_NODES:
            continue
        middle, spread = robust_spread(values.values())
        for node, value in values.items():
            if value - middle >= max(least, DEVIATIONS * spread):
                message = f"its GPUs have {value:.0f} {unit}; the median of {len(values)} idle nodes is {middle:.0f}"
                yield Finding(message, expected=middle, found=value, unit=unit, host=node, code=code, fix=_FIXES[code])


def _is_idle(gpu: Gpu) -> bool:
    return gpu.utilization_percent == 0 and not gpu.processes


def _values(gpus: tuple[Gpu, ...], reading: str) -> list[float]:
    return [value for gpu in gpus if (value := getattr(gpu, reading)) is not None]
