"""Changes that commands make on a host, and what a reboot leaves of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpuops.lab.model import Changes, Driver, Gpu, Node, Service
from gpuops.lab.tools.debian import packages
from gpuops.lab.tools.repositories import cuda_of_branches

FABRIC_MANAGER = "nvidia-fabricmanager"
_DRIVER = re.compile(r"nvidia-(open|driver(?!-pinning)|headless|dkms|kernel)(-|$)|cuda-drivers$")
_MANAGER = re.compile(FABRIC_MANAGER)
_DAEMON = "nvidia-persistenced"
_UNITS = (
    (_DRIVER, _DAEMON),
    (_MANAGER, FABRIC_MANAGER),
    (re.compile("chrony$"), "chronyd"),
    (re.compile("datacenter-gpu-manager(-4-core)?$"), "nvidia-dcgm"),
    (re.compile("doca-ofed$"), "openibd"),
    (re.compile("nvidia-container-toolkit-base$"), "nvidia-cdi-refresh.path"),
)
"""The services that packages install."""
IDLE = Service("inactive", "dead", "disabled")
"""A unit that was never started."""


def changed(node: Node, changes: Changes) -> Node:
    """Return ``node`` after ``changes``."""
    installed = {**packages(node), **changes.packages} if changes.packages else node.packages
    services = _units({**node.services, **changes.services}, changes.packages)
    return replace(
        node,
        packages={name: version for name, version in installed.items() if version},
        services=services,
        sysctls={**node.sysctls, **changes.sysctls},
        cmdline=node.cmdline if changes.cmdline is None else changes.cmdline,
        gpus=tuple(_reset(gpu) if gpu.index in changes.reset else gpu for gpu in node.gpus),
        driver=_driver(node.driver, changes, keeps=services.get(_DAEMON, IDLE).active == "active"),
        changes=changes,
    )


def _reset(gpu: Gpu) -> Gpu:
    """Return a GPU after a reset: pending row remappings are done, volatile counters restart, aggregate ones stay."""
    before = gpu.ecc_uncorrectable_before_reset + gpu.ecc_uncorrectable
    return replace(gpu, remap_pending=False, ecc_uncorrectable=0, ecc_uncorrectable_before_reset=before)


def _units(services: Mapping[str, Service], packages: Mapping[str, str]) -> dict[str, Service]:
    """Return the units that exist after ``packages`` were installed and removed."""
    units = dict(services)
    for kind, unit in _UNITS:
        versions = [version for name, version in packages.items() if kind.match(name)]
        if any(versions):
            units.setdefault(unit, IDLE)
        elif versions:
            units.pop(unit, None)
    return units


def _driver(driver: Driver, changes: Changes, *, keeps: bool) -> Driver:
    """Return the driver: packages change the disk at once, the module at boot; a daemon ``keeps`` GPUs initialized."""
    userspace = _brought(_DRIVER, changes.packages, driver.userspace)
    return replace(
        driver,
        version=driver.version if changes.loaded is None else changes.loaded,
        userspace=userspace,
        fabric_manager=_brought(_MANAGER, changes.packages, driver.fabric_manager or "") or None,
        cuda=cuda_of_branches().get(userspace.partition(".")[0], driver.cuda),
        persistence=driver.persistence or keeps,
        open=driver.open or any(v and _DRIVER.match(name) and "open" in name for name, v in changes.packages.items()),
    )


def _brought(kind: re.Pattern[str], packages: Mapping[str, str], before: str) -> str:
    """Return the version of installed packages of a ``kind``; empty if all were removed, ``before`` if unchanged."""
    versions = [bare(version) for name, version in packages.items() if kind.match(name)]
    return next((version for version in reversed(versions) if version), "") if versions else before


def bare(version: str) -> str:
    """Return a version without the distribution's additions: 580.126.20 of 1:580.126.20-1ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0]


def bare_node(node: Node) -> Changes:
    """Return the changes that make ``node`` a bare one: no package of interest, and no driver loaded."""
    removed = dict.fromkeys(packages(node), "")
    kept = _units(node.services, removed)
    return Changes(packages=removed, services={unit: IDLE for unit in node.services if unit not in kept}, loaded="")


def rebooted(node: Node, sysctls: Mapping[str, str], cmdline: str) -> Changes:
    """Return what remains of a host's changes after a reboot: the disk, with the ``sysctls`` of its drop-ins.

    Enabled units run, and so does the installed driver, on GPUs that are reset; a fabric manager of another version
    fails.
    """
    services = {name: _booted(service) for name, service in node.changes.services.items()}
    manager = node.services.get(FABRIC_MANAGER)
    if manager and manager.enabled == "enabled" and node.driver.fabric_manager != node.driver.userspace:
        services[FABRIC_MANAGER] = replace(manager, active="failed", sub="failed")
    fresh = frozenset(gpu.index for gpu in node.gpus)
    loaded = node.driver.userspace
    return replace(node.changes, services=services, sysctls=sysctls, loaded=loaded, cmdline=cmdline, reset=fresh)


def _booted(service: Service) -> Service:
    runs = service.enabled == "enabled"
    return replace(service, active="active" if runs else "inactive", sub="running" if runs else "dead")
