"""Content may import probes by the paths that they had before they were sorted into folders."""

import importlib
import subprocess
import sys

import pytest

from gpuops.content import ContentFile, load_python
from gpuops.probes import every_probe

OLD = {
    "nvidia": "burn_in dcgm_diag driver fabric_manager gpus nccl_log nccl_tests nvlink nvlink_errors occupancy topo "
    "xid",
    "nvidia.nvidia_smi": "answer csv failure gpu listing query record xml",
    "network": "error_counters gids ib ib_write_bw ibnetdiscover interfaces lldp",
    "host": "clock disks kernel_log limits lspci packages pcie services system",
}
MOVED = [(folder, name) for folder, names in OLD.items() for name in names.split()] + [("nvidia", "nvidia_smi")]


@pytest.mark.parametrize(("folder", "name"), MOVED)
def test_an_old_path_is_the_same_module(folder, name):
    old = ".".join(["gpuops", "probes", *folder.split(".")[1:], name])
    module = importlib.import_module(old)
    assert module is importlib.import_module(f"gpuops.probes.{folder}.{name}")
    assert module.__name__ == module.__spec__.name == f"gpuops.probes.{folder}.{name}"


@pytest.mark.parametrize(
    "first", ["gpuops.probes.nvidia_smi.xml", "gpuops.probes.nvidia.nvidia_smi.xml", "gpuops.probes.topo"]
)
def test_the_order_of_imports_does_not_matter_and_nothing_warns(first):
    program = (
        f"import {first}\n"
        "import gpuops.probes.nvidia.nvidia_smi.xml as new, gpuops.probes.nvidia_smi.xml as old\n"
        "from gpuops.probes import topo\n"
        "from gpuops.probes.nvidia.topo import Topology\n"
        "assert old is new and topo.Topology is Topology\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_a_module_loads_only_when_it_is_named():
    program = "import gpuops.probes, sys\nassert not [m for m in sys.modules if m.startswith('gpuops.probes.')]"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["nosuch", "nvidia.nosuch", "nvidia_smi.nosuch", "re"])
def test_a_module_that_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=r"nosuch|probes\.re"):
        importlib.import_module(f"gpuops.probes.{name}")


def test_a_users_check_asks_the_same_probe(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("from gpuops.probes.topo import topo\nfrom gpuops.probes.nvidia_smi import smi\n")
    module = load_python(ContentFile("own", path, "built-in"))
    assert (module.topo, module.smi) == (every_probe()["topo"], every_probe()["smi"])
    assert module.topo is every_probe()["topo"]
