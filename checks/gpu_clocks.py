"""No GPU runs at lower clocks than the others."""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.nvidia.gpus import Gpu, gpus

_AT_WORK_PERCENT = 90
_PEERS = 0.9
"""Our own figure: GPUs of one model under the same load differ by a few percent."""
_JUDGED_ELSEWHERE = frozenset(
    {"sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


@check(
    needs=gpus,
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    catches="clocks that were lowered or locked for a test: one slow GPU slows down the whole job",
    fix="nvidia-smi -i GPU -rac, and nvidia-smi -i GPU -rgc",
)
def gpu_clocks(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """Application clocks below the default warn; if all GPUs have them, they are a choice, and one remark on the node.

    Lower clocks under load warn, too.

    Locked clocks show only under load: a GPU at work is below 0.9 of the median of the others at work, although neither
    power nor heat lowers its clocks. Source: facebookresearch/gcm, check_nvidia_smi.py (application clocks are those
    that the cluster expects); NVIDIA NVML API reference, clocks event reasons; for 0.9, our own figure.
    """
    set_clocks = [gpu for gpu in gpus if gpu.application_mhz and gpu.application_mhz_default]
    at_work = [gpu for gpu in gpus if _is_at_work(gpu)]
    if not set_clocks and len(at_work) < 2:
        yield NotApplicable("the driver has no application clocks, and fewer than two GPUs are at work")
    yield from _judge_application_clocks(set_clocks)
    for gpu in at_work:
        others = [other.graphics_mhz or 0 for other in at_work if other is not gpu and other.name == gpu.name]
        usual = median(others) if others else 0
        if (gpu.graphics_mhz or 0) < _PEERS * usual:
            message = f"{gpu.graphics_mhz} MHz at work, the others {usual:.0f} MHz"
            fix = f"nvidia-smi -i {gpu.index} -rgc, and find out what locked its clocks"
            expected = f"at least {_PEERS * usual:.0f}"
            yield Finding(message, expected=expected, found=gpu.graphics_mhz, unit="MHz", fix=fix, part=gpu.part)


def _is_at_work(gpu: Gpu) -> bool:
    reasons = set(gpu.throttle_reasons or ())
    busy = (gpu.utilization_percent or 0) >= _AT_WORK_PERCENT and gpu.graphics_mhz
    return bool(busy) and gpu.throttle_reasons is not None and not reasons & _JUDGED_ELSEWHERE


def _judge_application_clocks(gpus: list[Gpu]) -> Iterator[Finding]:
    usual = Counter((gpu.name, gpu.application_mhz) for gpu in gpus)

    def judge(gpu: Gpu, selection: str) -> Iterator[Finding]:
        clock, default = gpu.application_mhz or 0, gpu.application_mhz_default or 0
        if clock < default:
            chosen = usual[gpu.name, clock] == len(gpus) > 1
            message = f"application clocks of {clock} MHz, by default {default} MHz"
            fix = f"nvidia-smi{selection} -rac"
            yield Finding(
                message,
                expected=default,
                found=clock,
                unit="MHz",
                fix=fix,
                part=gpu.part,
                severity="info" if chosen else "warn",
            )

    yield from judge_alike(gpus, judge)
