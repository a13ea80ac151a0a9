"""Every GPU multiplies and copies as fast as the other GPUs of its node."""

from collections.abc import Iterator
from dataclasses import replace

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, dcgm_diag
from gpuops.probes.nvidia.gpu_speeds import (
    FAIL_RATIO,
    HOST_COPIES,
    MEMORY,
    MULTIPLICATION,
    WARN_RATIO,
    Speeds,
    gpu_speeds,
)
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths, gpu_bandwidths


@check(
    needs=(gpus, dcgm_diag, gpu_bandwidths),
    tolerates=(dcgm_diag, gpu_bandwidths),
    uses=("pcie.host_gb_per_s",),
    severity="fail",
    tags=("burnin", "gpu", "memory", "pcie", "nvidia-smi"),
    applies_to="machines with DCGM or nvbandwidth installed",
    catches="a GPU at a third of its speed, which passes the longest diagnosis and slows down every job",
    fix="look at its power limit, temperature and PCIe link; reset it and measure again; if it stays, replace it",
)
def gpu_speed(
    gpus: tuple[Gpu, ...],
    diagnosis: DcgmDiagnosis | Unknown,
    bandwidths: GpuBandwidths | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """A GPU warns below 95 percent of the median of its node, and fails below 90 percent.

    The figures are those of ``dcgmi diag``, which does not compare them, and of nvbandwidth. Slow copies from and to
    the host only warn, because they also depend on the CPU's memory; below the minimum of the profile
    (``pcie.host_gb_per_s``) they fail. Source: NVIDIA/DCGM, issue 122 (6,698 of 19,200 GFLOPS passed level 4; the
    healthy spread), and issue 215 (DCGM 4 leaves out figures); superbench, data-diagnosis.md, and huggingface/gpu-fryer
    (5 and 10 percent); Azure/azurehpc-health-checks (the floors).
    """
    speeds = list(gpu_speeds(gpus, diagnosis, bandwidths))
    part_by_index = {gpu.index: gpu.part for gpu in gpus}
    for each in speeds:
        for index, figure in each.figures.items():
            yield from _judge(each, figure, part_by_index[index], profile.get("pcie.host_gb_per_s", 0.0))
    yield from (value for value in (diagnosis, bandwidths) if isinstance(value, Unknown))
    yield from _unmeasured(speeds, gpus, diagnosis, bandwidths)


def _judge(speeds: Speeds, figure: float, part: str, floor: float) -> Iterator[Finding]:
    is_host_copy = speeds.name in HOST_COPIES
    ratio = figure / speeds.usual if speeds.usual else 0.0
    if is_host_copy and figure < floor:
        message = f"{speeds.name} at {figure:g} {speeds.unit}, expected {floor:g} at least"
        fix = "compare its PCIe link with those of the other GPUs; reseat the GPU or its riser"
        yield Finding(message, expected=floor, found=figure, unit=speeds.unit, part=part, fix=fix, code=speeds.name)
    elif ratio < WARN_RATIO:
        message = f"{speeds.name} at {figure:g} {speeds.unit}, {ratio:.0%} of its node's GPUs"
        finding = Finding(message, expected=speeds.usual, found=figure, unit=speeds.unit, part=part, code=speeds.name)
        yield replace(finding, severity="warn") if is_host_copy or ratio >= FAIL_RATIO else finding


def _unmeasured(
    speeds: list[Speeds],
    gpus: tuple[Gpu, ...],
    diagnosis: DcgmDiagnosis | Unknown,
    bandwidths: GpuBandwidths | Unknown,
) -> Iterator[Unknown | NotApplicable]:
    """Yield what a program that ran did not measure, or that neither is installed."""
    installed = [value for value in (diagnosis, bandwidths) if not isinstance(value, Unknown) and value.installed]
    whole = {gpu.index for gpu in gpus if not gpu.mig_mode}
    if not installed and not isinstance(diagnosis, Unknown) and not isinstance(bandwidths, Unknown):
        yield NotApplicable("neither dcgmi nor nvbandwidth is installed")
    elif not whole:
        yield NotApplicable("every GPU is split by MIG")
    expected = {MULTIPLICATION: diagnosis, MEMORY: bandwidths, HOST_COPIES[0]: bandwidths, HOST_COPIES[1]: bandwidths}
    for name, value in expected.items():
        seen = {index for each in speeds if each.name == name for index in each.figures}
        if value in installed and whole - seen:
            missing = ", ".join(map(str, sorted(whole - seen)))
            yield Unknown(f"no figure for the {name} of GPU {missing}")
