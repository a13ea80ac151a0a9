"""Hosts of the inventory, with everything that a transport needs to reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from gpuops.document import Where
from gpuops.errors import DocumentError
from gpuops.inventory.bmc import Bmc
from gpuops.secret import Secret

Connection = Literal["ssh", "openssh", "local"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Port:
    """One network port of a node as declared in the inventory: its rail number and its leaf switch."""

    rail: int | None = None
    leaf: str | None = None


@dataclass(frozen=True)
class Psu:
    """Power supplies of one kind: watts each, their number, efficiency rating, and whether they are ATX 3."""

    watts: int
    count: int = 1
    rating: str = ""
    atx3: bool = False


@dataclass(frozen=True)
class GpuCable:
    """Power cabling of one GPU: sockets used, plug type, and whether each plug has its own cable."""

    gpu: int
    sockets: int
    type: str
    independent: bool = True


@dataclass(frozen=True)
class Power:
    """Power supply of a workstation as declared in the inventory."""

    psus: tuple[Psu, ...] = ()
    cpu_watts: int | None = None
    gpu_cables: tuple[GpuCable, ...] = ()


@dataclass(frozen=True)
class Host:
    """One node. ``vars`` are all its merged variables, plain or opaque; the typed fields are read from them, strictly.

    ``own_vars`` are those that the inventory sets for this host alone. ``groups`` are ordered from general to specific,
    without ``all``. ``become`` is False if ``ansible_become`` forbids it. ``unusable_reason`` is set if gpuops cannot
    reach the host with these variables (a vaulted address, an unsupported connection type): an error only when used.

    ``address`` is where to connect (``ansible_host``, else the name). None means the value in ``~/.ssh/config``, or the
    default. ``jump`` is ProxyJump's value. ``python`` is the node's interpreter (``ansible_python_interpreter``).
    ``job_address`` and ``job_interface`` are where the ranks of a job on this host meet those of other hosts.
    """

    name: str
    address: str
    origin: Where
    port: int | None = None
    user: str | None = None
    groups: tuple[str, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    own_vars: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    connection: Connection = "ssh"
    key_file: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    ssh_args: tuple[str, ...] = ()
    password: Secret | None = None
    become_password: Secret | None = None
    become: bool | None = None
    python: str | None = None
    profile: str | None = None
    rack: str | None = None
    job_address: str | None = None
    job_interface: str | None = None
    fabric: Mapping[str, Port] = field(default_factory=lambda: _NOTHING, hash=False)
    power: Power | None = None
    bmc: Bmc | None = None
    expect: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    unusable_reason: DocumentError | None = field(default=None, compare=False)
