"""The engine's commands, asked of ways that are not there."""

import shlex
import subprocess
from types import SimpleNamespace

import pytest

from gpuops.cancellation import CancelToken
from gpuops.collective.engines import Load, Sweep
from gpuops.collective.engines.nccl_tests.engine import _FIND, NcclTestsEngine
from gpuops.errors import LostError
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.reasons import Excluded
from gpuops.shell import Completed, Files

HAS = {"all_reduce_perf": "/opt/all_reduce_perf", "mpirun": "/usr/bin/mpirun", "setpriv": "/usr/bin/setpriv"}
RDMA = "".join(f"/sys/class/infiniband/mlx5_{rail}/ports/1/link_layer\0InfiniBand\n\0" for rail in range(2))


class Way:
    """A node that has some programs, and answers whatever it is asked to start with nothing."""

    def __init__(self, node, has):
        self.node = node
        self.has = has
        self.started = []
        self.batches = []
        self.closed = 0

    def batch(self, questions):
        self.batches.append(len(questions))
        return [self._answer(question) for question in questions]

    def run(self, command):
        return self._answer(command)

    def _answer(self, question):
        if self.has is None:
            raise LostError(self.node, "hung up")
        if isinstance(question, Files):
            return Completed(self.node, question, 0, RDMA)
        if question.words[0] == "sh":
            return Completed(self.node, question, 0, "".join(f"{name} {path}\n" for name, path in self.has.items()))
        self.started.append(question)
        granted = "salloc: Granted job allocation 77\n" if question.words[0].endswith("salloc") else ""
        return Completed(self.node, question, 0, err=granted)

    def close(self):
        self.closed += 1


@pytest.fixture
def make(a_host):
    """An engine over nodes of two GPUs and two NICs, and the ways that it has."""

    def build(has, load=None, addresses=(), **options):
        hosts = [a_host(name, address=dict(addresses).get(name, f"10.0.0.{n}")) for n, name in enumerate(has, 1)]
        ways = {name: Way(name, programs) for name, programs in has.items()}
        nics = (FabricNic("mlx5_0", 0, 50.0), FabricNic("mlx5_1", 1, 50.0))
        fabric = Fabric({name: FabricNode(name, (0, 1), nics) for name in has})
        opener = SimpleNamespace(open=lambda host: ways[host.name], close=lambda: None, cancel=CancelToken())
        return NcclTestsEngine(hosts, opener, fabric, load, **options), ways

    return build


def started(ways, node="n1"):
    return [shlex.join(command.words) for command in ways[node].started]


def test_it_tells_which_programs_it_starts_on_each_node_that_has_them(make):
    engine, _ = make({"n1": HAS, "n2": {**HAS, "all_reduce_perf": "/home/me/all_reduce_perf"}, "n3": {}})
    engine.open()
    assert engine.settings == {
        "n1": ["/opt/all_reduce_perf", "/usr/bin/mpirun"],
        "n2": ["/home/me/all_reduce_perf", "/usr/bin/mpirun"],
    }


def test_a_rail_is_one_gpu_and_one_nic_of_each_node(make):
    engine, ways = make({"n1": HAS, "n2": HAS})
    assert engine.open() == {}
    engine.measure(Round("rail", (RankGroup(("n1", "n2"), 1),)))
    (line,) = started(ways)
    assert "--host 10.0.0.1:1,10.0.0.2:1 -np 2 env" in line
    assert "CUDA_VISIBLE_DEVICES=1 NCCL_IB_HCA==mlx5_1:1 /usr/bin/setpriv --pdeathsig KILL /opt/all_reduce_perf" in line
    assert "-b 1073741824 -e 1073741824 -n 20 -w 5 -g 1" in line
    assert started(ways, "n2") == []


def test_within_a_node_one_process_holds_all_gpus(make):
    engine, ways = make({"n1": HAS})
    engine.open()
    engine.measure(Round("node", (RankGroup(("n1",), variant="ring"),)))
    (line,) = started(ways)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 NCCL_NVLS_ENABLE=0" in line
    assert line.endswith("-g 2")
    assert "NCCL_IB_HCA" not in line


def test_groups_of_one_start_are_one_batch_of_at_most_sixteen(make):
    engine, ways = make({"n1": HAS, **{f"m{number}": HAS for number in range(20)}})
    engine.open()
    engine.measure(Round("pair", tuple(RankGroup(("n1", f"m{number}")) for number in range(20))))
    assert ways["n1"].batches[1:] == [16, 4]


def test_node_that_is_lost_between_batches_keeps_the_results_before(make):
    engine, ways = make({"n1": HAS, **{f"m{number}": HAS for number in range(20)}})
    engine.open()
    answer = ways["n1"].batch

    def batch(questions):
        if len(ways["n1"].batches) == 2:
            raise LostError("n1", "the connection broke")
        return answer(questions)

    ways["n1"].batch = batch
    figures = engine.measure(Round("pair", tuple(RankGroup(("n1", f"m{number}")) for number in range(20))))
    assert [figure.trouble for figure in figures] == ["error"] * 16 + ["unreachable"] * 4
    assert (figures[-1].absent, figures[-1].detail) == (("n1",), "n1: the connection broke")


def test_nodes_without_the_program_are_the_missing_members(make):
    engine, _ = make({"n1": HAS, "n2": {}})
    engine.open()
    (figure,) = engine.measure(Round("pair", (RankGroup(("n1", "n2")),)))
    assert (figure.trouble, figure.absent) == ("error", ("n2",))


def test_a_host_behind_loopback_is_called_by_its_name(make):
    engine, ways = make({"n1": HAS, "n2": HAS}, addresses={"n1": "127.0.0.1", "n2": "localhost"})
    engine.open()
    engine.measure(Round("pair", (RankGroup(("n1", "n2")),)))
    assert "--host n1:2,n2:2 -np 4" in started(ways)[0]


def test_the_deadline_follows_what_is_expected(make):
    load = Load(size_bytes=1 << 30, iterations=20, warmups=5)
    engine, ways = make({"n1": HAS, "n2": HAS}, load, expect=lambda group: 1.0)
    engine.open()
    engine.measure(Round("rail", (RankGroup(("n1", "n2"), 0),)))
    (command,) = ways["n1"].started
    assert "--timeout 191 " in shlex.join(command.words)  # 30 s and three times 50 GiB at 1 GB/s
    assert command.timeout_seconds == pytest.approx(30 + 3 * 50 * 2**30 / 1e9 + 10)


def test_nodes_that_lack_something_are_told_what(make):
    has_not = {name: path for name, path in HAS.items() if name != "mpirun"}
    engine, _ = make({"n1": HAS, "n2": HAS, "n3": {}, "n4": has_not, "n5": None})
    lost = engine.open()
    assert (engine.launcher, set(lost)) == ("mpirun", {"n3", "n4", "n5"})
    assert lost["n3"] == Excluded("n3", "unsupported", "all_reduce_perf is not installed")
    assert lost["n4"] == Excluded("n4", "unsupported", "mpirun is not installed")
    assert (lost["n5"].kind, lost["n5"].unreachable) == ("unreachable", "lost")
    (figure,) = engine.measure(Round("pair", (RankGroup(("n1", "n4")),)))
    assert (figure.gb_per_s, figure.trouble) == (None, "error")
    assert "n4" in figure.detail


def test_without_a_launcher_nodes_are_measured_by_themselves_alone(make):
    alone = {"all_reduce_perf": "/opt/all_reduce_perf"}
    engine, ways = make({"n1": alone, "n2": alone})
    assert engine.open() == {}
    within, between = engine.measure(Round("node", (RankGroup(("n1",)), RankGroup(("n1", "n2")))))
    assert within.group == RankGroup(("n1",))
    assert "neither Open MPI's mpirun nor srun" in between.detail
    assert len(ways["n1"].started) == 1


def test_srun_runs_in_a_job_that_is_given_back(make):
    slurm = {
        "all_reduce_perf": "/opt/all_reduce_perf",
        "srun": "/s/srun",
        "salloc": "/s/salloc",
        "scancel": "/s/scancel",
    }
    engine, ways = make({"n1": slurm, "n2": slurm})
    assert engine.open() == {}
    engine.measure(Round("pair", (RankGroup(("n1", "n2")),)))
    engine.close()
    engine.close()
    salloc, srun, scancel = started(ways)
    assert "--nodelist=n1,n2" in salloc
    assert "--jobid=77 --overlap" in srun
    assert scancel == "/s/scancel 77"


def test_a_start_that_was_lost_is_unreachable_and_the_others_finish(make):
    engine, ways = make({"n1": HAS, "n2": HAS, "n3": HAS})
    engine.open()
    ways["n2"].has = None
    lost, other = engine.measure(Round("node", (RankGroup(("n2",)), RankGroup(("n3",)))))
    assert (lost.trouble, lost.absent) == ("unreachable", ("n2",))
    assert other.trouble == "error"
    assert "no output" in other.detail


def test_of_a_large_group_only_the_first_node_tells_how_nccl_goes_about_it(make):
    engine, ways = make({f"n{number}": HAS for number in range(1, 201)})
    engine.open()
    engine.measure(Round("group", (RankGroup(tuple(ways)), RankGroup(("n2", "n3")))))
    (line,) = started(ways)
    first, rest = line.split(" : ")
    assert "--host 10.0.0.1:2 -np 2 env NCCL_DEBUG=INFO" in first
    assert "NCCL_DEBUG=WARN" in rest
    assert rest.count("NCCL_DEBUG") == 1
    assert "WARN" not in started(ways, "n2")[0]


def test_the_payload_grows_with_the_ranks_as_far_as_a_gpu_holds_it(make):
    engine, ways = make({f"n{number}": HAS for number in range(1, 601)})
    engine.open()
    engine.measure(Round("group", (RankGroup(tuple(ways)[:100]), RankGroup(tuple(ways)[1:]))))
    assert f" -b {200 * 8 << 20} " in started(ways)[0]
    assert f" -b {8 << 30} " in started(ways, "n2")[0]


def test_other_operations_have_other_programs(make):
    engine, _ = make({"n1": HAS}, Load("all_gather"))
    assert engine.open() == {"n1": Excluded("n1", "unsupported", "all_gather_perf is not installed")}


def test_a_test_that_is_named_for_mpi_runs_between_nodes(make):
    both = {**HAS, "all_reduce_perf_mpi": "/opt/all_reduce_perf_mpi"}
    engine, ways = make({"n1": both, "n2": both})
    assert engine.open() == {}
    assert engine.settings["n1"] == ["/opt/all_reduce_perf", "/opt/all_reduce_perf_mpi", "/usr/bin/mpirun"]
    engine.measure(Round("pair", (RankGroup(("n1", "n2")), RankGroup(("n1",)))))
    between, within = started(ways)
    assert "/opt/all_reduce_perf_mpi -b" in between
    assert "/opt/all_reduce_perf -b" in within


def test_a_test_that_is_named_for_mpi_alone_is_enough(make):
    only = {name: path for name, path in HAS.items() if name != "all_reduce_perf"}
    engine, ways = make({"n1": {**only, "all_reduce_perf_mpi": "/opt/all_reduce_perf_mpi"}})
    assert engine.open() == {}
    engine.measure(Round("node", (RankGroup(("n1",)),)))
    assert "/opt/all_reduce_perf_mpi -b" in started(ways)[0]


def test_the_search_finds_both_names_of_a_test(tmp_path):
    for name in ("all_gather_perf", "all_gather_perf_mpi"):
        (tmp_path / name).touch(mode=0o755)
    words = ["sh", "-c", _FIND, "sh", "all_gather_perf", str(tmp_path)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {f"{name} {tmp_path / name}" for name in ("all_gather_perf", "all_gather_perf_mpi")} <= set(lines)


def test_sweep_is_one_start_that_steps_through_all_sizes(make):
    engine, ways = make({"n1": HAS, "n2": HAS})
    engine.open()
    sizes = tuple(1 << power for power in range(10, 21))
    (curve,) = engine.sweep([Sweep(RankGroup(("n1", "n2")), sizes, {"NCCL_COLLNET_ENABLE": "1"})])
    (line,) = started(ways)
    assert " -b 1024 -e 1048576 -f 2 -n 20 -w 5 -g 1" in line
    assert line.count("NCCL_COLLNET_ENABLE=1") == 1  # equal parts are one
    assert (curve.trouble, curve.points) == ("error", ())


def test_sweep_that_cannot_start_says_why(make):
    engine, ways = make({"n1": HAS, "n2": {}, "n3": HAS})
    engine.open()
    ways["n3"].has = None
    lacking, lost = engine.sweep([Sweep(RankGroup(("n2",)), (1024,)), Sweep(RankGroup(("n3",)), (1024,))])
    assert (lacking.trouble, lacking.absent) == ("error", ("n2",))
    assert (lost.trouble, lost.absent) == ("unreachable", ("n3",))


@pytest.mark.parametrize(("rdma", "expected"), [(RDMA, [True, True, False]), ("", [False, False, False])])
def test_a_node_without_any_rdma_device_is_meant_to_use_tcp(make, monkeypatch, rdma, expected):
    """NCCL's sockets between two workstations were called "TCP instead of RDMA"."""
    monkeypatch.setitem(globals(), "RDMA", rdma)
    engine, _ = make({"n1": HAS})
    engine.open()
    ranks = [SimpleNamespace(node="n1", nics=nics) for nics in ((), ("mlx5_0",), ("eth0",))]
    assert [engine._has_rdma(rank) for rank in ranks] == expected
