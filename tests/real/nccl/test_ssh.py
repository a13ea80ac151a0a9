"""The same over OpenSSH: nodes that are reached as nodes are, as a user who is not us."""

import pathlib
import shutil
import tempfile
import time

import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.isolation.rounds import RankGroup, Round

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def shared(libraries):
    """The stand-ins and a place to meet, where every user finds them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-nccl-", dir="/var/tmp"))
    shutil.copytree(libraries, folder / "lib")
    (folder / "meets").mkdir()
    for path, mode in ((folder, 0o755), (folder / "lib", 0o755), (folder / "meets", 0o777)):
        path.chmod(mode)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def engine(sshd, a_host, trusted, account, shared, a_fabric, opener):
    addresses = {name: f"127.0.0.{number}" for number, name in enumerate(NAMES, 1)}
    trusted(sshd.known(*addresses.values()))
    hosts = [a_host(name, address=where, port=sshd.port, user=account.name) for name, where in addresses.items()]
    environment = {"LD_LIBRARY_PATH": str(shared / "lib"), "STUB_MEETS": str(shared / "meets")}
    load = Load(size_bytes=1 << 20, iterations=5, warmups=1)
    made = NcclEngine(hosts, opener, a_fabric(NAMES), load, Options(environment))
    yield made
    made.close()


def test_rounds_of_pairs_and_of_all_go_well_and_end_with_the_engine(engine, processes):
    assert engine.open() == {}
    for groups in [
        (RankGroup(("a", "b")), RankGroup(("c", "d"))),
        (RankGroup(("c", "b")), RankGroup(("a", "d"))),
        (RankGroup(NAMES),),
    ]:
        figures = engine.measure(Round("pair", groups))
        assert [figure.trouble for figure in figures] == [""] * len(groups), figures
    assert len(processes()) >= 4 + 8
    engine.close()
    nothing_stays(processes)


def test_hanging_up_as_ctrl_c_does_leaves_no_process_on_any_node(engine, processes, opener):
    engine.open()
    engine.measure(Round("group", (RankGroup(NAMES),)))
    opener.close()
    nothing_stays(processes)


def nothing_stays(processes, seconds=5.0):
    ends = time.monotonic() + seconds
    while processes() and time.monotonic() < ends:
        time.sleep(0.1)
    assert processes() == []
