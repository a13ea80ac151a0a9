"""The files of a new project: settings, an inventory of its hosts, and a fabfile."""

from __future__ import annotations

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from gpuops.document import Where
from gpuops.errors import InputError
from gpuops.inventory.names import check_host

_SETTINGS = """\
# The settings of this project; gpuops --help lists the commands that read them.
inventory: inventory.yml
# scheduler: slurm             # or kubernetes, or none: how drain and onboard keep jobs from starting
# profiles, checks, playbooks and templates of your own are files in folders of these names
"""
_INVENTORY = """\
# The hosts, in Ansible's own format. To check it: gpuops inventory check
all:
  vars:
    # ansible_user: ops
    # ansible_ssh_private_key_file: ~/.ssh/cluster
    # bmc_user: monitor        # and bmc_address for each host: sensors, logs and power supplies over Redfish
{profile}  hosts:
{hosts}
"""
_FABFILE = """\
from gpuops.fabfile import namespace  # noqa: F401 - every task and probe for fab: fab --list
"""


def files_of_project(hosts: str, profile: str = "") -> dict[str, str]:
    """Return the text of each file by name; raise `InputError` if ``hosts`` is no list of names like ``gpu[01-16]``."""
    try:
        names = NodeSet(hosts, resolver=RESOLVER_NOGROUP)
    except NodeSetException as error:
        raise InputError(f"{hosts}: expected host names like gpu[01-16],login1: {error}") from error
    for name in names:
        check_host(name, Where("HOSTS"))
    pieces = map(str, names.contiguous())
    lines = "\n".join(f"    {piece.replace('-', ':') if '[' in piece else piece}:" for piece in pieces)
    own = (
        f"    profile: {profile}\n"
        if profile
        else "    # profile: hgx-h100         # the expected machine: gpuops profiles list\n"
    )
    return {
        "gpuops.yml": _SETTINGS,
        "inventory.yml": _INVENTORY.format(profile=own, hosts=lines),
        "fabfile.py": _FABFILE,
    }
