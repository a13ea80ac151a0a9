"""The lab's inventory, as a user would write one; nothing in it shows that the hosts are simulated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuops.lab.machine import healthy
from gpuops.lab.places import Places
from gpuops.lab.tools.repositories import FINGERPRINT, URL
from gpuops.profile import load

_REPOSITORIES = ("cuda", "container")
_HOSTS_PER_RACK = 4
_HOSTS_PER_UNIT = 32
"""Hosts whose ports share their leaf switches, as in NVIDIA's DGX SuperPOD reference architecture for H100."""


@dataclass(frozen=True)
class BmcAccess:
    """How the hosts' BMCs are reached: consecutive ports, one user, and the certificate that all of them have."""

    first_port: int
    user: str
    certificate: str


def inventory(
    machine: str,
    names: Sequence[str],
    first_port: int,
    places: Places,
    power: Mapping[str, Mapping[str, Any]] | None = None,
    bmc: BmcAccess | None = None,
) -> str:
    """Return YAML for gpuops and Ansible: address, port, key, BMC, profile, rack and the cabling of every host.

    ``power`` is how each workstation was wired. Groups are the machine (``h100``), its racks (``rack1``) and the units
    whose nodes share leaf switches (``unit1``).
    """
    shared = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "lab",
        "ansible_ssh_private_key_file": str(places.key.absolute()),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={_quoted(str(places.known_hosts.absolute()))}",
        "profile": machine,
        "stack": {f"{name}_repository": {"url": f"{URL}/{name}", "fingerprint": FINGERPRINT} for name in _REPOSITORIES},
    }
    if "gpu.count" not in load(machine).values:
        shared["expect"] = {"gpu.count": len(healthy(machine).gpus)}
    if bmc:
        shared |= {"bmc_user": bmc.user, "bmc_password_file": str(places.bmc_password.absolute())}
        shared |= {"bmc_certificate": bmc.certificate}
    lines = ["all:", "  vars:", *(f"    {name}: {json.dumps(value)}" for name, value in shared.items()), "  children:"]
    for start in range(0, len(names), _HOSTS_PER_UNIT):
        unit = start // _HOSTS_PER_UNIT
        lines += [f"    unit{unit + 1}:", *_cabling(machine, unit), "      hosts:"]
        for index, name in enumerate(names[start : start + _HOSTS_PER_UNIT], start=start):
            rack = index // _HOSTS_PER_RACK + 1
            wired = f", power: {json.dumps(power[name])}" if power and power.get(name) else ""
            managed = f', bmc_address: "127.0.0.1:{bmc.first_port + index}"' if bmc else ""
            lines.append(f"        {name}: {{ansible_port: {first_port + index}, rack: rack{rack}{managed}{wired}}}")
    for start in range(0, len(names), _HOSTS_PER_RACK):
        lines += _group(f"rack{start // _HOSTS_PER_RACK + 1}", names[start : start + _HOSTS_PER_RACK])
    lines += _group(_model(machine), names)
    return "\n".join([*lines, ""])


def _model(machine: str) -> str:
    """Return ``h100`` of ``hgx-h100``, ``gb200`` of ``gb200-nvl72``, ``titan`` of ``titan-rtx-2x``, ``rtx4090``."""
    return re.sub(r"^(hgx|dgx1?)-", "", machine).replace("rtx-", "rtx", 1).split("-", maxsplit=1)[0]


def _group(name: str, hosts: Sequence[str]) -> Iterator[str]:
    yield from (f"    {name}:", "      hosts:")
    yield from (f"        {host}:" for host in hosts)


def _cabling(machine: str, unit: int) -> Iterator[str]:
    """Yield the leaf of each rail; each unit has its own leaves."""
    rails = [nic for nic in healthy(machine).nics if nic.rail is not None]
    if rails:
        yield "      vars:"
        yield "        fabric:"
    for nic in rails:
        yield f"          {nic.name}: {{rail: {nic.rail}, leaf: L{unit * len(rails) + (nic.rail or 0)}}}"


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
