"""The GPUs of every node are as fast as those of most nodes."""

from collections.abc import Iterator, Mapping
from statistics import median

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.majority import FEWEST_NODES
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, dcgm_diag
from gpuops.probes.nvidia.gpu_speeds import WARN_RATIO, Speeds, gpu_speeds
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths, gpu_bandwidths


@check(
    needs=(gpus, dcgm_diag, gpu_bandwidths),
    tolerates=(dcgm_diag, gpu_bandwidths),
    scope="group",
    severity="warn",
    tags=("burnin", "gpu", "memory", "pcie", "nvidia-smi"),
    applies_to="three or more nodes of one profile with DCGM or nvbandwidth installed",
    catches="a node all of whose GPUs are equally slow: a wrong power mode, a hot aisle, an old BIOS",
    fix="compare power limits, clocks, temperatures and BIOS settings with those of a faster node",
)
def gpu_speeds_agree(
    nodes: Mapping[str, tuple[tuple[Gpu, ...], DcgmDiagnosis | Unknown, GpuBandwidths | Unknown]], _profile: Profile
) -> Iterator[Finding | NotApplicable]:
    """The median of a node's GPUs is at least 95 percent of the median of all nodes with this model of GPU.

    At least three nodes must have been measured. The check `gpu-speed` judges a single slow GPU. Source: superbench,
    data-diagnosis.md (5 percent below the baseline is defective), and the healthy spread in NVIDIA/DCGM, issue 122.
    """
    speeds = {node: list(gpu_speeds(*value)) for node, value in nodes.items()}
    kinds = dict.fromkeys((each.name, each.model) for own in speeds.values() for each in own)
    compared = False
    for kind in kinds:
        own = {node: each for node, of in speeds.items() for each in of if (each.name, each.model) == kind}
        if len(own) >= FEWEST_NODES:
            compared = True
            yield from _slower(own)
    if not compared:
        yield NotApplicable(f"fewer than {FEWEST_NODES} nodes with the same GPUs were measured")


def _slower(speeds: Mapping[str, Speeds]) -> Iterator[Finding]:
    usual = median(each.usual for each in speeds.values())
    for node, each in speeds.items():
        if each.usual < WARN_RATIO * usual:
            message = f"{each.name} at {each.usual:g} {each.unit}, {each.usual / usual:.0%} of {len(speeds)} nodes"
            yield Finding(message, expected=usual, found=each.usual, unit=each.unit, host=node, code=each.name)
