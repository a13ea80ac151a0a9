import pytest

from gpuops.collective.idleness import kubernetes
from gpuops.collective.idleness.proof import NodeAllocation
from gpuops.collective.idleness.slurm import JOBS, NODES
from gpuops.lifecycle.kubernetes import KubernetesScheduler
from gpuops.lifecycle.scheduler import ProjectScheduler
from gpuops.lifecycle.schedulers import NoScheduler
from gpuops.lifecycle.slurm import SlurmScheduler
from gpuops.shell import Completed
from gpuops.transport.replay import ReplayTransport

ANSWERS = {
    NODES: "gpu01|gpu01|10.0.0.1|mixed|none\n",
    JOBS: "gpu01|17|alice|train\ngpu01|18|bob|eval\n",
    kubernetes.NODES: "gpu01\t10.0.0.1\n",
    kubernetes.PODS: 'gpu01\tml/train-0\t{"nvidia.com/gpu":"8"}\n',
}


class Recorder(ReplayTransport):
    """Answers as saved, and counts how often it is closed."""

    closed = 0

    def close(self):
        self.closed += 1
        super().close()


@pytest.fixture
def transport():
    return Recorder("here", [Completed("here", question, 0, text) for question, text in ANSWERS.items()])


@pytest.mark.parametrize(
    ("kind", "control"), [("none", NoScheduler), ("slurm", SlurmScheduler), ("kubernetes", KubernetesScheduler)]
)
def test_each_kind_of_scheduler_has_its_own_control(transport, kind, control):
    assert type(ProjectScheduler(kind, transport).control) is control


@pytest.mark.parametrize(
    ("kind", "holders"),
    [
        ("none", {}),
        ("slurm", {"gpu01": (NodeAllocation("Slurm job 18 eval, user bob", "18"),)}),
        ("kubernetes", {"gpu01": (NodeAllocation("pod ml/train-0"),)}),
    ],
)
def test_other_jobs_hold_a_node_and_our_own_does_not(transport, a_host, kind, holders):
    assert ProjectScheduler(kind, transport, own_job="17").allocations([a_host("gpu01")]) == holders


def test_slurm_can_be_asked_without_being_the_scheduler_of_the_project(transport, a_host):
    nodes = ProjectScheduler("none", transport).slurm.nodes([a_host("gpu01")])
    assert nodes["gpu01"].state == "mixed"


def test_the_transport_is_closed_whatever_happens(transport):
    with pytest.raises(ZeroDivisionError), ProjectScheduler("slurm", transport):
        _ = 1 / 0
    assert transport.closed == 1
