"""No GPU needs a reset to repair its memory channels or its processors."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    severity="reset",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    explains=("ecc-uncorrectable", "xid:48", "xid:154", "xid:156", "xid:160", "recovery-action"),
    catches="a damaged memory channel or TPC that stays in use until the GPU is reset",
    fix="reset the GPU when idle, or reboot; if the repair stays pending, take the node out of use",
)
def repair_pending(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Channel Repair Pending and TPC Repair Pending must be No; drivers before release 550 report neither of them.

    Source: NVIDIA NVML API reference, nvmlRepairStatus_t; NVIDIA GPU Memory Error Management (a repair takes effect at
    the next reset of the GPU).
    """
    told = [(gpu, {"channel": gpu.channel_repair_pending, "TPC": gpu.tpc_repair_pending}) for gpu in gpus]
    if all(state is None for _, states in told for state in states.values()):
        yield NotApplicable("nvidia-smi reports no repairs here")
        return
    for gpu, states in told:
        pending = [name for name, state in states.items() if state]
        if pending:
            again = "if the repair stays pending, take the node out of use"
            fix = f"reset GPU {gpu.index} (nvidia-smi --gpu-reset -i {gpu.index}) when idle, or reboot; {again}"
            message = f"a {' and a '.join(pending)} repair is pending"
            yield Finding(message, expected="no", found="yes", fix=fix, part=gpu.part)
        elif None in states.values():
            yield Unknown(f"{gpu.label} does not report whether a repair is pending")
