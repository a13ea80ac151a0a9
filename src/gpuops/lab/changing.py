"""What commands change on a host, and what a reboot makes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpuops.lab.model import Changes, Driver, Node, Service

_DRIVER = re.compile(r"nvidia-(open|driver|headless|dkms|kernel)(-|$)|cuda-drivers$")
_FABRIC_MANAGER = "nvidia-fabricmanager"


def changed(node: Node, changes: Changes) -> Node:
    """``node`` after ``changes``."""
    packages = {name: version for name, version in {**node.packages, **changes.packages}.items() if version}
    return replace(
        node,
        packages=packages,
        services={**node.services, **changes.services},
        sysctls={**node.sysctls, **changes.sysctls},
        driver=_driver(node.driver, changes),
        changes=changes,
    )


def _driver(driver: Driver, changes: Changes) -> Driver:
    """What packages bring is on the disk at once, and runs after a reboot."""
    for name, version in changes.packages.items():
        if _DRIVER.match(name) and version:
            driver = replace(driver, userspace=bare(version))
        if name.startswith(_FABRIC_MANAGER):
            driver = replace(driver, fabric_manager=bare(version) or None)
    return replace(driver, version=changes.loaded or driver.version)


def bare(version: str) -> str:
    """A package's version without what the distribution puts around it: 580.126.20 of 1:580.126.20-1ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0]


def rebooted(node: Node, sysctls: Mapping[str, str]) -> Changes:
    """What is left of a host's changes after a reboot: the disk, with the ``sysctls`` that its drop-ins set.

    What is enabled runs, and so does the installed driver.
    """
    services = {name: replace(s, active="active", sub="running") for name, s in _at_boot(node).items()}
    return replace(node.changes, services=services, sysctls=sysctls, loaded=node.driver.userspace)


def _at_boot(node: Node) -> dict[str, Service]:
    return {name: service for name, service in node.changes.services.items() if service.enabled == "enabled"}
