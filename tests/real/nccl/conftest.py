import os
import pathlib
import shutil
import subprocess
import time

import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.collective.engines.nccl.round_runner import Deadlines
from gpuops.isolation.fabric import Fabric, FabricNode

HERE = pathlib.Path(__file__).parent
collect_ignore = [] if pathlib.Path("/dev/nvidia0").exists() else ["test_gpu.py"]  # no machine of CI has one
MIB = 1 << 20
PATIENT = Deadlines(load=30, join=30, measure=60)
SHORT = Deadlines(load=6, join=3, measure=4)


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compiles the stand-ins for libcuda.so.1 and libnccl.so.2 into a folder; ``says`` are their constants."""

    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc on this machine")

    def make(*says):
        folder = tmp_path_factory.mktemp("libraries")
        for source, library in (("stub_cuda.c", "libcuda.so.1"), ("stub_nccl.c", "libnccl.so.2")):
            words = ["gcc", "-Wall", "-O1", "-shared", "-fPIC", *says, "-o", folder / library, HERE / source]
            subprocess.run([*words, "-lpthread", "-ldl"], check=True)
        return folder

    return make


@pytest.fixture(scope="session")
def libraries(build):
    """NCCL 2.21.5 for CUDA 12.4, and a driver."""
    return build()


@pytest.fixture
def a_fabric():
    """Nodes with two GPUs; of what NICs is told to no one, so that nothing is pinned to what is not there."""
    return lambda names, gpus=(0, 1), nics=(): Fabric(
        {name: FabricNode(name, tuple(gpus), tuple(nics)) for name in names}
    )


@pytest.fixture
def stub_environment(libraries, tmp_path):
    """What a rank needs to find the stand-ins and its peers."""
    return lambda **more: {"LD_LIBRARY_PATH": str(libraries), "STUB_MEETS": str(tmp_path), **more}


@pytest.fixture
def an_engine(a_host, opener, a_fabric, stub_environment):
    """An engine over as many nodes as asked for, all on this machine; open, and closed at the end.

    It has little patience where a fault is planted.
    """
    engines = []

    def make(*names, load=None, fabric=None, library=None, patient=True, **environment):
        hosts = [a_host(name, connection="local") for name in names]
        options = Options(stub_environment(**environment), library, PATIENT if patient else SHORT)
        load = load or Load(size_bytes=MIB, iterations=5, warmups=1)
        engines.append(NcclEngine(hosts, opener, fabric or a_fabric(names), load, options))
        engines[-1].refused = engines[-1].open()
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


class Processes:
    """Looks at processes by pid."""

    def alive(self, pids):
        return [pid for pid in pids if self._state(pid) not in "ZX"]

    def gone(self, pids, seconds=5.0):
        ends = time.monotonic() + seconds
        while self.alive(pids) and time.monotonic() < ends:
            time.sleep(0.02)
        return not self.alive(pids)

    def environment(self, pid):
        text = os.fsdecode(pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        return dict(pair.split("=", 1) for pair in text.split("\0") if pair)

    def _state(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"


@pytest.fixture
def process():
    return Processes()


@pytest.fixture
def all_pids():
    """Every process that an engine has, on all nodes."""
    return lambda engine: [pid for of_node in engine.pids.values() for pid in of_node]
