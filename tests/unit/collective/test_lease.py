import re

import pytest

from gpuops.collective.idleness.lease import Lease
from gpuops.collective.idleness.slurm import NODES, Slurm


@pytest.fixture
def machine(a_slurm):
    """A job runs on n2, and somebody drained n3."""
    return a_slurm(n1=("idle", "none"), n2=("allocated", "none"), n3=("drained", "fan swap"))


@pytest.fixture
def told():
    return []


@pytest.fixture
def lease(machine, told, tmp_path):
    return lambda mode, **more: Lease(mode, Slurm(machine), told.append, tmp_path / "leases", **more)


@pytest.fixture
def hosts(a_host):
    return [a_host(name) for name in ("n1", "n2", "n3", "n4")]


def during(lease, hosts, happens):
    """Leases the hosts, and lets something happen meanwhile."""
    with lease as held:
        held.take(hosts)
        happens()


NOT_TAKEN = {"n3": "drained in Slurm: fan swap", "n4": "cannot be leased: Slurm has no such node"}


def test_a_reservation_holds_the_free_nodes_and_is_given_back(lease, machine, hosts, told):
    with lease("reservation", minutes=30) as held:
        busy = "cannot be leased: Error creating the reservation: Requested nodes are busy"
        assert held.take(hosts) == {"n2": busy, **NOT_TAKEN}
        assert list(machine.reservations.values()) == ["n1"]
        assert re.fullmatch("gpuops-[0-9a-f]{8}-n1", *machine.reservations)
        assert machine.durations == {30}
    assert not machine.reservations
    assert not told


def test_a_drain_names_whose_it_is_and_is_given_back(lease, machine, hosts, told):
    with lease("drain") as held:
        assert held.take(hosts) == NOT_TAKEN
        assert re.fullmatch("gpuops:[0-9a-f]{8}", machine.states["n1"][1])
    assert machine.states["n1"] == ["idle", "none"]
    assert machine.states["n2"] == ["allocated", "none"]
    assert machine.states["n3"] == ["drained", "fan swap"]
    assert not told


def test_a_node_that_another_user_drains_meanwhile_stays_drained(lease, machine, hosts):
    with lease("drain") as held:
        held.take(hosts)
        machine.states["n1"] = ["drained", "smoke"]
    assert machine.states["n1"] == ["drained", "smoke"]
    assert machine.states["n2"] == ["allocated", "none"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("way", ["reservation", "drain"])
def test_what_was_taken_is_given_back_whatever_happens(lease, machine, hosts, error, way):
    def fail():
        assert machine.reservations or machine.states["n1"][0] == "drained"
        raise error

    with pytest.raises(error):
        during(lease(way), hosts[:1], fail)
    assert not machine.reservations
    assert machine.states["n1"] == ["idle", "none"]


@pytest.mark.parametrize("way", ["reservation", "drain"])
def test_an_interruption_while_nodes_are_taken_leaves_none_behind(lease, machine, hosts, way, monkeypatch):
    whole = machine.batch

    def interrupted(asked):
        whole(asked[:1])
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "batch", lambda asked: whole(asked) if asked == [NODES] else interrupted(asked))
    with pytest.raises(KeyboardInterrupt):
        during(lease(way), hosts[:2], pytest.fail)
    assert not machine.reservations
    assert machine.states["n1"] == ["idle", "none"]


def test_a_second_interruption_still_gives_back(lease, machine, hosts, monkeypatch):
    whole = machine.batch

    def interrupted(_asked):
        monkeypatch.setattr(machine, "batch", whole)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        during(lease("reservation"), hosts[:1], lambda: monkeypatch.setattr(machine, "batch", interrupted))
    assert not machine.reservations


@pytest.mark.parametrize("way", ["reservation", "drain"])
def test_what_cannot_be_given_back_is_told_with_what_to_do(lease, machine, hosts, told, way):
    with lease(way) as held:
        held.take(hosts[:1])
        machine.broken = "Unable to contact slurm controller"
    (sentence,) = told
    assert sentence.startswith("n1 ")
    assert "Unable to contact slurm controller" in sentence
    assert "scontrol delete ReservationName=gpuops-" in sentence or "gpuops:" in sentence


def test_without_a_way_nothing_is_taken_and_slurm_is_not_asked(lease, machine, hosts):
    machine.broken = "there is no Slurm"
    with lease("none") as held:
        assert held.take(hosts) == {}


def test_where_slurm_does_not_answer_nothing_can_be_leased(lease, machine, hosts):
    machine.broken = "Unable to contact slurm controller"
    with lease("reservation") as held:
        refused = held.take(hosts)
    assert list(refused) == ["n1", "n2", "n3", "n4"]
    assert all("Unable to contact" in why for why in refused.values())


@pytest.mark.parametrize("way", ["drain", "reservation"])
@pytest.mark.parametrize(("reason", "kept"), [("gpuops:new onboarding", True), ("gpuops:repair Xid 79", True),
                                              ("gpuops:deadbeef", False), ("gpuops: bob", False),
                                              ("fan swap", False)])  # fmt: skip
def test_a_node_that_gpuops_keeps_drained_needs_no_lease(machine, hosts, lease, way, reason, kept):
    machine.states["n3"] = ["drained", reason]
    with lease(way) as held:
        assert ("n3" not in held.take(hosts)) is kept
        assert machine.states["n3"] == ["drained", reason]
        assert "n3" not in machine.reservations.values()
    assert machine.states["n3"] == ["drained", reason]


def left_by_a_killed_run(lease, way, hosts):
    """Take a lease, and close its record as the kernel does when a process dies."""
    held = lease(way)
    held.take(hosts)
    held._record.close()
    return held


@pytest.mark.parametrize("way", ["drain", "reservation"])
def test_the_lease_of_a_killed_run_is_ended_by_the_next(lease, machine, hosts, told, tmp_path, way):
    left_by_a_killed_run(lease, way, hosts[:1])
    assert machine.reservations or machine.states["n1"][0] == "drained"
    with lease(way) as held:
        assert held.take(hosts[:1]) == {}
    assert told == ["ended the lease of a run that was killed: n1"]
    assert not machine.reservations
    assert machine.states["n1"] == ["idle", "none"]
    assert list((tmp_path / "leases").iterdir()) == []


@pytest.mark.parametrize("way", ["drain", "reservation"])
def test_the_lease_of_a_living_run_is_left_alone(lease, machine, hosts, told, way):
    with lease(way) as other:
        other.take(hosts[:1])
        before = [dict(machine.reservations), machine.states["n1"]]
        with lease(way) as held:
            held.take(hosts[1:2])
        assert [dict(machine.reservations), machine.states["n1"]] == before
    assert not told


def test_a_node_that_another_user_drained_after_the_run_was_killed_stays_drained(lease, machine, hosts, tmp_path):
    left_by_a_killed_run(lease, "drain", hosts[:1])
    machine.states["n1"] = ["drained", "smoke"]
    with lease("drain") as held:
        assert held.take(hosts[:1]) == {"n1": "drained in Slurm: smoke"}
    assert machine.states["n1"] == ["drained", "smoke"]
    assert list((tmp_path / "leases").iterdir()) == []


@pytest.mark.parametrize("way", ["drain", "reservation"])
def test_a_lease_that_slurm_did_not_end_is_ended_by_the_next_run(lease, machine, hosts, told, way):
    with lease(way) as held:
        held.take(hosts[:1])
        machine.broken = "Unable to contact slurm controller"
    with lease(way) as held:
        held.take(hosts[:1])
    machine.broken = ""
    with lease(way) as held:
        assert held.take(hosts[:1]) == {}
    assert told[-1] == "ended the lease of a run that was killed: n1"
    assert machine.states["n1"] == ["idle", "none"]
    assert not machine.reservations


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"mode": 1, "nodes": 2}', b"\xff"])
def test_a_damaged_record_of_a_lease_stops_nothing(lease, hosts, tmp_path, content):
    (tmp_path / "leases").mkdir(mode=0o700)
    (tmp_path / "leases" / "deadbeef").write_bytes(content)
    with lease("drain") as held:
        assert held.take(hosts[:1]) == {}
