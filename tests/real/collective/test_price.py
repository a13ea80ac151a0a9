"""A link gets slow: the plan's estimates change by what the jobs then measure, from what the all-reduce blamed."""

import pytest
from tests.real.collective.conftest import ADDRESSES
from tests.real.collective.jobs import Planned, layouts_of, trained

from gpuops.cancellation import CancelToken
from gpuops.cluster import Cluster
from gpuops.operations.past.recall import accusations
from gpuops.operations.planning.machines import as_measured

pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gpuops[launch]')")

LAYOUTS = layouts_of("dp=8,mbs=2", "dp=4,tp=2,mbs=4")
MBIT, SLOW = 50, 25
STEPS = 3
WITHIN = 0.15
"""How far the estimated change may be from the measured one, as a fraction of it.

Each job's own time with good links calibrates its estimate. Whatever gloo takes longer than links of 95 % of their rate
counts as computing there, which a slow link does not stretch: at the 80 % that were seen, 10 % of the change. The
fastest of a few steps repeats within 5 %. A plan without the slow link would be wrong by 30 % and more.
"""


def planned(links, cluster):
    """Return the machines of a plan on all hosts, by what the store has of them."""
    with Cluster.open(links.inventory()) as hosts:
        work = hosts._workspace("plan", CancelToken())
        return as_measured(work, cluster, tuple(ADDRESSES), {}, accusations(work))


@pytest.mark.long
def test_estimates_change_with_a_slow_link_as_the_jobs_do(links, allreduce):
    links.shape(MBIT)
    before = [each["seconds"] for each in trained(links, LAYOUTS, STEPS)]
    links.shape(MBIT, n3=SLOW)
    assert links.accused(links.report(allreduce("--seconds", "0.5"))) == {"n3": "slow"}
    after = [each["seconds"] for each in trained(links, LAYOUTS, STEPS)]
    for layout, good, bad in zip(LAYOUTS, before, after, strict=True):
        plan = Planned([layout], MBIT)
        machines = planned(links, plan.calibrated(0, good))
        (slow,) = machines.slow_parts
        assert (slow.node, slow.kept) == ("n3", pytest.approx(SLOW / MBIT, rel=0.1))
        (healthy,), (estimated,) = plan.seconds(machines.healthy), plan.seconds(machines.cluster)
        assert estimated > (1 + 2 * WITHIN) * healthy, "the links, and not the cores, are what these jobs wait for"
        assert estimated / healthy == pytest.approx(bad / good, rel=WITHIN), (layout, good, bad, slow)
