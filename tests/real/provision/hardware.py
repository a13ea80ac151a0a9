"""Writes what firmware and kernel show of one of the lab's HGX H100 machines, with and without a driver.

hardware.py FOLDER NAME. ``kernel`` is there from the power-on, ``driven`` with NVIDIA's module. The answers of programs
lie by their words (``lspci_-D``): in ``joined`` with a fabric manager, in ``apart`` without one.
"""

import pathlib
import platform
import sys
from dataclasses import replace

from gpuops.lab import tree
from gpuops.lab.identity import NOW, identity, personalize
from gpuops.lab.machine import healthy
from gpuops.lab.tools.programs import run

VERSION = "580.0.0"  # stands for the one that is loaded
MACHINE = healthy("hgx-h100")
NODE = replace(MACHINE, driver=replace(MACHINE.driver, version=VERSION, userspace=VERSION))
APART = replace(NODE, services={})
BARE = ("/proc/cpuinfo", "/proc/sys/vm/", "/sys/")
DRIVEN = ("/proc/driver/", "/sys/module/nvidia", "/sys/bus/pci/drivers/nvidia")
SETTINGS = {
    "proc/driver/rtc": "",
    "proc/modules": "",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/net/ipv4/neigh/default/gc_thresh1": "128\n",
    "proc/sys/net/ipv4/neigh/default/gc_thresh2": "512\n",
    "proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024\n",
    "proc/sys/vm/max_map_count": "65530\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors": "performance powersave\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
}
MODULES = ("ib_umad", "ib_uverbs", "rdma_ucm")
LINES = (
    *("nvidia-smi", "nvidia-smi -L", "nvidia-smi -q", "nvidia-smi -q -x", "nvidia-smi topo -m"),
    *("nvidia-smi nvlink -s", "nvidia-smi nvlink -e", "lspci -D", "lspci -Dnn -d 10de:", "lspci -vvv"),
    *("dmesg", "chronyc -n tracking"),
)


def place_of(path):
    """Where a path of the model lies; "" for what is the real node's own."""
    kind = "driven" if path.startswith(DRIVEN) else "kernel" if path.startswith(BARE) else ""
    return kind and f"usr/lib/hardware/{kind}{path}"


def files():
    """Every file with its text."""
    yield from ((place_of(path), text) for path, text in tree.files(NODE).items() if place_of(path))
    yield from ((f"usr/lib/hardware/kernel/{path}", text) for path, text in SETTINGS.items())
    for name in MODULES:
        yield f"usr/lib/modules/{platform.release()}/{name}", f"filename: /lib/modules/{name}.ko\n"
    for node, folder in ((NODE, "joined"), (APART, "apart")):
        for line in LINES:
            program, *words = line.split()
            yield f"usr/lib/hardware/{folder}/{'_'.join(line.split())}", run(node, program, words, root=True).out


def main(folder, name):
    """Write them all, with the serial numbers of the node ``name``."""
    values = {**identity(name, 0.0), NOW: "Mon Jan  5 00:00:00 2026"}
    for path, text in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(personalize(text, values))
    for path, target in tree.links(NODE).items():
        link = folder / place_of(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
