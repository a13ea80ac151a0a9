"""All GPUs of a model have the same BAR1 size, and NVLink-C2C connects each to its Grace CPU, if there is one."""

import re
from collections.abc import Iterator
from functools import partial

from gpuops import Finding, Profile, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.nvidia.gpus import Gpu, gpus

_WITH_CPU = re.compile(r"\bG[BH]\d00\b", re.ASCII)
"""GPUs that share a module with a Grace CPU: GH200, GB200, GB300."""


@check(
    needs=gpus,
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    catches="a GPU that adapters cannot read whole (small BAR1), or whose link to the Grace CPU is off",
    fix="compare the GPU's slot in the BIOS with the others; power-cycle the node",
)
def gpus_agree(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding]:
    """Compare BAR1 between GPUs of the same model, and the state of NVLink-C2C between all GPUs.

    A GPU with a smaller BAR1 warns. One with C2C off fails if another GPU has it on. If C2C is off on all GPUs, as it
    may be in a virtual machine, and they have a Grace CPU, that is one warning. Without Grace CPUs, "Disabled" is
    normal: some drivers print it for HGX H100. Source: NVIDIA, GPUDirect RDMA (BAR1 is the window of third-party
    devices); NVIDIA, nvidia-smi manual page, GPU C2C Mode.
    """
    largest: dict[str | None, int] = {}
    for gpu in gpus:
        largest[gpu.name] = max(largest.get(gpu.name, 0), gpu.bar1_total_mib or 0)
    for gpu in gpus:
        usual = largest[gpu.name]
        if gpu.bar1_total_mib is not None and gpu.bar1_total_mib < usual:
            yield _bar1(gpu, gpu.bar1_total_mib, usual)
    yield from judge_alike(gpus, partial(_c2c, has_link=any(gpu.c2c_mode for gpu in gpus)))


def _c2c(gpu: Gpu, _selection: str, *, has_link: bool) -> Iterator[Finding]:
    if gpu.c2c_mode is False and (has_link or _WITH_CPU.search(gpu.name or "")):
        fix = "power-cycle the node; if the link stays off, have the module replaced"
        yield Finding(
            "its link to the CPU (NVLink-C2C) is off",
            expected="Enabled",
            found="Disabled",
            fix=fix,
            part=gpu.part,
            severity="fail" if has_link else None,
            code="c2c",
        )


def _bar1(gpu: Gpu, found: int, usual: int) -> Finding:
    message = f"its BAR1 has {found} MiB; that of another GPU of this model has {usual}"
    fix = "switch on Above 4G Decoding and Resizable BAR for its slot in the BIOS, and power-cycle the node"
    return Finding(message, expected=usual, found=found, unit="MiB", fix=fix, part=gpu.part, code="bar1")
