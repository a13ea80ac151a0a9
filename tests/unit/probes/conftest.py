import pytest

from gpuops.shell import Completed


@pytest.fixture(scope="session")
def files_text():
    """The text that a node answers to `Files`, from {path: content}."""
    return lambda files: "".join(f"{path}\0{content}\0" for path, content in files.items())


@pytest.fixture(scope="session")
def answer():
    """What comes back for a probe's question."""
    return lambda probe, out="", err="", status=0, **more: Completed("n1", probe.question, status, out, err, **more)
