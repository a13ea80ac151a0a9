"""The lab's inventory, as a user would write one: nothing in it says that the hosts are not real."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gpuops.lab.machine import healthy
from gpuops.lab.places import Places

_HOSTS_PER_RACK = 4


def inventory(machine: str, names: Sequence[str], first_port: int, places: Places) -> str:
    """YAML that gpuops and Ansible read: address, port, key, profile, rack and the cabling of every host."""
    shared = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "lab",
        "ansible_ssh_private_key_file": str(places.key.absolute()),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={_quoted(str(places.known_hosts.absolute()))}",
        "profile": machine,
    }
    lines = ["all:", "  vars:", *(f"    {name}: {json.dumps(value)}" for name, value in shared.items())]
    rails = [nic for nic in healthy(machine).nics if nic.rail is not None]
    if rails:
        lines.append("    fabric:")
        lines += [f"      {nic.name}: {{rail: {nic.rail}, leaf: L{nic.rail}}}" for nic in rails]
    lines.append("  hosts:")
    for index, name in enumerate(names):
        lines.append(f"    {name}: {{ansible_port: {first_port + index}, rack: rack{index // _HOSTS_PER_RACK + 1}}}")
    return "\n".join([*lines, ""])


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
