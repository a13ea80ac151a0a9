"""Every node runs the same driver version as most nodes of its profile."""

from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.probes.nvidia.driver import Driver, driver

_FEWEST_NODES = 3
"""If two nodes differ, there is no majority that shows which one is wrong."""


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
    count = Counter(driver.loaded_version for driver in loaded.values())
    if len(loaded) == 1:
        yield NotApplicable("there is no other node of this profile to compare with")
    if len(count) <= 1:
        return
    (version, most), *_ = count.most_common()
    if len(loaded) < _FEWEST_NODES or 2 * most <= len(loaded):
        split = ", ".join(f"{v} on {n}" for v, n in sorted(count.items()))
        fix = "choose one version and install it on the other nodes"
        message = f"split: {split}"
        yield Finding(message, expected="one version", found=split, fix=fix, part="driver", severity="warn")
        return
    for node, driver_there in loaded.items():
        here = driver_there.loaded_version
        if here != version:
            message = f"{here} here, {version} on {most} of {len(loaded)} nodes"
            fix = f"install driver {version} on {node} and reboot it"
            yield Finding(message, expected=version, found=here, fix=fix, part="driver", host=node)
