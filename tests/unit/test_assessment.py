"""Assessment of several nodes: what one node alone cannot decide."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.assessment import assess
from gpuops.facts import Facts
from gpuops.isolation.node_evidence import all_reduce
from gpuops.judging import check
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@check(needs=all_reduce, scope="group", tags=("standard",))
def all_reduce_bandwidth(_values, _profile):
    """It is fast."""
    yield from ()


def node(name, gpus):
    return Facts(name, NOW, {"smi": SimpleNamespace(gpus=[object()] * gpus), "all_reduce": Unknown("not measured")})


@pytest.mark.parametrize(
    ("gpus", "status"),
    [((1,), "skipped"), ((2,), "unknown"), ((1, 1), "unknown")],
)
def test_all_reduce_is_skipped_only_if_there_is_one_gpu(gpus, status):
    facts = {f"n{i}": node(f"n{i}", count) for i, count in enumerate(gpus)}
    verdicts = assess([all_reduce_bandwidth], facts, dict.fromkeys(facts, NO_PROFILE))
    assert {(v.status, v.not_measured) for v in verdicts} == {(status, status == "unknown")}
