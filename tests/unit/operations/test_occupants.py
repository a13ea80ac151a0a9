"""Busy check of a node that a playbook is about to change."""

import datetime as dt
from dataclasses import replace

import pytest

from gpuops.collective.idleness import kubernetes, slurm
from gpuops.collective.idleness.proof import NodeAllocation
from gpuops.facts import Facts
from gpuops.operations.occupants import Occupants
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError
from gpuops.probes.nvidia.occupancy import Holder, Occupancy
from gpuops.probing import Unknown

IDLE = {
    "smi": Smi(gpus=(Gpu(0, "0000:1b:00.0", memory_used_mib=1, processes=()),)),
    "occupancy": Occupancy(driver_loaded=True),
    "driver_loaded": True,
}
BARE = {
    "smi": Unknown("there is no nvidia-smi"),
    "occupancy": Occupancy(driver_loaded=False, hidden="/proc hides the processes of other users"),
    "driver_loaded": Unknown("nobody told"),
}
COMPUTING = Occupancy(driver_loaded=True, holders=(Holder(4711, "python", "alice", ("/dev/nvidia0",)),))


@pytest.fixture
def busy(monkeypatch, a_host):
    """Return a function that gives the reason not to change a node, from its own answers and a scheduler's."""

    def busy(values, said=()):
        facts = Facts("gpu01", dt.datetime.now(dt.timezone.utc), values)
        monkeypatch.setattr("gpuops.operations.occupants.gather", lambda *_: facts)
        return Occupants(lambda hosts: {host.name: said for host in hosts}, [a_host("gpu01")])(a_host("gpu01"), None)

    return busy


def test_unused_node_may_be_changed(busy):
    assert busy(IDLE) == busy(BARE) == ""


def test_users_of_a_node_are_reported_with_a_remedy(busy):
    assert busy({**IDLE, "occupancy": COMPUTING}).startswith("busy (pid 4711 python, user alice); drain the node first")
    for values in (IDLE, BARE):
        assert "Slurm job 7" in busy(values, (NodeAllocation("Slurm job 7 train, user bob"),))


def test_silent_scheduler_does_not_prove_a_node_idle(busy):
    assert "sinfo says nothing" in busy(BARE, Unknown("sinfo says nothing"))


@pytest.mark.parametrize("stranger", [slurm.NO_SUCH_NODE, kubernetes.NO_SUCH_NODE])
def test_node_unknown_to_the_scheduler_runs_no_jobs(busy, stranger):
    assert busy(BARE, stranger) == busy(BARE, replace(stranger, why="a sentence of its own")) == ""
    assert stranger.why in busy(BARE, Unknown(stranger.why))
    assert "pid 4711" in busy({**IDLE, "occupancy": COMPUTING}, stranger)


def test_driver_waiting_for_a_reboot_hides_no_process(busy):
    mute = {**IDLE, "smi": Smi(error=SmiError("version-mismatch", "Driver/library version mismatch", ()))}
    assert busy(mute) == ""
    assert "pid 4711" in busy({**mute, "occupancy": COMPUTING})


def test_scheduler_is_asked_once_for_all_nodes(monkeypatch, a_host):
    asked = []
    monkeypatch.setattr(
        "gpuops.operations.occupants.gather", lambda *_: Facts("x", dt.datetime.now(dt.timezone.utc), IDLE)
    )
    hosts = [a_host("gpu01"), a_host("gpu02")]
    occupants = Occupants(lambda some: asked.append(some) or {}, hosts)
    assert [occupants(host, None) for host in hosts] == ["", ""]
    assert asked == [hosts]
