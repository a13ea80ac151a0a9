"""modinfo, dkms, nv-fabricmanager and nvidia-imex-ctl, which report on the driver on disk and its services."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer


def modinfo(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``modinfo nvidia`` prints: the module on disk, which may differ from the loaded one."""
    del root
    names = [w for w in words if not w.startswith("-")]
    if names != ["nvidia"] or not node.driver.userspace:
        return Answer(err=f"modinfo: ERROR: Module {' '.join(names)} not found.\n", code=1)
    version, kernel = node.driver.userspace, node.system.kernel
    facts = (
        ("filename", f"/lib/modules/{kernel}/updates/dkms/nvidia.ko"),
        ("firmware", f"nvidia/{version}/gsp_ga10x.bin"),
        ("firmware", f"nvidia/{version}/gsp_tu10x.bin"),
        ("alias", "char-major-195-*"),
        ("version", version),
        ("supported", "external"),
        ("license", "Dual MIT/GPL" if node.driver.open else "NVIDIA"),
        ("srcversion", "1E2265D2AF1616FE7B5DC23"),
        ("alias", "pci:v000010DEd*sv*sd*bc06sc80i00*"),
        ("alias", "pci:v000010DEd*sv*sd*bc03sc02i00*"),
        ("alias", "pci:v000010DEd*sv*sd*bc03sc00i00*"),
        ("depends", "drm"),
        ("retpoline", "Y"),
        ("name", "nvidia"),
        ("vermagic", f"{kernel} SMP mod_unload modversions "),
        ("parm", "NVreg_EnableGpuFirmware:int"),
    )
    if "-F" in words or "--field" in words:
        return Answer(err="modinfo: ERROR: Module nvidia not found.\n", code=1)
    return Answer(out="".join(f"{name + ':':<16}{value}\n" for name, value in facts))


def dkms(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dkms status`` prints: every installed driver was built."""
    del words, root
    version = node.driver.userspace
    return Answer(out=f"nvidia/{version}, {node.system.kernel}, {node.system.machine}: installed\n" if version else "")


def nv_fabricmanager(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nv-fabricmanager --version`` prints."""
    del root
    version = node.driver.fabric_manager
    if version is None:
        return Answer(err="nv-fabricmanager: not found\n", code=127)
    if list(words) in (["--version"], ["-v"]):
        return Answer(out=f"Fabric Manager version is : {version}\n")
    return Answer(err="nv-fabricmanager: must be run by root\n", code=1)


def nvidia_imex_ctl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nvidia-imex-ctl -q`` or ``-N -j`` prints about this node and another one of its domain."""
    del root
    service = node.services.get("nvidia-imex")
    if service is None:
        return Answer(err="nvidia-imex-ctl: not found\n", code=127)
    own = node.imex if service.active == "active" else "UNAVAILABLE"
    if "-q" in words:
        return Answer(out=f"{own}\n")
    status = node.imex_domain if own == "READY" else "DOWN"
    states = (own, "READY" if status == "UP" else "UNAVAILABLE")
    nodes = {
        str(at): {"status": state, "host": f"10.0.0.{at + 1}", "connections": {}, "hostName": f"tray{at + 1}"}
        for at, state in enumerate(states)
    }
    document = {"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": status}
    return Answer(out=json.dumps(document) + "\n")
