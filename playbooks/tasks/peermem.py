"""GPUDirect RDMA through nvidia_peermem, for systems without DMA-BUF."""

from dataclasses import dataclass

from gpuops import Plan, task, use

_AFTER_OPENIBD = "[Service]\nExecStartPost=-/sbin/modprobe nvidia-peermem\n"


@dataclass(frozen=True)
class Params:
    """``openibd`` also loads the module after DOCA's service; without it, a failed first attempt is not repeated."""

    openibd: bool = False


@task
def peermem(params: Params) -> Plan:
    """The module is loaded, now and after every boot; its predecessor nv_peer_mem, which conflicts, is removed.

    With the open kernel modules and Linux 5.12 or later, nvidia_peermem is not needed (task rdma). It needs DOCA,
    installed before the driver; with the kernel's own RDMA stack it cannot be loaded ("Invalid argument", "Unknown
    symbol").
    """
    yield from use("package", names=["nvidia-peer-memory", "nvidia-peer-memory-dkms"], state="absent")
    if params.openibd:
        yield from use("unit", name="openibd", drop_in="60-gpuops-peermem", content=_AFTER_OPENIBD)
    yield from use("kernel_module", name="nvidia_peermem")
