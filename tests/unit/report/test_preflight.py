"""The screen of a diagnosis."""

from types import SimpleNamespace

from gpuops.collective.preflight.causes import Cause
from gpuops.report.page import Page
from gpuops.report.preflight import lines


def test_rendezvous_has_the_name_that_torchrun_gives_it():
    step = SimpleNamespace(name="meeting", state="fail", detail="n1:29500")
    diagnosis = SimpleNamespace(
        command=SimpleNamespace(launcher="torchrun"), hosts=("n1",), seconds=1.0, steps=(step,),
        causes=(Cause("meeting", ("n1",), "no port", "use another"),),
    )  # fmt: skip
    text = "\n".join(lines(diagnosis, Page()))
    assert "meeting" not in text
    assert text.count("rendezvous") == 2
