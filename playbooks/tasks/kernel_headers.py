"""The headers of the running kernel and of later ones, with which kernel modules are built."""

import re
from dataclasses import dataclass

from gpuops import Command, Failed, Plan, Unknown, task, use
from gpuops.probes.host.system import system


@dataclass(frozen=True)
class Params:
    """No parameters."""


@task
def kernel_headers(_params: Params) -> Plan:
    """The headers match the running kernel; on Debian and Ubuntu, the meta package brings those of new kernels.

    On RHEL and Rocky the package is kernel-devel. If no repository has the headers any more, update the kernel, reboot,
    and run the playbook again. Not tested on a real RHEL or Rocky.
    """
    machine, images = yield (
        system,
        Command(("dpkg-query", "-W", "-f=${Package}\t${db:Status-Abbrev}\n", "linux-image-*")),
    )
    if isinstance(machine, Unknown):
        yield Failed(f"cannot read the kernel's release: {machine.why}")
    elif images.missing:
        yield from _red_hat(machine.kernel)
    else:
        metas = re.findall(r"^linux-image-([a-z][a-z0-9.-]*)\t.i", images.out, re.MULTILINE)
        kinds = sorted({machine.kernel, *(meta for meta in metas if not meta.startswith("unsigned"))})
        yield from use("package", names=[f"linux-headers-{kind}" for kind in kinds])


def _red_hat(kernel: str) -> Plan:
    """Install the headers of exactly this kernel, because several versions can be installed side by side."""
    answer = yield Command(("rpm", "-q", f"kernel-devel-{kernel}"))
    if answer.exit != 0:
        yield from use("package", versions={"kernel-devel": kernel.rpartition(".")[0]})
