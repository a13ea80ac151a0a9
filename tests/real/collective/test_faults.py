"""What breaks between hosts with links of their own is named: the right host, in the right words, before long."""

import json
import time

import pytest

THREE = ("n1", "n2", "n3")
SOON_SECONDS = 20  # about half of it is usual, but other tests may use this machine's cores meanwhile
ALL_PORTS_BUT_SSH = ("tcp dport 22 accept", "meta l4proto tcp drop")


@pytest.fixture
def firewall(links, need):
    """Rules for what n3 receives, which go again at the end."""
    need("nft")
    yield lambda *rules: links.filter("n3", *rules)
    links.filter("n3")


def told_of(links, process):
    """The report, and the seconds until then."""
    began = time.monotonic()
    return links.report(process), time.monotonic() - began


def test_killed_worker_is_an_error_of_its_host_with_its_signal(links, drive):
    process = drive(2, 3, "n1", "n2", "n3", "n4")
    for _ in range(2):
        drive.wait_for_round(process)
        links.kill_worker("n3")
    figures = drive.figures(process)
    hit = [figure for figure in figures if "n3" in figure["nodes"]]
    assert len(hit) == 2
    for figure in hit:
        assert (figure["trouble"], figure["absent"], figure["mb_per_s"]) == ("error", ["n3"], None)
        assert "n3: the worker ended by signal 9" in figure["detail"]
    assert all(figure["mb_per_s"] > 15 for figure in figures if figure not in hit), figures


def test_worker_killed_in_a_run_is_mentioned(links, allreduce):
    process = allreduce("--seconds", "2", on=THREE)
    links.wait_until_busy(process, "n3")
    links.kill_worker("n3")
    told = links.report(process)
    assert "n3: the worker ended by signal 9" in json.dumps(told)
    assert process.returncode in (1, 3)


def test_black_hole_in_mid_round_is_named_and_soon(links, allreduce, firewall):
    process = allreduce("--seconds", "2", on=("n3", "n4"))
    links.wait_until_busy(process, "n3")
    firewall("drop")
    told, seconds = told_of(links, process)
    assert links.accused(told) == {"n3": "unreachable"}, told
    assert told["excluded"]["n3"]["kind"] == "lost"
    assert process.returncode == 1
    assert seconds < SOON_SECONDS


def test_link_that_goes_down_in_mid_round_is_named_and_soon(links, allreduce):
    process = allreduce("--seconds", "2", on=("n3", "n4"))
    links.wait_until_busy(process, "n3")
    links.run("ip link set port-n3 down")
    told, seconds = told_of(links, process)
    assert links.accused(told) == {"n3": "unreachable"}, told
    assert process.returncode == 1
    assert seconds < SOON_SECONDS


def test_black_hole_before_the_run_is_named_and_soon(links, allreduce, firewall):
    firewall("drop")
    told, seconds = told_of(links, allreduce("--seconds", "0.25", "--scope", "group", on=THREE))
    assert (links.accused(told), list(told["excluded"]), told["nodes"]) == ({}, ["n3"], ["n1", "n2"])
    assert (told["excluded"]["n3"]["kind"], told["excluded"]["n3"]["unreachable"]) == ("unreachable", "timeout")
    assert seconds < SOON_SECONDS + 5  # two hosts are measured, too


def test_closed_ports_before_the_run_exclude_the_host(links, allreduce, firewall):
    firewall(*ALL_PORTS_BUT_SSH)
    process = allreduce("--seconds", "0.25", "--scope", "group", on=THREE)
    told, seconds = told_of(links, process)
    assert (links.accused(told), told["excluded"]["n3"]["kind"], told["nodes"]) == ({}, "defective", ["n1", "n2"])
    assert "2 of 2 nodes cannot connect to it" in told["excluded"]["n3"]["why"]
    assert process.returncode == 1
    assert seconds < SOON_SECONDS + 5


def test_one_port_that_closes_in_mid_run_is_the_host_that_closed_it(links, drive, firewall):
    process = drive(1, 3, "n1", "n2", "n3", "n4")
    drive.wait_for_round(process)
    firewall(*ALL_PORTS_BUT_SSH[:1], f"tcp dport {links.worker_port('n3')} drop", "tcp sport 1024-65535 drop")
    began = time.monotonic()
    figures = drive.figures(process)
    (hit,) = [figure for figure in figures if "n3" in figure["nodes"]]
    assert hit["trouble"] == "unreachable", hit
    assert "n3" in hit["absent"]
    assert time.monotonic() - began < SOON_SECONDS


def test_link_that_is_down_for_a_second_blames_no_host(links, allreduce):
    process = allreduce("--seconds", "2", on=THREE)
    links.wait_until_busy(process, "n3")
    links.run("ip link set port-n3 down; sleep 1; ip link set port-n3 up")
    told = links.report(process)
    assert (links.accused(told), told["excluded"], process.returncode) == ({}, {}, 0), told


def test_pairs_of_a_host_that_loses_packets_are_slow(links, drive, firewall):
    firewall("tcp dport 22 accept", "numgen random mod 100 < 20 drop")
    figures = drive.figures(drive(2, 0.5, "n1", "n2", "n3", "n4"))
    lossy = [figure for figure in figures if "n3" in figure["nodes"]]
    assert len(lossy) == 2
    for figure in lossy:
        assert figure["trouble"] in ("", "hang"), figure
        assert (figure["mb_per_s"] or 0) < 15, figure
    assert all(figure["mb_per_s"] > 15 for figure in figures if figure not in lossy), figures


def test_host_that_is_shaped_is_slow(links, allreduce):
    links.shape(200, n3=120)
    told = links.report(allreduce("--seconds", "0.25", on=("n1", "n2", "n3", "n4")))
    assert links.accused(told) == {"n3": "slow"}, told
