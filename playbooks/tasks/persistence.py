"""Persistence mode: the driver keeps the GPUs initialized while they are not in use."""

from dataclasses import dataclass

from gpuops import Change, Command, Plan, Unknown, task, use
from gpuops.probes.nvidia.nvidia_smi import smi

_UNIT = "nvidia-persistenced"
# distributions start the daemon with --no-persistence-mode
_DROP_IN = "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user root --persistence-mode --verbose\n"


@dataclass(frozen=True)
class Params:
    """No parameters."""


@task
def persistence(_params: Params) -> Plan:
    """NVIDIA's daemon runs, and every GPU reports persistence mode on."""
    yield from use("unit", name=_UNIT, drop_in="50-gpuops", content=_DROP_IN)
    report = yield smi
    off = [] if isinstance(report, Unknown) else [gpu.subject for gpu in report.gpus if gpu.persistence_mode is False]
    if off:
        restart = Command(("systemctl", "restart", "--", f"{_UNIT}.service"), timeout_seconds=180, become="always")
        yield Change(f"restart {_UNIT} (off on {', '.join(off)})", restart)
        yield from use("service", name=_UNIT, enabled=True)
    else:
        yield from use("service", name=_UNIT, state="started", enabled=True)
