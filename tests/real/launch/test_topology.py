"""Slurm's topology/tree plugin runs with the rendered switches."""

import re


def test_slurm_knows_which_nodes_share_their_leaves(slurm, launch, shell):
    launch("slurm", command="diff /etc/slurm/topology.conf topology.conf")
    assert "topology/tree" in shell("scontrol show config | grep TopologyPlugin")
    switches = dict(re.findall(r"SwitchName=(\S+) .*?Nodes=(\S+)", shell("scontrol show topology")))
    assert switches == {"unit0": "node[2,10]", "unit1": "node[3,11]", "spine": "node[2-3,10-11]"}


def test_a_job_that_asks_for_one_switch_stays_in_one_unit(slurm, shell):
    taken = {shell("srun --nodes=2 --switches=1@1:00 hostname | sort") for _ in range(2)}
    assert taken <= {"node10\nnode2\n", "node11\nnode3\n"}
