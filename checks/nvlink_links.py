"""Every expected NVLink is up at the expected rate."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.nvlink import GpuLinks, nvlink

_ROUNDING = 0.99
"""nvidia-smi prints 26.562 for 26.5625 GB/s: rates within one percent count as equal."""

_FEWEST = 3
_PAIR = 2
_BRIDGE = "reseat or replace the NVLink bridge"
_FIX_OF_ALL = (
    "look at the NVSwitches (lspci) and the log of nvidia-fabricmanager first; then reset all GPUs of the baseboard "
    "together; if that does not help, have the baseboard replaced"
)


@check(
    needs=(gpus, nvlink),
    uses=("nvswitch",),
    expects=("nvlink.links", "nvlink.gb_per_s"),
    severity="reset",
    tags=("quick", "gpu", "nvlink", "nvidia-smi"),
    explains=("topology", "sxid:20034", "xid:74", "xid:145", "xid:149", "xid:154"),
    settles_seconds=300,
    applies_to="GPUs with NVLink, unless they are in MIG mode",
    catches="a link that trained down or stayed down after a reset: all-reduce is 5-40 % slower without any error",
    fix="reset the GPU when idle; if that does not help, reseat or replace the baseboard or the NVLink bridge",
    fix_in_common="look at what they share: a reboot a moment ago, the fabric manager, the rack's NVLink switches",
)
def nvlink_links(
    gpus: tuple[Gpu, ...], links: tuple[GpuLinks, ...], profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The profile sets the number of links and their rate.

    Source of the rule: NVIDIA Health Validation documentation (max_inactive_nvlinks 0). GPUs in MIG mode are not
    judged, because their links may be switched off (NVIDIA Fabric Manager User Guide, MIG). If all GPUs of a baseboard
    with NVSwitches lack links, that is one finding on the baseboard; if two cards lack as many, it is their bridge's.
    """
    links_by_gpu = {of.index: of for of in links}
    whole = [gpu for gpu in gpus if not gpu.mig_mode]
    if not whole:
        yield NotApplicable("every GPU is in MIG mode, which may switch NVLink off")
    up = [count for gpu in whole if (count := _links_up(links_by_gpu.get(gpu.index))) is not None]
    of_all = _lacking_on_baseboard(whole, up, profile) or _lacking_on_bridge(whole, up, profile)
    if of_all:
        yield of_all
    for gpu in whole:
        if gpu.index in links_by_gpu:
            yield from _judge(gpu, links_by_gpu[gpu.index], profile, is_counted=not of_all)
        else:
            yield Unknown(f"nvidia-smi nvlink does not list {gpu.label}")


def _links_up(of: GpuLinks | None) -> int | None:
    """Return how many links are up; None if not all of them can be read."""
    return None if of is None or of.unread else sum(bool(link.gb_per_s) for link in of.links)


def _lacking_on_baseboard(whole: list[Gpu], up: list[int], profile: Profile) -> Finding | None:
    """Return the finding on the baseboard if all of its GPUs lack links: their NVSwitches or the fabric are broken."""
    expected = profile["nvlink.links"]
    if not profile.get("nvswitch") or len(up) < max(len(whole), _FEWEST) or max(up) >= expected:
        return None
    counts = f"{min(up)}" if min(up) == max(up) else f"{min(up)} to {max(up)}"
    message = f"{counts} of {expected} NVLinks are up on each of {len(up)} GPUs"
    return Finding(message, expected=expected, found=max(up), unit="links", fix=_FIX_OF_ALL, part="baseboard")


def _lacking_on_bridge(whole: list[Gpu], up: list[int], profile: Profile) -> Finding | None:
    """Return the finding on the bridge of two cards that lack as many links: those are two ends of the same."""
    expected = profile["nvlink.links"]
    is_bridge = len(up) == len(whole) == _PAIR and _hardware(whole[0], profile) == _BRIDGE
    if not is_bridge or up[0] != up[1] or up[0] >= expected:
        return None
    names = " and ".join(f"GPU {gpu.index}" for gpu in whole)
    message = f"{up[0]} of {expected} NVLinks are up between {names}"
    fix = f"{_BRIDGE}; if it is well, reset both GPUs when idle"
    part = PartName(whole[0].part, f"NVLink bridge of {names}")  # the first GPU's, so that it explains the topology's
    return Finding(message, expected=expected, found=up[0], unit="links", fix=fix, part=part)


def _judge(gpu: Gpu, of: GpuLinks, profile: Profile, *, is_counted: bool) -> Iterator[Finding | Unknown]:
    expected, gb_per_s = profile["nvlink.links"], profile["nvlink.gb_per_s"]
    if of.unread:
        yield Unknown(f"the NVLinks of {gpu.label} cannot be read: {of.unread}")
    rates = {link.index: link.gb_per_s for link in of.links if link.gb_per_s}
    down = ", ".join(str(link.index) for link in of.links if link.index not in rates)
    reset = f"reset GPU {gpu.index} (nvidia-smi --gpu-reset -i {gpu.index}) when idle"
    fix = f"{reset}; if that does not help, {_hardware(gpu, profile)}"
    if not rates and _hardware(gpu, profile) == _BRIDGE:  # one seat holds all of them
        fix = f"{_BRIDGE}; if it is well, {reset}"
    if is_counted and len(rates) < expected and (down or not of.unread):
        which = f" (down: {down})" if down else ""
        message = f"{len(rates)} of {expected} NVLinks are up{which}"
        yield Finding(message, expected=expected, found=len(rates), unit="links", fix=fix, part=gpu.part)
    slow = {index: rate for index, rate in rates.items() if rate < gb_per_s * _ROUNDING}
    if slow:
        worst = min(slow.values())
        message = f"NVLink {', '.join(map(str, slow))} runs at {worst:g} of {gb_per_s:g} GB/s"
        yield Finding(message, expected=gb_per_s, found=worst, unit="GB/s", fix=fix, part=gpu.part)


def _hardware(gpu: Gpu, profile: Profile) -> str:
    """Return what to do with the part that carries the links."""
    if profile.get("nvlink.domain_gpus"):
        return "reseat the compute tray, then have the rack's NVLink cable cartridge and NVLink switch tray inspected"
    is_on_board = profile.get("nvswitch") or "SXM" in (gpu.name or "")
    return "reseat or replace the baseboard" if is_on_board else _BRIDGE
