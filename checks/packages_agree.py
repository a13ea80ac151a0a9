"""NCCL, CUDA, the RDMA stack and the container toolkit have the versions of most nodes of the profile."""

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.judging.majority import FEWEST_NODES, majority, nodes_by_value, split
from gpuops.probes.host.packages import packages

_COMPARED = re.compile(
    r"libnccl2|libnccl|libnccl-dev|nvidia-container-toolkit|datacenter-gpu-manager(?:-4-core)?|doca-ofed"
    r"|mlnx-ofed-kernel.*|mlnx-ofa_kernel|nvidia-peermem.*|cuda-runtime-.*"
)
"""Packages in which a difference reaches a job; the driver's are compared by `driver-agrees`."""
_NCCL = re.compile(r"libnccl(?:2|-dev)?")


@check(
    needs=packages,
    scope="group",
    severity="warn",
    tags=("standard", "host"),
    applies_to="three or more nodes of one profile",
    catches="a job that hangs because its nodes have two versions of NCCL, or that fails on one node only",
    fix="install the version of the other nodes",
)
def packages_agree(installed: dict[str, dict[str, str]], _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """The majority of at least three nodes decides. Another version of NCCL fails a node, because it hangs jobs.

    A package that only some nodes have is a warning, because nodes may have different purposes. Jobs in containers
    bring their own NCCL. Source of the rule: GoogleCloudPlatform/cluster-health-scanner, config differ.
    """
    if len(installed) == 1:
        yield NotApplicable("there is no other node of this profile to compare with")
        return
    names = sorted({name for own in installed.values() for name in own if _COMPARED.fullmatch(name)})
    for name in names:
        yield from _judge(name, {node: own.get(name, "not installed") for node, own in installed.items()})


def _judge(name: str, version_by_node: dict[str, str]) -> Iterator[Finding]:
    nodes = nodes_by_value(version_by_node)
    if len(nodes) == 1:
        return
    most = majority(version_by_node.values(), fewest=FEWEST_NODES)
    if not most:
        found = split(nodes)
        fix = f"choose one version of {name} and install it on the other nodes"
        yield Finding(f"split: {name} {found}", expected="one version", found=found, fix=fix, part=name, code=name)
        return
    usual = most.value
    for node, version in version_by_node.items():
        if version != usual:
            is_mixed = _NCCL.fullmatch(name) and "not installed" not in {version, usual}
            message = f"{name}: {version} here, {usual} on {most.count} of {most.total} nodes"
            fix = f"install {name} {usual} on {node}" if usual != "not installed" else f"find out why {node} has {name}"
            told = Finding(message, expected=usual, found=version, fix=fix, part=name, code=name, host=node)
            yield replace(told, severity="fail") if is_mixed else told
