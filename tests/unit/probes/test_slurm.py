import pytest

from gpuops.probes.slurm import SlurmJob, SlurmNode, slurm_node
from gpuops.probing import Unknown


def read(answer, out="", **more):
    return slurm_node.read(answer(slurm_node, out, **more))


def test_the_jobs_that_hold_the_node_are_told(answer):
    found = read(answer, "17|alice|RUNNING|train | big\n18|bob|COMPLETING|\nend\n")
    assert found == SlurmNode(
        known=True, jobs=(SlurmJob("17", "alice", "RUNNING", "train | big"), SlurmJob("18", "bob", "COMPLETING", ""))
    )


def test_a_node_without_a_job_is_free(answer):
    assert read(answer, "end\n") == SlurmNode(known=True)


@pytest.mark.parametrize(
    ("err", "status"),
    [
        ("sh: 2: squeue: not found", 127),
        ("squeue: error: Invalid node name localhost", 1),
        ("squeue: fatal: Could not establish a configuration source", 1),
    ],
)
def test_a_machine_that_is_none_of_slurms_nodes_says_so(answer, err, status):
    assert read(answer, err=err, status=status) == SlurmNode(known=False)


def test_a_silent_controller_is_unknown_and_not_a_free_node(answer):
    found = read(answer, err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)", status=1)
    assert "Unable to contact" in found.why
    assert isinstance(read(answer, timed_out=True, status=137), Unknown)


@pytest.mark.parametrize(
    "text", ["", "\n", "17|alice|RUNNING|train\n", "17|alice\nend\n", "end\nend\n", "|a|b|c\nend\n"]
)
def test_a_torn_answer_is_unknown(answer, text):
    assert isinstance(read(answer, text), Unknown)
