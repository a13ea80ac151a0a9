"""The screen of a diagnosis."""

from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.diagnosis import Diagnosis, PreflightStep
from gpuops.collective.preflight.launch_command import read_command
from gpuops.report.page import Page
from gpuops.report.preflight import lines


def test_rendezvous_has_the_name_that_torchrun_gives_it():
    step = PreflightStep("meeting", "fail", "n1:29500")
    command = read_command(("torchrun", "--nnodes=1", "train.py"), None, {})
    diagnosis = Diagnosis(command, ("n1",), (step,), (Cause("meeting", ("n1",), "no port", "use another"),))
    text = "\n".join(lines(diagnosis, Page()))
    assert "meeting" not in text
    assert text.count("rendezvous") == 2
