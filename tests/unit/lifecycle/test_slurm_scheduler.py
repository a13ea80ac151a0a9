import pytest

from gpuops.collective.idleness.slurm import Slurm
from gpuops.lifecycle.slurm import SlurmScheduler

HAND_OVER = "scontrol update NodeName=theirs State=DRAIN Reason=gpuops:new"


@pytest.fixture
def machine(a_slurm):
    return a_slurm(
        free=("idle", "none"),
        busy=("allocated", "none"),
        ours=("drained", "gpuops:drained fan swap"),
        theirs=("drained", "fan swap, T812"),
        leased=("drained", "gpuops:1f2e3d4c"),
        bare=("drained", "gres/gpu count reported lower than configured (0 < 8)"),
        down=("down*", "Not responding"),
    )


@pytest.fixture
def scheduler(machine):
    return SlurmScheduler(Slurm(machine), sleep=lambda _: None)


@pytest.fixture
def hosts(a_host):
    return lambda *names: [a_host(name) for name in names]


def test_a_drain_bears_the_state_and_the_reason(scheduler, machine, hosts):
    assert scheduler.drain(hosts("free", "busy"), "repair", "Xid 79,\nT123") == {}
    assert machine.states["free"] == ["drained", "gpuops:repair Xid 79, T123"]
    assert machine.states["busy"] == ["draining", "gpuops:repair Xid 79, T123"]


@pytest.mark.parametrize("name", ["down", "bare"])
def test_what_slurm_itself_found_wanting_is_closed_and_opened_by_us(scheduler, machine, hosts, name):
    scheduler.drain(hosts(name), "new", "onboarding")
    assert machine.states[name][1] == "gpuops:new onboarding"
    assert scheduler.resume(hosts(name)) == {}
    assert machine.states[name] == ["idle", "none"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("theirs", f"drained by another user: drained (fan swap, T812); to hand it over: {HAND_OVER}"),
        ("leased", "another gpuops is measuring it: drained (gpuops:1f2e3d4c)"),
    ],
)
def test_what_others_closed_keeps_their_reason_and_is_not_opened(scheduler, machine, hosts, name, told):
    before = list(machine.states[name])
    assert scheduler.drain(hosts(name), "repair", "Xid 79") == {}
    assert scheduler.resume(hosts(name)) == scheduler.drained_by_others(hosts(name)) == {name: told}
    assert machine.states[name] == before


def test_only_what_others_closed_is_theirs(scheduler, hosts):
    every_kind = hosts("free", "busy", "ours", "theirs", "leased", "bare", "down", "none")
    assert list(scheduler.drained_by_others(every_kind)) == ["theirs", "leased"]


def test_what_we_closed_is_opened(scheduler, machine, hosts):
    assert scheduler.resume(hosts("ours", "free")) == {}
    assert machine.states["ours"] == machine.states["free"] == ["idle", "none"]


def test_our_own_reason_may_change(scheduler, machine, hosts):
    scheduler.drain(hosts("ours"), "repair", "worse")
    assert machine.states["ours"][1] == "gpuops:repair worse"


def test_a_node_that_stays_away_is_reported(scheduler, machine, hosts):
    machine.away.add("ours")
    assert scheduler.resume(hosts("ours"))["ours"] == "resumed, but still down (Not responding)"


def test_a_node_that_slurm_does_not_know_takes_no_jobs_and_cannot_be_opened(scheduler, hosts):
    assert scheduler.drain(hosts("other"), "new", "onboarding") == {}
    assert scheduler.resume(hosts("other")) == {"other": "Slurm has no such node"}


def test_only_what_is_drained_to_the_end_is_empty(scheduler, machine, hosts):
    machine.states["ending"] = ["draining", "gpuops:drained x"]
    busy = scheduler.still_busy(hosts("free", "busy", "ours", "theirs", "ending", "down"))
    assert list(busy) == ["free", "busy", "ending"]
    assert busy["ending"] == "draining (gpuops:drained x) in Slurm"


def test_a_slurm_that_does_not_answer_hinders_everything(scheduler, machine, hosts):
    machine.broken = "slurm_load_node error: Unable to contact slurm controller"
    for told in (
        scheduler.drain(hosts("free"), "repair", "x"),
        scheduler.resume(hosts("free")),
        scheduler.still_busy(hosts("free")),
    ):
        assert "Unable to contact" in told["free"]


@pytest.mark.parametrize("reason", ["gpuops:quarantine leaks", "gpuops: image test, bob", "none"])
def test_a_reason_that_only_looks_like_ours_is_another_users(scheduler, machine, hosts, reason):
    machine.states["ours"] = ["drained", reason]
    assert list(scheduler.resume(hosts("ours"))) == ["ours"]
    assert machine.states["ours"] == ["drained", reason]
