"""GPUs in confidential computing accept work, and the nodes of a profile agree on the mode."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.majority import FEWEST_NODES, majority
from gpuops.probes.nvidia.conf_compute import ConfCompute, conf_compute


@check(
    needs=conf_compute,
    scope="group",
    severity="fail",
    tags=("quick", "gpu", "driver", "nvidia-smi"),
    applies_to="machines whose GPUs and driver know confidential computing",
    catches="GPUs that no program can use, because they were not set ready after the boot; a node whose mode differs",
    fix="attest the GPUs, then nvidia-smi conf-compute -srs 1; after each boot, or as a service",
)
def confidential_computing(
    nodes: Mapping[str, ConfCompute], _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """A GPU fails if its mode is not off and it is not ready; a mode that most nodes do not have warns.

    At least three nodes are compared. A GPU that supports confidential computing but does not use it is usually off and
    not ready. Source: NVIDIA, Confidential Computing deployment guide (modes; ``conf-compute -srs 1``), and its GPU
    operator documentation (the words of ``-f`` and ``-grs``).
    """
    if not any(value.supported for value in nodes.values()):
        yield NotApplicable("the driver knows no confidential computing")
    most = majority((value.mode for value in nodes.values()), fewest=FEWEST_NODES)
    for node, value in nodes.items():
        if value.mode != "off" and value.ready is False:
            message = f"confidential computing is {value.mode}, and the GPUs accept no work yet"
            yield Finding(message, expected="ready", found="not ready", part="driver", host=node, code="ready")
        elif value.mode != "off" and value.ready is None:
            yield Unknown(f"{node} does not report whether its GPUs are ready for confidential computing")
        elif most and value.mode != most.value:
            message = f"confidential computing is {value.mode}, {most.value} on {most.count} of {most.total} nodes"
            fix = "choose one mode for these nodes; it is set from the hypervisor or with NVIDIA's gpu-admin-tools"
            yield Finding(
                message,
                expected=most.value,
                found=value.mode,
                part="driver",
                host=node,
                severity="warn",
                fix=fix,
                code="mode",
            )
