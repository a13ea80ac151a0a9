"""What commands change on a host, and what a reboot makes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpuops.lab.model import Changes, Driver, Node, Service

_DRIVER = re.compile(r"nvidia-(open|driver|headless|dkms|kernel)(-|$)|cuda-drivers$")
FABRIC_MANAGER = "nvidia-fabricmanager"


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
        if name.startswith(FABRIC_MANAGER):
            driver = replace(driver, fabric_manager=bare(version) or None)
    return replace(driver, version=changes.loaded or driver.version)


def bare(version: str) -> str:
    """A package's version without what the distribution puts around it: 580.126.20 of 1:580.126.20-1ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0]


def rebooted(node: Node, sysctls: Mapping[str, str]) -> Changes:
    """What is left of a host's changes after a reboot: the disk, with the ``sysctls`` that its drop-ins set.

    What is enabled runs, and so does the installed driver; a fabric manager of another version fails.
    """
    services = {name: _booted(service) for name, service in node.changes.services.items()}
    manager = node.services.get(FABRIC_MANAGER)
    if manager and manager.enabled == "enabled" and node.driver.fabric_manager != node.driver.userspace:
        services[FABRIC_MANAGER] = replace(manager, active="failed", sub="failed")
    return replace(node.changes, services=services, sysctls=sysctls, loaded=node.driver.userspace)


def _booted(service: Service) -> Service:
    runs = service.enabled == "enabled"
    return replace(service, active="active" if runs else "inactive", sub="running" if runs else "dead")
