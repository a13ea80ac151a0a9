import pytest

from gpuops.collective.idleness.drain_reason import DrainReason
from gpuops.collective.idleness.proof import NodeAllocation, NoSuchNode
from gpuops.collective.idleness.slurm import JOBS, NODES, Slurm, SlurmNode
from gpuops.shell import Completed
from gpuops.transport.replay import ReplayTransport

NODE_ROWS = "gpu-a|h1|10.0.0.1|idle|none\ngpu-b|h2|10.0.0.2|drained*|fan | swap\ngpu-c|h3|10.0.0.3|mixed|none\n"


@pytest.fixture
def slurm():
    """A Slurm that answers with these texts, or as told."""

    def make(nodes=NODE_ROWS, jobs="", own_job="", status=0, **more):
        texts = {NODES: nodes, JOBS: jobs}
        answers = [Completed("login", asked, status, text, **more) for asked, text in texts.items()]
        return Slurm(ReplayTransport("login", answers), own_job)

    return make


@pytest.fixture
def hosts(a_host):
    """One is known by its node's name, one by its host name, one by its address, and one not at all."""
    return [a_host("gpu-a"), a_host("h2"), a_host("third", address="10.0.0.3"), a_host("other")]


def test_a_host_is_known_by_node_name_host_name_or_address(slurm, hosts):
    assert slurm().nodes(hosts) == {
        "gpu-a": SlurmNode("gpu-a", "idle"),
        "h2": SlurmNode("gpu-b", "drained*", DrainReason("fan | swap", "other")),
        "third": SlurmNode("gpu-c", "mixed"),
    }


def test_jobs_hold_every_node_of_their_set(slurm, hosts):
    found = slurm(jobs="gpu-a,gpu-c|17|alice|train | big\ngpu-c|18|bob|\n").allocations(hosts)
    assert found["gpu-a"] == (NodeAllocation("Slurm job 17 train | big, user alice", "17"),)
    assert found["third"] == (
        NodeAllocation("Slurm job 17 train | big, user alice", "17"),
        NodeAllocation("Slurm job 18 , user bob", "18"),
    )
    assert found["h2"] == ()


def test_folded_sets_are_unfolded(slurm, a_host):
    nodes = "".join(f"gpu{n:02}|gpu{n:02}|gpu{n:02}|idle|none\n" for n in range(1, 13))
    found = slurm(nodes=nodes, jobs="gpu[02-03,11]|17|alice|train\n").allocations(
        [a_host(f"gpu{n:02}") for n in range(1, 13)]
    )
    assert [name for name, held in found.items() if held] == ["gpu02", "gpu03", "gpu11"]


def test_our_own_job_does_not_hold_a_node(slurm, hosts):
    assert slurm(jobs="gpu-a|17|alice|train\n", own_job="17").allocations(hosts)["gpu-a"] == ()


def test_a_host_that_slurm_does_not_know_may_be_anybodys(slurm, hosts):
    assert slurm().allocations(hosts)["other"] == NoSuchNode("Slurm has no such node")


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ({"status": 127, "err": "sh: sinfo: not found"}, "sinfo is not installed on login"),
        ({"status": 1, "err": "Unable to contact slurm controller"}, "sinfo failed on login: Unable to contact"),
        ({"timed_out": True, "status": 137}, "sinfo failed on login: "),
        ({"nodes": "gpu-a\n"}, "cannot parse sinfo's answer"),
        ({"nodes": "gpu-[a|x|y\n"}, "cannot parse sinfo's answer"),
        ({"jobs": "garbage\n"}, "cannot parse squeue's answer"),
        ({"jobs": "gpu[1|17|alice|train\n"}, "cannot parse squeue's answer"),
        ({"jobs": "|17|alice|train\n"}, "cannot parse squeue's answer"),
    ],
)
def test_what_slurm_does_not_say_is_unknown_of_every_host(slurm, hosts, ending, told):
    assert all(told in found.why for found in slurm(**ending).allocations(hosts).values())
