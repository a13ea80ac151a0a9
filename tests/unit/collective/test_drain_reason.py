import pytest

from gpuops.collective.idleness.drain_reason import (
    DrainReason,
    lease_reason,
    lifecycle_reason,
    parse_drain_reason,
)
from gpuops.lifecycle.states import STATES


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("why", ["Xid 79", ""])
def test_a_state_of_the_life_is_read_back(state, why):
    text = lifecycle_reason(state, why)
    assert parse_drain_reason(text) == DrainReason(text, "lifecycle", state)


def test_a_lease_is_read_back_by_its_token():
    assert parse_drain_reason(lease_reason("1f2e3d4c")) == DrainReason("gpuops:1f2e3d4c", "lease", "1f2e3d4c")


def test_a_reason_is_one_line():
    assert lifecycle_reason("repair", "Xid 79,\n  T123") == "gpuops:repair Xid 79, T123"


@pytest.mark.parametrize("text", ["", "none"])
def test_without_a_reason_nobody_drained_it(text):
    assert parse_drain_reason(text) == DrainReason("", "", "")


@pytest.mark.parametrize(
    "text",
    ["Not responding", "Node unexpectedly rebooted", "gres/gpu count reported lower than configured (0 < 8)",
     "Low RealMemory (reported:1 < 100.00% of configured:2)"],
)  # fmt: skip
def test_what_slurm_found_wanting_is_known_by_its_beginning(text):
    assert parse_drain_reason(text) == DrainReason(text, "slurm")


@pytest.mark.parametrize(
    "text",
    ["fan swap", "repair", "gpuops", "gpuops:", "gpuops: repair", "gpuops:1F2E3D4C", "GPUOPS:repair",
     "gpuops:repair,again", "see gpuops:repair"],
)  # fmt: skip
def test_anything_else_is_another_users(text):
    assert parse_drain_reason(text) == DrainReason(text, "other")
