"""The headers of the kernel that runs, and of those that come after it: modules are built with them."""

import re
from dataclasses import dataclass

from gpuops import Command, Failed, Plan, Unknown, task, use
from gpuops.probes.host.system import system


@dataclass(frozen=True)
class Params:
    """There are none: the node knows its kernel."""


@task
def kernel_headers(_params: Params) -> Plan:
    """On Debian and Ubuntu also those of the meta package that brings new kernels; on RHEL and Rocky kernel-devel.

    Where no repository has them any more: update the kernel, reboot, and run this again. Not tried on a real RHEL or
    Rocky.
    """
    machine, images = yield (
        system,
        Command(("dpkg-query", "-W", "-f=${Package}\t${db:Status-Abbrev}\n", "linux-image-*")),
    )
    if isinstance(machine, Unknown):
        yield Failed(f"the node does not tell its kernel's release: {machine.why}")
    elif images.missing:
        yield from _red_hat(machine.kernel)
    else:
        metas = re.findall(r"^linux-image-([a-z][a-z0-9.-]*)\t.i", images.out, re.MULTILINE)
        kinds = sorted({machine.kernel, *(meta for meta in metas if not meta.startswith("unsigned"))})
        yield from use("package", names=[f"linux-headers-{kind}" for kind in kinds])


def _red_hat(kernel: str) -> Plan:
    """Several may be installed beside one another, so this very one is asked for."""
    answer = yield Command(("rpm", "-q", f"kernel-devel-{kernel}"))
    if answer.exit != 0:
        yield from use("package", versions={"kernel-devel": kernel.rpartition(".")[0]})
