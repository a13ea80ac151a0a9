"""A kernel module that DKMS built for the running kernel. Nothing is changed, because packages build it."""

import re
from dataclasses import dataclass

from gpuops import Command, Failed, Plan, Unknown, task
from gpuops.probes.host.system import system

_LOG = 'for log in /var/lib/dkms/"$1"/*/build/make.log; do tail -n 200 -- "$log"; done'


@dataclass(frozen=True)
class Params:
    """The ``module`` in DKMS's spelling, and its ``version``; without it, any version is accepted."""

    module: str
    version: str = ""


@task
def dkms(params: Params) -> Plan:
    """DKMS has built the module. Without this task, a package may install although its module failed to build.

    If the build failed, the compiler's error is reported.
    """
    machine = yield system
    if isinstance(machine, Unknown):
        yield Failed(f"cannot read the kernel's release: {machine.why}")
    answer = yield Command(("dkms", "status", "-m", params.module, "-k", machine.kernel), timeout_seconds=60)
    # "nvidia/580.126.20, 6.8.0-45-generic, x86_64: installed"; dkms 2 writes "nvidia, 580.126.20, …"
    version = re.escape(params.version) or r"[^,\s]+"
    if not re.search(rf"^{re.escape(params.module)}(?:/|, ){version},.*: installed", answer.out, re.MULTILINE):
        log = yield Command(("sh", "-c", _LOG, "sh", params.module), become="if-refused")
        errors = [line for line in log.out.splitlines() if re.search(r"\berror\b|\*\*\*", line, re.IGNORECASE)]
        error = (errors or [answer.last_words() or "nothing"])[0].strip()
        what = f"{params.module} {params.version}".strip()
        yield Failed(
            f"DKMS has not built {what} for the kernel {machine.kernel}, although its package is installed: {error}"
        )
