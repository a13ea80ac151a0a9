"""``gpuops allreduce --engine tcp`` over hosts with links of their own: it names who is at fault, and nobody else."""

import pytest


@pytest.mark.parametrize("run", range(2))
def test_the_host_with_the_slow_link_is_named(links, allreduce, run):
    slow = f"n{run % 8 + 1}"
    links.shape(200, **{slow: 150})
    told = links.report(allreduce())
    assert links.accused(told) == {slow: "slow"}, told
    (accusation,) = told["accused"]
    assert accusation["found_gb_per_s"] == pytest.approx(150 / 8000, rel=0.1)
    assert accusation["expected_gb_per_s"] == pytest.approx(200 / 8000, rel=0.1)


@pytest.mark.parametrize("run", range(2))
def test_nobody_is_named_where_all_links_are_well(links, allreduce, run):
    process = allreduce()
    told = links.report(process)
    assert (links.accused(told), told["suspects"], process.returncode) == ({}, [], 0), told
    assert len(told["nodes"]) == 8


def test_a_link_that_goes_down_in_mid_run_is_named_and_the_others_finish(links, allreduce):
    process = allreduce("--seconds", "3")
    links.wait_until_busy(process, "n3")
    links.run("ip link set port-n3 down")
    told = links.report(process)
    assert links.accused(told) | dict.fromkeys(told["left"], "unreachable") == {"n3": "unreachable"}, told
    (rail,) = told["matrix"]
    assert all(rail["gb_per_s"][name] > 0.02 for name in links.network.addresses if name != "n3"), told
    links.run("ip link set port-n3 up")
    assert links.are_left_alone(seconds=30)


def test_a_process_that_is_stopped_in_mid_run_is_named_as_hanging(links, allreduce):
    process = allreduce("--seconds", "3")
    links.wait_until_busy(process, "n6")
    links.stop_worker("n6")
    told = links.report(process)
    assert links.accused(told) == {"n6": "hang"}, told
    assert links.are_left_alone()


def test_nothing_is_left_on_any_host_after_ctrl_c(links, allreduce):
    process = allreduce("--seconds", "30")
    links.wait_until_busy(process, "n1")
    links.interrupt(process)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert links.are_left_alone()
