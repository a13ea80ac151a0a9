import pytest

from gpuops.launching.plan import JobPlan, NodePlan, Seat


def seats(first, count, uuid=""):
    return tuple(Seat(first + i, i, i, uuid, {"tp": (first + i) % 2, "dp": (first + i) // 2}) for i in range(count))


@pytest.fixture
def plan(tmp_path):
    """Return a plan of two nodes with two ranks each, which run ``command`` in ``tmp_path``."""

    def make(*command, environment=None):
        nodes = (NodePlan("n1", seats(0, 2)), NodePlan("n2", seats(2, 2)))
        axes = (("tp", 2), ("dp", 2))
        return JobPlan(
            "direct", "train", "dp=2,tp=2", axes, "n1", 29500, nodes, str(tmp_path), command, "", environment or {}
        )

    return make
