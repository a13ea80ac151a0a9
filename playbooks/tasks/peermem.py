"""GPUDirect RDMA through nvidia_peermem, for systems without DMA-BUF."""

from dataclasses import dataclass

from gpuops import Plan, task, use

_AFTER_OPENIBD = "[Service]\nExecStartPost=-/sbin/modprobe nvidia-peermem\n"


@dataclass(frozen=True)
class Params:
    """``openibd`` loads the module again after DOCA's service; otherwise a failed first attempt is not repeated."""

    openibd: bool = False


@task
def peermem(params: Params) -> Plan:
    """The module is loaded, now and after every boot; its predecessor nv_peer_mem, which conflicts, is removed.

    The open kernel modules with Linux 5.12 or later do not need it (task rdma). It needs DOCA, installed before the
    driver: with the kernel's own stack it cannot be loaded ("Invalid argument", "Unknown symbol").
    """
    yield from use("package", names=["nvidia-peer-memory", "nvidia-peer-memory-dkms"], state="absent")
    if params.openibd:
        yield from use("unit", name="openibd", drop_in="60-gpuops-peermem", content=_AFTER_OPENIBD)
    yield from use("kernel_module", name="nvidia_peermem")
