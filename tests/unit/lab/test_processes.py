import pytest

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.tools.processes import find
from gpuops.probes.nvidia.occupancy import occupancy
from gpuops.shell import Completed


def told(*faults, machine="hgx-h100", root=True):
    answer = find(faulted(machine, faults), ["proc"], root=root)
    return occupancy.read(Completed("gpu01", occupancy.question, answer.code, answer.out, answer.err))


@pytest.mark.parametrize("machine", ["hgx-h100", "titan-rtx-2x"])
def test_on_an_idle_host_only_daemons_hold_the_device_files(machine):
    found = told(machine=machine)
    assert found.driver_loaded
    assert not found.hidden
    assert all(holder.is_daemon for holder in found.holders)


def test_a_job_holds_the_files_of_its_gpus():
    (job,) = [holder for holder in told("gpu3:busy").holders if not holder.is_daemon]
    assert (job.name, job.user) == ("python3", "alice")
    assert "/dev/nvidia3" in job.devices
    assert len([holder for holder in told("host:busy").holders if not holder.is_daemon]) == 8


def test_without_root_nobody_elses_files_are_shown():
    found = told("host:busy", root=False)
    assert not found.holders
    assert "Permission denied" in found.hidden
