import itertools
from datetime import datetime, timezone

import pytest

from gpuops.collective.network_tests import verdicts
from gpuops.collective.network_tests.perftest import disjoint
from gpuops.collective.network_tests.verdicts import NetworkFailure, exclusions, partners
from gpuops.facts import Facts
from gpuops.inventory import Port
from gpuops.probes.host.limits import Limit
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort
from gpuops.probing import Unknown
from gpuops.reasons import Excluded

NODES = [f"n{number}" for number in range(6)]
ALL = list(itertools.permutations(NODES, 2))


def named(failures):
    return {failure.nodes: failure.why for failure in failures}


def test_up_to_a_number_of_nodes_all_pairs_are_tried_and_above_it_some_of_each():
    assert sorted((a, b) for a, others in partners(NODES, 6).items() for b in others) == sorted(ALL)
    some = partners(NODES, 5)
    assert some["n0"] == ("n1", "n2", "n4")
    assert some["n5"] == ("n0", "n1", "n3")
    thousand = partners([str(n) for n in range(1000)])
    assert {len(others) for others in thousand.values()} == {10}
    assert all(node not in others for node, others in thousand.items())
    assert partners(["alone"]) == {"alone": ()}
    assert partners([]) == {}


def test_a_blocked_pair_is_named_as_a_pair():
    (failure,) = verdicts.connections({("n1", "n4"): "refused", ("n4", "n1"): "refused"}, ALL)
    assert failure.nodes == ("n1", "n4")
    assert failure.why == "n1 cannot connect to n4: refused"


def test_a_node_that_no_other_reaches_is_named_itself():
    blocked = {(other, "n3"): "no answer" for other in NODES if other != "n3"}
    assert named(verdicts.connections(blocked, ALL)) == {("n3",): "5 of 5 nodes cannot connect to it: no answer"}


def test_a_node_that_reaches_no_other_is_named_itself():
    blocked = {("n3", other): "no route" for other in NODES if other != "n3"}
    assert named(verdicts.connections(blocked, ALL)) == {("n3",): "it cannot connect to 5 of 5 nodes: no route"}


def test_two_nodes_and_a_pair_of_others_are_told_apart():
    cut = {(a, b): "no answer" for a, b in ALL if "n0" in (a, b) or "n5" in (a, b)}
    found = verdicts.connections({**cut, ("n2", "n1"): "refused"}, ALL)
    assert set(named(found)) == {("n0",), ("n5",), ("n2", "n1")}


def test_of_two_nodes_none_can_be_blamed():
    two = [("n0", "n1"), ("n1", "n0")]
    assert set(named(verdicts.connections(dict.fromkeys(two, "no answer"), two))) == {("n0", "n1")}


def test_halves_that_do_not_reach_each_other_are_nobodys_fault():
    side = dict.fromkeys(NODES[:3], 0) | dict.fromkeys(NODES[3:], 1)
    blocked = {(a, b): "no answer" for a, b in ALL if side[a] != side[b]}
    gone = exclusions(verdicts.connections(blocked, ALL), NODES)
    assert len(gone) == 3
    assert len({side[node] for node in gone}) == 1


def test_nothing_blocked_is_no_failure():
    assert not list(verdicts.connections({}, ALL))


def test_the_fewest_nodes_leave_and_of_equals_the_later():
    pairs = [NetworkFailure("tcp", pair, f"{pair}", "") for pair in (("n1", "n2"), ("n2", "n3"), ("n4", "n5"))]
    assert set(exclusions(pairs, NODES)) == {"n2", "n5"}
    alone = NetworkFailure("clocks", ("n2",), "late", "set it")
    gone = exclusions([*pairs, alone], NODES)
    assert set(gone) == {"n2", "n5"}
    assert gone["n2"] == Excluded("n2", "defective", "clocks: late", do="set it")


OWNERS = {"one": "n0", "two": "n1", "three": "n2"}


def resolved(**places):
    return {name: {"addresses": [place]} if place[0].isdigit() else {"error": place} for name, place in places.items()}


def test_a_name_that_nobody_resolves_is_the_fault_of_its_node():
    told = {node: resolved(one="10.0.0.1", two="Name or service not known") for node in NODES}
    assert named(verdicts.names(told, OWNERS)) == {("n1",): "6 of 6 nodes cannot resolve it: Name or service not known"}


def test_a_node_that_resolves_no_name_is_at_fault_itself():
    good = resolved(one="10.0.0.1", two="10.0.0.2", three="10.0.0.3")
    told = {**dict.fromkeys(NODES, good), "n4": resolved(one="no", two="no", three="no")}
    assert set(named(verdicts.names(told, OWNERS))) == {("n4",)}


def test_a_name_may_be_the_machine_itself_only_on_itself():
    loop = resolved(one="127.0.1.1")
    assert not list(verdicts.names({"n0": loop, "n1": resolved(one="10.0.0.1")}, OWNERS))
    found = named(verdicts.names({"n1": loop, "n2": loop, "n3": loop}, OWNERS))
    assert found == {("n0",): "3 of 3 nodes cannot resolve it: it resolves to 127.0.1.1, the machine itself"}


def test_who_finds_another_address_than_the_others_is_named():
    told = {**dict.fromkeys(NODES[1:], resolved(one="10.0.0.1")), "n5": resolved(one="10.9.9.9")}
    assert named(verdicts.names(told, OWNERS)) == {("n5",): "n0 resolves to 10.9.9.9 here and to 10.0.0.1 elsewhere"}


def test_a_clock_is_judged_against_the_median_and_never_within_the_doubt():
    times = {"n0": 1000.0, "n1": 1000.4, "n2": 1000.2, "n3": 4600.0, "n4": 998.0}
    assert named(verdicts.clocks(times, 0.5)) == {
        ("n3",): "its clock is 3600 s ahead of the others'",
        ("n4",): "its clock is 2 s behind the others'",
    }
    assert set(named(verdicts.clocks(times, 2.0))) == {("n3",)}
    assert not list(verdicts.clocks({}, 0.0))


def test_of_two_clocks_that_differ_the_one_is_off_that_this_machine_does_not_have():
    times = {"n1": 1000.0, "n2": 1300.0}
    assert set(named(verdicts.clocks(times, 0.5, here=1000.2))) == {("n2",)}
    assert set(named(verdicts.clocks(times, 0.5, here=1299.0))) == {("n1",)}
    assert not list(verdicts.clocks({"n1": 1000.0}, 0.5, here=9000.0))


def sent(mtu=9000, *, small=True, whole=True, path=None):
    return {"mtu": mtu, "small": small, "whole": whole, "path_mtu": path or mtu}


def test_an_mtu_that_differs_is_named():
    told = {(a, b): sent(1500 if a == "n2" else 9000) for a, b in ALL}
    assert named(verdicts.packets(told)) == {("n2",): "its MTU is 1500, but 9000 on the others"}


def test_whole_packets_that_do_not_arrive_are_told_with_what_the_way_takes():
    told = {pair: sent() for pair in ALL}
    told["n1", "n4"] = sent(whole=False, path=1500)
    why = "packets of 9000 bytes do not arrive; the path allows 1500"
    assert named(verdicts.packets(told)) == {("n1", "n4"): f"n1 cannot send full-size packets to n4: {why}"}


def test_where_datagrams_do_not_pass_at_all_nothing_is_said_of_their_size():
    told = {pair: sent(small=False, whole=False) for pair in ALL}
    assert not list(verdicts.packets(told))
    assert not list(verdicts.packets({("n0", "n1"): {"error": "Network is unreachable"}}))


def facts(node, ports=(), table=(), lock=None):
    values = {"ib_ports": ports, "gids": table, "limits": {"Max locked memory": Limit(lock, lock)}}
    return Facts(node, datetime.now(timezone.utc), values)


def port(device="mlx5_0", state="Active", layer="Ethernet", number=1):
    return IbPort(device, number, state, "LinkUp", 400.0, layer)


def test_memory_that_may_be_locked_is_unlimited_or_enough():
    told = {n: facts(n, lock=lock) for n, lock in (("n0", None), ("n1", 65536), ("n2", 16 << 30), ("n3", 1 << 30))}
    assert set(named(verdicts.memory(told))) == {("n1",), ("n3",)}


V2 = Gid("mlx5_0", 1, 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth2")
V1 = Gid("mlx5_0", 1, 2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth2")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"ports": (port(),), "table": (V1, V2)}, None),
        ({"ports": ()}, "mlx5_0 is missing"),
        ({"ports": (port(state="Down"),)}, "mlx5_0 is Down"),
        ({"ports": (port(layer="InfiniBand"),)}, "mlx5_0 uses InfiniBand here and Ethernet elsewhere"),
        ({"ports": (port(),), "table": (V1,)}, "mlx5_0 has no RoCE v2 GID"),
        ({"ports": (port(),), "table": Unknown("/sys cannot be read")}, None),
        ({"ports": Unknown("/sys cannot be read")}, "mlx5_0 is missing"),
        ({"ports": (port(), port("mlx5_9", "Down"))}, None),
    ],
)
def test_rails_are_alike_on_all_nodes(a_host, other, why):
    told = {node: facts(node, (port(),), (V1, V2)) for node in NODES} | {"n2": facts("n2", **other)}
    hosts = {node: a_host(node) for node in NODES}
    assert named(verdicts.rdma(hosts, told)) == ({("n2",): why} if why else {})


def test_only_declared_rails_count_where_the_inventory_declares_them(a_host):
    told = {node: facts(node, (port("mlx5_0"), port("mlx5_1", "Down")), (V2,)) for node in NODES}
    declared = {"mlx5_0": Port(0), "mlx5_1": Port(1)}
    hosts = {node: a_host(node, fabric=declared if node == "n3" else {}) for node in NODES}
    assert named(verdicts.rdma(hosts, told)) == {("n3",): "mlx5_1 is Down"}


def test_nodes_without_rdma_have_nothing_to_agree_on(a_host):
    assert not list(verdicts.rdma({n: a_host(n) for n in NODES}, {n: facts(n) for n in NODES}))


LINES = {(node, device): 400.0 for node in NODES for device in ("mlx5_0", "mlx5_1")}


def test_an_hca_that_is_slow_with_all_its_partners_is_named_and_else_the_pair():
    written = {
        ("n0", "n1", "mlx5_0"): 390.0,
        ("n1", "n2", "mlx5_0"): 240.0,
        ("n2", "n3", "mlx5_0"): None,
        ("n3", "n4", "mlx5_0"): 395.0,
        ("n4", "n5", "mlx5_0"): 359.0,
        ("n5", "n0", "mlx5_0"): 361.0,
        ("n1", "n2", "mlx5_1"): 390.0,
    }
    assert named(verdicts.rails(written, LINES)) == {
        ("n2",): "mlx5_0 writes 240 of 400 Gbit/s with n1 and n3",
        ("n4", "n5"): "mlx5_0 writes 359 of 400 Gbit/s",
    }


def test_who_writes_slowly_stays_and_who_cannot_write_at_all_leaves():
    slow, broken = (list(verdicts.rails({("n0", "n1", "mlx5_0"): found}, LINES)) for found in (200.0, None))
    assert exclusions(slow, NODES) == {}
    (gone,) = exclusions(broken, NODES).values()
    assert (gone.host, gone.kind, gone.why) == ("n1", "defective", "ib_write_bw: mlx5_0 fails")


def test_the_slower_port_sets_the_line():
    assert not list(verdicts.rails({("n0", "n1", "mlx5_0"): 190.0}, {**LINES, ("n1", "mlx5_0"): 200.0}))
    (pair,) = verdicts.rails({("n0", "n1", "mlx5_0"): None}, LINES)
    assert (pair.nodes, pair.why) == (("n0", "n1"), "mlx5_0 fails")


@pytest.mark.parametrize("count", range(9))
def test_rounds_of_pairs_are_disjoint_and_every_node_meets_two_others(count):
    nodes = NODES[:count] if count <= 6 else [*NODES, "n6", "n7"][:count]
    rounds = disjoint(nodes)
    for pairs in rounds:
        met = [node for pair in pairs for node in pair]
        assert len(met) == len(set(met))
    partners_of = {node: {*itertools.chain(*(p for r in rounds for p in r if node in p))} - {node} for node in nodes}
    assert {len(met) for met in partners_of.values()} <= {min(2, max(0, count - 1))}
    assert len(rounds) <= 3
