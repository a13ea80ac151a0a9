"""The lab's background process: an SSH server for each host, and two control sockets.

Programs whose output no shim has found yet ask through the mailbox, or through ``ask.sock`` if their words do not fit
there. ``control.sock``, for the lab's owner only, changes faults.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncssh

from gpuops.errors import GpuopsError, InputError
from gpuops.lab.collective.running import COLLECTIVE, Collectives
from gpuops.lab.faults.catalogue import faulted, split
from gpuops.lab.faults.gpu import loaded
from gpuops.lab.identity import counted, identity, personalize
from gpuops.lab.inventory import inventory
from gpuops.lab.listening import Access, Listener
from gpuops.lab.machine import healthy
from gpuops.lab.mailbox import Mailbox
from gpuops.lab.management import Management
from gpuops.lab.model import Changes, Node
from gpuops.lab.mutations import IDLE, bare_node, changed, rebooted
from gpuops.lab.places import Places
from gpuops.lab.ports import listening_range
from gpuops.lab.sandbox import UP_SECONDS, Sandbox, shell_user, with_times
from gpuops.lab.session import run_command
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.programs import PROGRAMS, run
from gpuops.lab.tools.slurm import QUEUES

_LOOK_SECONDS = 2.0
_REBOOT_SECONDS = 0.5
_LONGEST_NOTE = 400


@dataclass
class LabHost:
    """One host: its port, values, boot, faults and changes, and what its NICs counted.

    ``down``: it was rebooted and is not back yet. ``loads`` counts the programs that use its GPUs.
    """

    listener: Listener
    values: Mapping[str, str]
    booted: float
    faults: tuple[str, ...] = ()
    changes: Changes = field(default_factory=Changes)
    counts: Counter[str] = field(default_factory=Counter)
    down: bool = False
    loads: int = 0

    @property
    def state(self) -> tuple[str, ...]:
        """A key that differs between hosts with different answers."""
        changes = () if self.changes == Changes() else (repr(self.changes),)
        return (*self.faults, *changes, *(("under load",) if self.loads else ()))


@dataclass
class Lab:
    """All hosts of a running lab."""

    machine: str
    places: Places
    sandbox: Sandbox
    hosts: dict[str, LabHost] = field(default_factory=dict)
    booted: float = field(default_factory=lambda: time.time() - UP_SECONDS)
    ends: float = math.inf

    def __post_init__(self) -> None:
        """Create the programs that run on several hosts; they remember earlier runs."""
        self._collectives = Collectives(self)
        self.management = Management(self.node) if healthy(self.machine).bmc else None
        self._rebooting: dict[str, asyncio.Task[None]] = {}

    def add_hosts(self, names: list[str], port_base: int | None, authorized: asyncssh.SSHAuthorizedKeys) -> None:
        """Add a host with a port for each of ``names``."""
        sockets = listening_range(len(names), port_base)
        ports = range(sockets[0].getsockname()[1], sockets[0].getsockname()[1] + len(names))
        access = Access(authorized, ports, self.run, self.sandbox.home)
        for name, port, listening in zip(names, ports, sockets, strict=True):
            values = identity(name, self.booted)
            self.hosts[name] = LabHost(Listener(name, port, listening, access), values, self.booted)

    def node(self, name: str) -> Node:
        """Return the current state of ``name``."""
        host = self.hosts[name]
        node = replace(changed(faulted(self.machine, host.faults), host.changes), booted=host.booted)
        for gpu in node.gpus if host.loads else ():
            node = node.with_gpu(gpu.index, **loaded(gpu))
        return node

    def set_faults(self, name: str, faults: tuple[str, ...]) -> None:
        """Set ``name`` to a healthy node with ``faults``."""
        host = self.hosts[name]
        host.faults, host.changes = faults, replace(host.changes, reset=frozenset())
        self._show(name)
        behaviour = faulted(self.machine, faults).behaviour
        host.listener.behave(behaviour)
        if behaviour.comes_back:
            self._up(name)

    def _show(self, name: str) -> None:
        host, node = self.hosts[name], self.node(name)
        up_since = time.monotonic() - (time.time() - host.booted)
        self.sandbox.show(name, node, host.state, self._values(name, node), up_since)

    def _values(self, name: str, node: Node) -> dict[str, str]:
        """Return the values of a host's tokens: its own, and what its NICs counted."""
        tokens = [counted(nic.name, counter) for nic in node.nics for counter in nic.counts]
        return {**self.hosts[name].values, **{token: str(self.hosts[name].counts[token]) for token in tokens}}

    async def _reboot(self, name: str) -> None:
        """Take the host down, and bring it back a moment later with another boot ID, unless it stays down."""
        host = self.hosts[name]
        self.note(name, "reboot")
        host.listener.stop_listening()
        host.down = True
        host.changes = rebooted(self.node(name), self.sandbox.drop_ins(name), self.sandbox.boot_words(name))
        host.booted = time.time()
        host.values = identity(name, host.booted)
        self.sandbox.forget_run(name)
        self._show(name)
        services = self.node(name).services
        for unit in self.sandbox.units(name):
            if services[unit].enabled == "enabled":
                await self.sandbox.start(name, unit)
        await asyncio.sleep(_REBOOT_SECONDS)
        if self.node(name).behaviour.comes_back:
            self._up(name)

    def _up(self, name: str) -> None:
        host = self.hosts[name]
        if host.down:
            host.down = False
            host.listener.resume_listening()

    def age_nic(self, name: str, nic: str, seconds: float) -> None:
        """Add what the faults of a NIC count in that many seconds of use, at least once each."""
        counts = next(each.counts for each in self.node(name).nics if each.name == nic)
        for counter, per_second in counts.items():
            self.hosts[name].counts[counted(nic, counter)] += max(1, round(seconds * per_second))
        if counts:
            self._show(name)

    def load(self, name: str, *, on: bool) -> None:
        """Make a host's GPUs show load, or none once no program uses them."""
        self.hosts[name].loads += 1 if on else -1
        self._show(name)

    def note(self, name: str, line: str) -> None:
        """Log a program that runs without a shim of its own to a host's audit log."""
        with self.sandbox.audit(name).open("a", encoding="utf-8") as log:
            log.write(f"{' '.join(line.split())[:_LONGEST_NOTE]}\n")

    async def run(self, process: asyncssh.SSHServerProcess[bytes], name: str) -> None:
        """Run a session's command on host ``name``."""
        self.note(name, f"ssh {process.command or ''}")
        await run_command(process, self.sandbox, name, self.node(name).behaviour)

    async def answer(self, question: Mapping[str, Any]) -> dict[str, object]:
        """Return what a program prints on a host."""
        name, program, words = question["host"], question["program"], question["words"]
        if name not in self.hosts or program not in self._programs(name):
            return Answer(err=f"{program}: not found\n", code=127).printed
        if program in COLLECTIVE:
            return (await self._collectives.run(program, words, name, question["settings"])).printed
        if program in QUEUES:
            return QUEUES[program]({each: self.node(each) for each in self.hosts}, words).printed
        return self._rendered(name, program, words, root=question["root"])

    def _programs(self, name: str) -> tuple[str, ...]:
        """Return the programs that are installed on a host beyond the basic ones."""
        return (*PROGRAMS, *COLLECTIVE, *(QUEUES if "slurmd" in self.node(name).services else ()))

    def _rendered(self, name: str, program: str, words: list[str], *, root: bool) -> dict[str, object]:
        """Return what a program prints; stored for all hosts in the same state."""
        host, node = self.hosts[name], self.node(name)
        answer = run(node, program, words, root=root)
        key = "|".join([f"sudo|{program}" if root else program, *words])
        if answer.becomes is not None:
            host.changes = answer.becomes
            self._show(name)
        elif answer.rereads:
            self._reread_units(name)
        elif answer.reboots:
            self._rebooting[name] = asyncio.ensure_future(self._reboot(name))
        else:
            self.sandbox.keep(host.state, key, answer)
        skew, values = node.behaviour.clock_skew_seconds, self._values(name, node)
        out, err = (with_times(personalize(text, values), skew) for text in (answer.out, answer.err))
        return {"out": out, "err": err, "code": answer.code}

    def _reread_units(self, name: str) -> None:
        """Add the units that were written to the host's /etc."""
        host, services = self.hosts[name], self.node(name).services
        fresh = dict.fromkeys((unit for unit in self.sandbox.units(name) if unit not in services), IDLE)
        host.changes = replace(host.changes, services={**host.changes.services, **fresh})
        self._show(name)

    async def control(self, order: Mapping[str, Any]) -> dict[str, object]:
        """Add faults, clear hosts, set when the lab ends, or only report; return each host's port and faults."""
        try:
            changes = self._changes(order)
        except InputError as error:
            return {"error": str(error)}
        self.end_after(order.get("minutes"))
        for name, faults in changes.items():
            self.set_faults(name, faults)
        if self.places.inventory.exists() and healthy(self.machine).power:
            _hand_out(self, next(iter(self.hosts.values())).listener.port)  # the owner notes down what was rewired
        return {"hosts": {n: {"port": h.listener.port, "faults": h.faults} for n, h in self.hosts.items()}}

    def end_after(self, minutes: float | None) -> None:
        """Let the lab end that many minutes from now; None changes nothing."""
        if minutes is not None:
            self.ends = time.monotonic() + 60 * minutes

    def _changes(self, order: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        changes: dict[str, tuple[str, ...]] = dict.fromkeys(order.get("clear", ()), ())
        for text in order.get("faults", ()):
            name, fault = split(text, self.hosts)
            present = changes.get(name, self.hosts[name].faults)
            changes[name] = present if fault in present else (*present, fault)
            faulted(self.machine, changes[name])  # an impossible fault is refused before anything changes
        return changes


def serve(settings: Mapping[str, Any], ready: Callable[[dict[str, object]], None]) -> None:
    """Run a lab until it is stopped; ``ready`` is called once, with its first port or an error."""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
        _raise_limit(limit)
    asyncssh.set_log_level("ERROR")
    os.umask(0o022)  # the hosts' user must be able to read what is created here
    try:
        sandbox = Sandbox(Path(settings["sandbox"]), shell_user())
    except (GpuopsError, OSError, subprocess.SubprocessError) as error:
        ready({"error": str(error)})
        return
    try:
        asyncio.run(_serve(settings, sandbox, ready))
    finally:
        sandbox.remove()


def _raise_limit(limit: int) -> None:
    _, hard = resource.getrlimit(limit)
    soft = hard if hard != resource.RLIM_INFINITY else (1 << 20 if limit == resource.RLIMIT_NOFILE else hard)
    try:
        resource.setrlimit(limit, (soft, hard))
    except (ValueError, OSError):
        return  # macOS caps open files below the limit that it reports; a small lab works anyway


async def _serve(settings: Mapping[str, Any], sandbox: Sandbox, ready: Callable[[dict[str, object]], None]) -> None:
    places = Places(Path(settings["folder"]))
    lab = Lab(settings["machine"], places, sandbox)
    try:
        await _bring_up(lab, settings)
    except (InputError, OSError) as error:
        ready({"error": str(error)})
        return
    await _listen(sandbox.root / "ask.sock", sandbox.user.uid, lab.answer)
    Mailbox(sandbox.root, sandbox.user, lab.answer)
    await _listen(sandbox.root / "control.sock", os.geteuid(), lab.control)
    first = next(iter(lab.hosts.values())).listener.port
    _hand_out(lab, first)
    ready({"port": first})
    lab.end_after(settings["minutes"])
    await _until_ended(lab)
    for host in lab.hosts.values():
        host.listener.close()


async def _bring_up(lab: Lab, settings: Mapping[str, Any]) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519", comment="gpuops lab")
    lab.places.key.touch(mode=0o600)
    lab.places.key.write_bytes(key.export_private_key())
    authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())
    names = settings["names"]
    lab.add_hosts(names, settings["port_base"], authorized)
    if lab.management:
        await lab.management.start(names, lab.places.bmc_password)
    for host in lab.hosts.values() if settings["bare"] else ():
        host.changes = bare_node(healthy(lab.machine))
    refused = (await lab.control({"faults": settings["faults"], "clear": names})).get("error")
    if refused:
        raise InputError(str(refused))


async def _listen(path: Path, uid: int, answer: Callable[[dict[str, Any]], Awaitable[dict[str, object]]]) -> None:
    """Answer JSON lines on a Unix socket that only the user ``uid`` can use."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if line:
            writer.write(json.dumps(await answer(json.loads(line))).encode())
        writer.close()

    await asyncio.start_unix_server(one, path, backlog=1024, limit=1 << 20)
    _give(path, uid)


def _give(path: Path, uid: int) -> None:
    path.chmod(0o600)
    os.chown(path, uid, -1)


def _hand_out(lab: Lab, first_port: int) -> None:
    """Write the client's files: known hosts and an inventory."""
    places = lab.places
    places.known_hosts.write_text("".join(h.listener.known_hosts_line for h in lab.hosts.values()), encoding="utf-8")
    power = {name: lab.node(name).power for name in lab.hosts}
    bmc = lab.management.access if lab.management else None
    text = inventory(lab.machine, list(lab.hosts), first_port, places, power, bmc)
    places.inventory.write_text(text, encoding="utf-8")


async def _until_ended(lab: Lab) -> None:
    """Wait for a signal, until the lab's directory is deleted, or until its time is over."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    while lab.places.present and time.monotonic() < lab.ends:
        try:
            await asyncio.wait_for(ended.wait(), _LOOK_SECONDS)
        except asyncio.TimeoutError:
            continue
        return
