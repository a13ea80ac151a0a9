import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.library import CudaDevice, NcclLibrary, Survey
from gpuops.collective.engines.nccl.round_runner import Deadlines, RoundConfig, RoundRunner
from gpuops.collective.engines.nccl.slots import seats
from gpuops.errors import EndedError
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup

PAIR, OTHER = RankGroup(("a", "b"), rail=0), RankGroup(("c", "d"), rail=0)
ANSWERS = {"start_ranks": {"free_bytes": 80 << 30}, "id": {"id": "00" * 128}, "join": {}}


class Supervisors:
    """Nodes that answer at once, unless told otherwise: ``odd`` maps (node, what it is told) to its answers in turn."""

    def __init__(self, pace=0.01, **odd):
        self.pace = pace
        self.odd = odd
        self.told = []
        self.drives = []

    def ask(self, messages, seconds):
        return {node: self.answer(node, message) for node, message in messages.items()}

    def answer(self, node, message):
        what = message["do"]
        if what == "ask":
            what = next(iter(message["tasks"].values()))["do"]
        self.told.append((node, what))
        turns = self.odd.get(f"{node}_{what}")
        if turns:
            return turns.pop(0)
        if what in ("end", "kill_overdue", "wait"):
            return {gpu: {"late": True, "stage": "run"} for gpu in message["gpus"]}
        return {gpu: {"answer": self.done(what, task), "pid": 7} for gpu, task in message["tasks"].items()}

    def done(self, what, task):
        if what != "drive":
            return ANSWERS[what]
        self.drives.append((task["count"], task["leave"]))
        return {"seconds": [9.0, *[self.pace] * (task["count"] - 1)], "wrong": 0, "elements": 1}


@pytest.fixture
def runner():
    def make(supervisors, *groups, load=None, deadlines=None):
        fabric = Fabric({name: FabricNode(name, (0,), (FabricNic("mlx5_0", 0, 50.0),)) for name in "abcd"})
        surveys = dict.fromkeys("abcd", Survey(gpus=(CudaDevice("H100", "", 0, rdma=True),), rdma_devices=("mlx5_0",)))
        libraries = dict.fromkeys("abcd", NcclLibrary("/x", (2, 21, 5), (12, 4)))
        setting = RoundConfig(load or Load(), deadlines or Deadlines(), {"NCCL_DEBUG": "INFO"}, libraries, surveys)
        processes = {}
        parties = {group: seats(group, fabric) for group in groups}
        return RoundRunner(supervisors.ask, setting, processes), parties, processes

    return make


@pytest.fixture
def run(runner):
    def go(supervisors, *groups, **more):
        rounds, parties, processes = runner(supervisors, *groups, **more)
        figures = rounds.run(parties)
        assert set(figures) == set(groups)
        return figures, processes

    return go


def test_all_groups_go_side_by_side_through_every_step(run):
    supervisors = Supervisors()
    figures, processes = run(supervisors, PAIR, OTHER)
    assert [figure.gb_per_s for figure in figures.values()] == [pytest.approx((1 << 30) / 0.01 / 1e9)] * 2
    steps = [what for node, what in supervisors.told if node == "a"]
    assert steps == ["start_ranks", "id", "join", "drive", "drive"]
    assert [what for node, what in supervisors.told if node == "b"] == ["start_ranks", "join", "drive", "drive"]
    assert processes == {(node, 0): 7 for node in "abcd"}


def test_a_slow_rank_is_waited_for_until_the_deadline(run):
    joined = {"0": {"answer": {}}}
    supervisors = Supervisors(b_join=[{}], b_wait=[{}, {}, joined])
    figures, _ = run(supervisors, PAIR)
    assert figures[PAIR].trouble == ""
    assert [what for node, what in supervisors.told if node == "b"][1:5] == ["join", "wait", "wait", "wait"]


def test_after_the_deadline_it_is_given_up_as_a_hang(run):
    supervisors = Supervisors(b_join=[{}], b_kill_overdue=[{"0": {"late": True, "stage": "join"}}])
    figures, processes = run(supervisors, PAIR, deadlines=Deadlines(join=0))
    assert (figures[PAIR].trouble, figures[PAIR].absent) == ("hang", ("b:gpu0",))
    assert ("a", "end") in supervisors.told  # its own half of the communicator is of no more use
    assert processes == {}


def test_a_group_of_which_a_rank_failed_is_given_up_at_once_and_the_other_goes_on(run):
    failed = {"0": {"error": "ncclCommInitRank: unhandled system error"}}
    supervisors = Supervisors(b_join=[failed], a_join=[{}], c_join=[{}], c_wait=[{"0": {"answer": {}}}])
    figures, _ = run(supervisors, PAIR, OTHER)
    assert (figures[PAIR].trouble, figures[PAIR].absent) == ("error", ("b:gpu0",))
    assert figures[OTHER].trouble == ""
    assert ("a", "kill_overdue") in supervisors.told
    assert ("c", "kill_overdue") not in supervisors.told


def test_a_node_that_is_lost_on_the_way_is_the_cause(run):
    figures, _ = run(Supervisors(b_drive=[EndedError("b", "the worker ended by signal 9")]), PAIR)
    assert (figures[PAIR].trouble, figures[PAIR].absent) == ("error", ("b",))
    assert figures[PAIR].detail == "first runs: b: the worker ended by signal 9"


@pytest.mark.parametrize(
    ("pace", "timed"),
    [(0.001, 5 + 20), (0.4, 5 + 20), (2.0, 2 + 5), (30.0, 1 + 5)],
)
def test_slow_runs_are_repeated_less_often(run, pace, timed):
    supervisors = Supervisors(pace)
    run(supervisors, PAIR)
    assert supervisors.drives == [(2, False)] * 2 + [(timed, True)] * 2


def test_rank_of_which_nothing_is_known_is_an_error(run):
    figures, _ = run(Supervisors(b_join=[{"0": {"stage": "join"}}]), PAIR, OTHER)
    assert (figures[PAIR].trouble, figures[PAIR].absent) == ("error", ("b:gpu0",))
    assert figures[OTHER].trouble == ""


def test_sweep_makes_one_communicator_for_all_sizes(runner):
    supervisors = Supervisors()
    rounds, parties, _ = runner(supervisors, PAIR, OTHER)
    steps = rounds.sweep(parties, {PAIR: (1024, 2048, 4096), OTHER: (1024, 2048)})
    assert {group: [size for size, _ in of_group] for group, of_group in steps.items()} == {
        PAIR: [1024, 2048, 4096],
        OTHER: [1024, 2048],
    }
    assert [figure.gb_per_s for _, figure in steps[PAIR]] == [pytest.approx(s / 0.01 / 1e9) for s in (1024, 2048, 4096)]
    assert [what for node, what in supervisors.told if node == "a"] == ["start_ranks", "id", "join", *["drive"] * 6]
    leaves = [leave for count, leave in supervisors.drives if count > 2]
    assert leaves == [False] * 4 + [False, False, True, True] + [True, True]  # two ranks of each group, size by size


def test_sweep_ends_at_the_size_that_fails_and_the_other_group_goes_on(runner):
    failed = {"0": {"error": "out of memory"}}
    right = {"0": {"answer": {"seconds": [0.01] * 25, "wrong": 0, "elements": 1}}}
    supervisors = Supervisors(b_drive=[right, right, failed])
    rounds, parties, _ = runner(supervisors, PAIR, OTHER)
    steps = rounds.sweep(parties, dict.fromkeys((PAIR, OTHER), (1024, 2048, 4096)))
    assert [(size, figure.trouble) for size, figure in steps[PAIR]] == [(1024, ""), (2048, "error")]
    assert [figure.trouble for _, figure in steps[OTHER]] == [""] * 3


def test_sweep_of_a_group_that_never_connects_is_its_failure(runner):
    rounds, parties, _ = runner(Supervisors(b_join=[{"0": {"error": "no route"}}]), PAIR, OTHER)
    steps = rounds.sweep(parties, dict.fromkeys((PAIR, OTHER), (1024,)))
    assert [figure.trouble for _, figure in steps[PAIR]] == ["error"]
    assert [figure.trouble for _, figure in steps[OTHER]] == [""]


def test_sweep_leaves_out_sizes_that_the_memory_does_not_hold(runner, monkeypatch):
    monkeypatch.setitem(ANSWERS, "start_ranks", {"free_bytes": 3 << 30})
    rounds, parties, _ = runner(Supervisors(), PAIR)
    steps = rounds.sweep(parties, {PAIR: tuple(1 << power for power in range(27, 36))})
    assert [size for size, _ in steps[PAIR]] == [1 << 27, 1 << 28, 1 << 29]
