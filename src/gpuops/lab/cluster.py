"""Starts and stops a lab, and changes it while it runs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuops.errors import GpuopsError, InputError, MissingError, did_you_mean
from gpuops.interpreter import calling_main
from gpuops.lab.faults.catalogue import faulted, split
from gpuops.lab.machine import healthy
from gpuops.lab.places import Places
from gpuops.lab.sandbox import make_root, remove

MOST_HOSTS = 4000
_START_SECONDS = 120.0
_BANNER_SECONDS = 20.0
_END_SECONDS = 10.0


@dataclass(frozen=True)
class LabHost:
    """One host of a running lab."""

    name: str
    port: int
    faults: tuple[str, ...]


def host_names(count: int) -> list[str]:
    """Return gpu01, gpu02 …, as wide as the count needs and at least two digits."""
    width = max(2, len(str(count)))
    return [f"gpu{number:0{width}d}" for number in range(1, count + 1)]


def up(
    folder: Path,
    machine: str,
    count: int,
    faults: Sequence[str],
    port_base: int | None = None,
    *,
    bare: bool = False,
    minutes: float | None = None,
) -> list[LabHost]:
    """Start a lab in ``folder``; return its hosts when the last of them answers.

    ``bare`` hosts have no driver, nor anything that comes with it. After ``minutes`` the lab stops by itself. Raise
    `InputError` for wrong arguments or if a lab runs already, `MissingError` without asyncssh.
    """
    names = _checked(machine, count, faults)
    places = Places(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = places.try_lock()
    if lock is None:
        pid = places.read_state().get("pid", "unknown")
        raise InputError(f"a lab is already running in {folder} (process {pid}); to stop it: gpuops lab down")
    settings: dict[str, Any] = {"folder": str(folder.absolute()), "machine": machine, "names": names}
    settings |= {"port_base": port_base, "bare": bare, "minutes": minutes}
    try:
        _sweep(places)
        _start({**settings, "faults": list(faults)}, places, lock)
        hosts = status(folder)
        _await_banner(hosts, machine)
    except (GpuopsError, OSError, KeyboardInterrupt):  # nothing may be left behind
        _end(places)
        raise
    finally:
        os.close(lock)
    return hosts


def _checked(machine: str, count: int, faults: Sequence[str]) -> list[str]:
    if importlib.util.find_spec("asyncssh") is None:
        raise MissingError("the lab needs asyncssh: pip install 'gpuops[lab]'")
    if not 1 <= count <= MOST_HOSTS:
        raise InputError(f"a lab has 1 to {MOST_HOSTS} hosts, not {count}")
    names = host_names(count)
    healthy(machine)
    faults_by_host: dict[str, tuple[str, ...]] = {}
    for text in faults:
        name, fault = split(text, names)
        faults_by_host[name] = (*faults_by_host.get(name, ()), fault)
        faulted(machine, faults_by_host[name])
    return names


def _start(settings: Mapping[str, Any], places: Places, lock: int) -> None:
    """Start the lab's process, which inherits the lock, and wait until it reports that it is ready."""
    sandbox = str(make_root())
    state = {"sandbox": sandbox, "machine": settings["machine"]}
    places.write_state(state)
    reading, writing = os.pipe()
    words = json.dumps({**settings, "sandbox": sandbox, "report": writing})
    with places.log.open("wb") as log:
        server = subprocess.Popen(
            [*calling_main("gpuops.lab.background"), words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(writing, lock),
            env={**os.environ, "TMPDIR": sandbox},  # asyncssh's import runs gcc, which leaves a file if it is killed
        )
    places.write_state({**state, "pid": server.pid})
    os.close(writing)
    news = _news(reading, server, places)
    places.write_state({**state, "pid": server.pid, "port": news["port"]})


def _news(report: int, server: subprocess.Popen[bytes], places: Places) -> dict[str, Any]:
    """Return what the new process reports: its first port, or why there is no lab."""
    text = b""
    deadline = time.monotonic() + _START_SECONDS
    with os.fdopen(report, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            more = pipe.read(65536)
            if not more:
                break
            text += more
    if not text:
        last = (places.log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise InputError(f"the lab's process {server.pid} did not start: {last}")
    news: dict[str, Any] = json.loads(text)
    if "error" in news:
        raise InputError(str(news["error"]))
    return news


def _await_banner(hosts: Sequence[LabHost], machine: str) -> None:
    """Wait until the last of the hosts that can answer at once does."""
    for host in reversed(hosts):
        behaviour = faulted(machine, host.faults).behaviour
        if behaviour.connection in ("good", "wrong-key") and not behaviour.banner_delay_seconds:
            with socket.create_connection(("127.0.0.1", host.port), _BANNER_SECONDS) as connection:
                if connection.recv(4) == b"SSH-":
                    return
            raise InputError(f"the lab's host {host.name} does not answer on port {host.port}")


def status(folder: Path) -> list[LabHost]:
    """Return the hosts of the lab that runs in ``folder``; raise `InputError` if none does."""
    return _order(folder, {})


def inject(folder: Path, faults: Sequence[str]) -> list[LabHost]:
    """Inject further ``faults`` into a running lab; all or none."""
    return _order(folder, {"faults": list(faults)})


def end_after(folder: Path, minutes: float) -> list[LabHost]:
    """Let a running lab stop by itself that many minutes from now."""
    return _order(folder, {"minutes": minutes})


def audit(folder: Path, name: str) -> list[str]:
    """Return everything that was run on host ``name`` since the lab started, one line each."""
    _require_hosts(folder, [name])
    return Path(Places(folder).read_state()["sandbox"], "hosts", name, "audit").read_text("utf-8").splitlines()


def clear(folder: Path, names: Sequence[str]) -> list[LabHost]:
    """Make the named hosts healthy again; all hosts if none is named."""
    all_names = _require_hosts(folder, names)
    return _order(folder, {"clear": list(names) or all_names})


def _require_hosts(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the names of all hosts; raise `InputError` if one of ``names`` is not among them."""
    all_names = [host.name for host in status(folder)]
    for name in names:
        if name not in all_names:
            raise InputError(f'the lab has no host "{name}"{did_you_mean(name, all_names)}')
    return all_names


def down(folder: Path) -> bool:
    """Stop the lab in ``folder`` and remove what it created; return False if there was none."""
    places = Places(folder)
    if not places.lock.exists():
        return False
    lock = places.try_lock()
    state = places.read_state()
    if lock is None:
        _end(places)
        return True
    # its process has ended: remove what it left
    _sweep(places)
    places.clear()
    os.close(lock)
    return bool(state)


def _order(folder: Path, order: Mapping[str, object]) -> list[LabHost]:
    places = Places(folder)
    sandbox = places.read_state().get("sandbox")
    if not sandbox:
        raise InputError(f"no lab is running in {folder}; to start one: gpuops lab up")
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(_START_SECONDS)
            control.connect(str(Path(sandbox) / "control.sock"))
            control.sendall(json.dumps(order).encode() + b"\n")
            with control.makefile("rb") as answer:
                news = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise InputError(f"the lab in {folder} has ended ({error}); to clean up: gpuops lab down") from error
    if "error" in news:
        raise InputError(str(news["error"]))
    return [LabHost(name, host["port"], tuple(host["faults"])) for name, host in news["hosts"].items()]


def _end(places: Places) -> None:
    """End the process that holds the lock, if there is one yet, and remove all that a lab creates."""
    pid = int(places.read_state().get("pid", 0))
    for number in (signal.SIGTERM, signal.SIGKILL) if pid else ():
        try:
            os.killpg(pid, number)  # with what it has started meanwhile, which may still write
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group that has ended
            break
        if _gone(pid, places):
            break
    _sweep(places)
    places.clear()


def _gone(pid: int, places: Places) -> bool:
    """Return True if the process ends within some seconds, as its lock or its exit status shows; its pid may linger."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        lock = places.try_lock()
        if lock is not None:
            os.close(lock)
            return True
        time.sleep(0.02)
    return False


def _sweep(places: Places) -> None:
    sandbox = places.read_state().get("sandbox")
    if sandbox:
        remove(Path(sandbox))
