"""NCCL on a real GPU, several ranks on the same one (NCCL 2.30 and newer); figures are not judged.

Collected only where there is a GPU: see conftest.py.
"""

import os
import pathlib
import signal
import sysconfig

import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.collective.engines.nccl.round_runner import Deadlines
from gpuops.isolation.rounds import RankGroup, Round

MIB = 1 << 20
PAIR = RankGroup(("a", "b"))
WHEEL = pathlib.Path(sysconfig.get_path("purelib"), "nvidia", "nccl", "lib")


@pytest.fixture
def an_engine(a_host, opener, a_fabric):
    """Nodes that are all this machine, with one rank each on its first GPU."""
    engines = []

    def make(*names, load=None):
        environment = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "LD_LIBRARY_PATH": str(WHEEL), "NCCL_SOCKET_IFNAME": "lo"}
        hosts = [a_host(name, connection="local") for name in names]
        options = Options(environment, deadlines=Deadlines(load=90, join=60, measure=30))
        load = load or Load(size_bytes=64 * MIB, iterations=5, warmups=2)
        engines.append(NcclEngine(hosts, opener, a_fabric(names, gpus=(0,)), load, options))
        assert engines[-1].open() == {}
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def measured(engine, *groups):
    return engine.measure(Round("pair", groups))


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
def test_results_are_right_and_checked_on_the_gpu(an_engine, operation):
    engine = an_engine("a", "b", load=Load(operation, size_bytes=64 * MIB, iterations=5, warmups=2))
    (figure,) = measured(engine, PAIR)
    assert figure.trouble == "", figure
    assert figure.gb_per_s > 0


def test_ids_join_groups_of_three_and_again_in_the_same_processes(an_engine):
    engine = an_engine("a", "b", "c")
    for groups in [(RankGroup(("a", "b", "c")),), (RankGroup(("c", "a")),), (RankGroup(("b", "c")),)]:
        assert [figure.trouble for figure in measured(engine, *groups)] == [""], groups
    assert all(len(of_node) == 2 for of_node in engine.pids.values())


def test_a_stopped_rank_is_a_hang_that_ends_and_leaves_nothing(an_engine, process):
    engine = an_engine("a", "b")
    assert [figure.trouble for figure in measured(engine, PAIR)] == [""]
    before = engine.pids
    os.kill(before["b"][1], signal.SIGSTOP)
    (figure,) = measured(engine, PAIR)
    assert (figure.trouble, figure.absent) == ("hang", ("b:gpu0",)), figure
    assert process.gone([before["a"][1], before["b"][1]], seconds=20)
    assert [figure.trouble for figure in measured(engine, PAIR)] == [""]


def test_closing_ends_every_process(an_engine, process):
    engine = an_engine("a", "b")
    measured(engine, PAIR)
    pids = [pid for of_node in engine.pids.values() for pid in of_node]
    engine.close()
    assert process.gone(pids, seconds=20)
