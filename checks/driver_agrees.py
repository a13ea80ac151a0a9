"""Every node runs the same driver version as most nodes of its profile."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.judging.majority import FEWEST_NODES, majority, nodes_by_value, split
from gpuops.probes.nvidia.driver import Driver, driver


@check(
    needs=driver,
    scope="group",
    severity="reboot",
    tags=("quick", "driver"),
    catches="a node that missed an update, or got one too early: mixed drivers hang collectives or lower their speed",
    fix="install the version of the other nodes and reboot",
)
def driver_agrees(loaded: dict[str, Driver], _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """The majority of at least three nodes decides; without a majority, the split is reported and no node is blamed.

    Source of the rule: GoogleCloudPlatform/cluster-health-scanner, config differ; no golden version is needed.
    """
    if len(loaded) == 1:
        yield NotApplicable("there is no other node of this profile to compare with")
    version_by_node = {node: driver.loaded_version for node, driver in loaded.items()}
    nodes = nodes_by_value(version_by_node)
    if len(nodes) <= 1:
        return
    usual = majority(version_by_node.values(), fewest=FEWEST_NODES)
    if not usual:
        fix = "choose one version and install it on the other nodes"
        found = split(nodes)
        yield Finding(f"split: {found}", expected="one version", found=found, fix=fix, part="driver", severity="warn")
        return
    for node, here in version_by_node.items():
        if here != usual.value:
            message = f"{here} here, {usual.value} on {usual.count} of {usual.total} nodes"
            fix = f"install driver {usual.value} on {node} and reboot it"
            yield Finding(message, expected=usual.value, found=here, fix=fix, part="driver", host=node)
