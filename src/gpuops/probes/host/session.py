"""Confinement of this session: a container or a job's cgroup may hide GPUs and processes from it.

``0::/system.slice/slurmstepd.scope/job_42/step_extern`` in /proc/self/cgroup is the cgroup of a Slurm job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_CGROUP, _THREAD_OF_KERNEL = "/proc/self/cgroup", "/proc/2/comm"
_ORDINARY = re.compile(
    r"(?:/(?:(?:user|system|app|session|background|init)\.slice|user-\d+\.slice|user@\d+\.service|session-\w+\.scope"
    r"|init\.scope|(?:ssh|sshd|cron|crond)(?:@[^/]*)?\.service))+"
)
"""Where systemd puts logins and their children; every other path is a manager's that may restrict devices."""


@dataclass(frozen=True)
class Session:
    """This session; ``confined`` is what may hide GPUs and processes from it, empty if nothing does."""

    confined: str = ""


def parse_session(text: str) -> Session | Unknown:
    """Return what confines this session.

    Only the first PID namespace has the kernel's threads, of which 2 is the parent; a container has others there.
    """
    files = read_files(text)
    paths = {line.split(":", 2)[-1] for line in files.get(_CGROUP, "").splitlines()}
    if not paths:
        return Unknown(f"{_CGROUP} cannot be read")
    if files.get(_THREAD_OF_KERNEL, "").strip() != "kthreadd":
        return Session("a container")
    own = sorted(path for path in paths if not _ORDINARY.fullmatch(path) and path != "/")
    if own:
        return Session(f"the cgroup {own[0]}")
    return Session("a cgroup namespace") if paths == {"/"} else Session()


session: Probe[Session] = Probe(
    "session", Files((_CGROUP, _THREAD_OF_KERNEL), limit_bytes=8192), lambda answer: parse_session(answer.out)
)
"""What may hide GPUs and processes of this node from this session."""
