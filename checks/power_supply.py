"""The cables and the power supply of a self-built machine can carry what its GPUs may draw."""

import re
from collections.abc import Iterator, Sequence

from gpuops import Finding, GpuCable, NotApplicable, PartName, Power, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

SLOT_WATTS = 75
PLUG_WATTS = {"pcie6": 75, "pcie8": 150, "eps8": 300, "12vhpwr": 600, "12v2x6": 600}
"""By the word in the inventory, without dashes. A 12VHPWR cable may have a lower rating: ``12vhpwr-450``."""
REST_WATTS = 100
"""Mainboard, memory, drives and fans."""
CONTINUOUS = 0.8
_WORKSTATION = re.compile(r"\b(?:GeForce|TITAN|Quadro|RTX)\b")
_NOT_SELF_BUILT = re.compile(r"Server Edition|Laptop|Max-Q|Mobile|\bGRID\b")
_RATED = re.compile(r"(12vhpwr|12v2x6)(150|300|450|600)w?")
_WORDS = "pcie8, pcie6, eps8, 12vhpwr or 12v-2x6, with a lower rating as 12vhpwr-450"
_CABLE_FIX = "connect each socket of the GPU with a cable of its own, or lower its limit (nvidia-smi -pl)"
_SUPPLY_FIX = "take a larger power supply, or lower the limits of the GPUs (nvidia-smi -pl)"
_ASK = "no sensor reports the cables and the power supply; declare them as power: in the inventory"


@check(
    needs=gpus,
    uses=("power.declared",),
    severity="fail",
    tags=("quick", "gpu", "power", "nvidia-smi"),
    catches="a workstation that slows down, resets or loses a GPU only when all its GPUs are busy",
    fix="connect each socket with a cable of its own; take a larger power supply, or lower the limit (nvidia-smi -pl)",
)
def power_supply(listed: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """The slot and cables of each GPU carry its power limit, and the supply carries all GPUs, the CPU and the rest.

    A slot delivers 75 W, a 6-pin plug 75 W, an 8-pin plug 150 W, 12VHPWR and 12V-2x6 up to 600 W by their rating; two
    plugs on one cable share what one of them delivers. If the cables do not suffice for the highest limit that
    nvidia-smi -pl accepts, that is information. A continuous load of more than 80 percent of the supply warns. So does
    a peak that the supply need not survive: one GPU at twice its limit for 10 ms if the supply is older than ATX 3,
    otherwise all GPUs at three times their limits for 0.1 ms. The rest of the machine counts as 100 W (our own figure).
    Source: PCI-SIG, PCI Express Card Electromechanical Specification 5.1 (75, 150 and 600 W, excursions); Intel, ATX12V
    design guide 2.01, tables 3-3 (200 percent for 0.1 ms) and 4-3; NFPA 70, 210.20(A) (80 percent); Hugging Face
    Transformers, custom hardware for training (pigtails).
    """
    power: Power | None = profile.get("power.declared")
    self_built = any(_is_self_built(gpu) for gpu in listed)
    if power is None:
        yield Unknown(_ASK) if self_built else NotApplicable("a server, whose maker chose the supply and the cables")
        return
    if power.gpu_cables or self_built:
        for gpu in listed:
            yield from _cables(gpu, [cable for cable in power.gpu_cables if cable.gpu == gpu.index])
    yield from _supply(listed, power)


def _is_self_built(gpu: Gpu) -> bool:
    name = gpu.name or ""
    return bool(_WORKSTATION.search(name)) and not _NOT_SELF_BUILT.search(name)


def _cables(gpu: Gpu, cables: Sequence[GpuCable]) -> Iterator[Finding | Unknown]:
    """Compare the limits of one GPU with what its slot and cables deliver."""
    limit, most = gpu.power_limit_watts, gpu.max_power_limit_watts
    unreadable = next((cable.type for cable in cables if _plug_watts(cable) is None), None)
    if unreadable is not None:
        yield Unknown(f'gpu_cables: "{unreadable}" is not a plug that gpuops knows; use {_WORDS}')
    elif limit is None:
        yield Unknown(f"{gpu.label} does not report its power limit")
    elif not cables and limit > SLOT_WATTS:
        yield Unknown(f"the inventory declares no power cable of {gpu.subject}; how is it connected?")
    else:
        available = SLOT_WATTS + sum(map(_cable_watts, cables))
        sum_ = f"{' + '.join([f'{SLOT_WATTS} W (slot)', *map(_cable_text, cables)])} = {available} W"
        if limit > available:
            message = f"{sum_}, less than its power limit of {limit:g} W"
            yield Finding(
                message, expected=limit, found=available, unit="W", fix=_CABLE_FIX, part=gpu.part, code="cable"
            )
        elif most is not None and most > available:
            message = f"{sum_}: do not raise its power limit to the {most:g} W that it accepts"
            yield Finding(
                message,
                expected=most,
                found=available,
                unit="W",
                fix=_CABLE_FIX,
                part=gpu.part,
                severity="info",
                code="raise",
            )


def _plug_watts(cable: GpuCable) -> int | None:
    word = re.sub(r"[-_. ]", "", cable.type.lower())
    rated = _RATED.fullmatch(word)
    return int(rated[2]) if rated else PLUG_WATTS.get(word)


def _cable_watts(cable: GpuCable) -> int:
    return (cable.sockets if cable.independent else 1) * (_plug_watts(cable) or 0)


def _cable_text(cable: GpuCable) -> str:
    watts = _plug_watts(cable)
    if cable.sockets == 1:
        return f"{watts} W ({cable.type})"
    if cable.independent:
        return f"{cable.sockets} x {watts} W ({cable.type})"
    return f"{watts} W ({cable.sockets} {cable.type} plugs on one cable)"


def _supply(listed: Sequence[Gpu], power: Power) -> Iterator[Finding | Unknown]:
    """Compare the sum of all loads with the power supply."""
    limits = [gpu.power_limit_watts for gpu in listed if gpu.power_limit_watts is not None]
    rated = sum(psu.watts * psu.count for psu in power.psus)
    load = sum(limits) + (power.cpu_watts or 0) + REST_WATTS
    if not power.psus:
        yield Unknown("the inventory declares no psus; how many watts does the power supply have?")
    elif len(limits) < len(listed):
        yield Unknown("not every GPU reports its power limit, so their sum is unknown")
    elif power.cpu_watts is None and load <= rated:
        yield Unknown("the inventory declares no cpu_watts; how much does the CPU draw at most?")
    else:
        yield from _headroom(limits, power, rated, load)


def _headroom(limits: Sequence[float], power: Power, rated: int, load: float) -> Iterator[Finding]:
    cpu = [] if power.cpu_watts is None else [f"{power.cpu_watts} W (CPU)"]
    sum_ = f"{' + '.join([_gpus_text(limits), *cpu, f'{REST_WATTS} W (rest)'])} = {load:g} W"
    supply = PartName("psu", "power supply " + " + ".join(f"{psu.count} x {psu.watts} W" for psu in power.psus))
    modern = all(psu.atx3 for psu in power.psus)
    peak, allowed = (load + 2 * sum(limits), 2 * rated) if modern else (load + max(limits, default=0), rated)
    if load > rated:
        message = f"{sum_}, more than the {rated} W of the power supply"
        yield Finding(message, expected=load, found=rated, unit="W", fix=_SUPPLY_FIX, part=supply, code="overload")
    elif load > CONTINUOUS * rated:
        message = f"{sum_}, more than 80 % of the {rated} W of the power supply ({CONTINUOUS * rated:g} W)"
        yield Finding(
            message,
            expected=load / CONTINUOUS,
            found=rated,
            unit="W",
            fix=_SUPPLY_FIX,
            part=supply,
            severity="warn",
            code="continuous",
        )
    elif peak > allowed:
        which = "all GPUs at three times their limit for 0.1 ms" if modern else "one GPU at twice its limit for 10 ms"
        message = f"{sum_}, and {which}: {peak:g} W, more than the {allowed} W that the power supply must survive"
        yield Finding(
            message, expected=peak, found=allowed, unit="W", fix=_SUPPLY_FIX, part=supply, severity="warn", code="peak"
        )


def _gpus_text(limits: Sequence[float]) -> str:
    if len(set(limits)) == 1:
        return f"{len(limits)} x {limits[0]:g} W (GPUs)"
    return f"{' + '.join(f'{limit:g} W' for limit in limits)} (GPUs)"
