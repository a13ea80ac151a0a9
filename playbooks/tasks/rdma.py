"""RDMA over InfiniBand or RoCE: the kernel's own stack, or NVIDIA's DOCA."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, Files, Plan, read_files, task, use

_INBOX = {
    "debian": ("rdma-core", "ibverbs-utils", "infiniband-diags", "perftest", "mstflint"),
    "red_hat": ("rdma-core", "libibverbs-utils", "infiniband-diags", "perftest", "mstflint"),
}
_MODULES = ("ib_umad", "ib_uverbs", "rdma_ucm")
_LOADED = "/sys/module/mlx5_core/srcversion"
_OPENIBD = """\
[Unit]
After=systemd-udev-settle.service

[Service]
Restart=on-failure
RestartSec=5
"""


@dataclass(frozen=True)
class Params:
    """``stack`` is inbox or doca. inbox is enough with the GPU driver's open kernel modules and Linux 5.12 (DMA-BUF).

    doca is for nvidia_peermem, SHARP and the newest adapters. Its ``packages`` come from NVIDIA's repository (task
    nvidia_repo), and its kernel modules are built on the node.
    """

    stack: Literal["inbox", "doca"] = "inbox"
    packages: tuple[str, ...] = ("doca-ofed",)


@task
def rdma(params: Params) -> Plan:
    """Programs can use the adapters, now and after every boot; firmware stays, and no subnet manager is started.

    Install DOCA before the GPU driver, because the driver's nvidia_peermem is built for it. DOCA's modules are loaded
    at the next boot, because loading them now could break this connection. An older MLNX_OFED must be removed first.
    """
    dpkg, ofed = yield (Command(("dpkg-query", "--version")), Command(("ofed_info", "-s")))
    if params.stack == "inbox":
        yield from use("package", names=_INBOX["red_hat" if dpkg.missing else "debian"])
        for module in _MODULES:
            yield from use("kernel_module", name=module)
    elif "MLNX_OFED" in ofed.out:
        yield Failed(f"{ofed.last_words()} is installed: run /usr/sbin/ofed_uninstall.sh --force, and reboot")
    else:
        yield from use("kernel_headers")
        yield from use("package", names=params.packages)
        if not ofed.missing:
            yield from _installed(module="mlnx-ofa_kernel" if dpkg.missing else "mlnx-ofed-kernel")


def _installed(module: str) -> Plan:
    """Verify that DOCA's modules are built, enabled, and the ones that the kernel runs."""
    yield from use("dkms", module=module)
    yield from use("unit", name="openibd", drop_in="50-gpuops", content=_OPENIBD)
    yield from use("service", name="openibd", enabled=True)
    disk, files = yield (Command(("modinfo", "-F", "srcversion", "mlx5_core")), Files((_LOADED,)))
    loaded = read_files(files.out).get(_LOADED, "").strip()
    if loaded and loaded != disk.out.strip():
        yield from use("reboot_required", reason="doca")
