from types import SimpleNamespace

import pytest

from gpuops.bandwidth import Cap, ExpectedBandwidth
from gpuops.collective.engines import Curve, Point, Sweep
from gpuops.collective.session import Snapshot
from gpuops.collective.sharp import SETTINGS, SharpComparison, compare
from gpuops.collective.sharp_session import _comparisons, _plan
from gpuops.collective.sweep_session import SweepSession
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup
from gpuops.probes.nvidia.nccl_log import parse_nccl_log
from gpuops.reasons import Excluded

NODE, ALL = RankGroup(("a",)), RankGroup(("a", "b"))


def expected(rate, grade="measured-published"):
    cap = Cap("NVLink", rate, "", "", grade)
    return ExpectedBandwidth(rate, "NVLink", (cap,), grade, "nvls", 1 << 30)


def runs(feature, index, algorithm, *rates, group=NODE, log="", trouble=""):
    """Return one curve for each rate; None is a failed run."""
    sweep = Sweep(group, (1 << 30,), SETTINGS[feature][index])
    parsed = parse_nccl_log(log)
    return [
        Curve(sweep, (Point(1 << 30, 1.0, rate, algorithm=algorithm),), log=parsed)
        if rate
        else Curve(sweep, (), trouble or "error", detail="it broke", log=parsed)
        for rate in rates
    ]


MULTICAST = "h:1:1 [0] NCCL INFO NVLS multicast support is {}available on dev 0\n"
OFF = ("nvls", 1, "RING/SIMPLE", 366.0, 364.0, 365.0)
H100 = (expected(466.0), expected(365.0, "guess"))


@pytest.mark.parametrize(
    ("on", "published", "status", "is_fault"),
    [
        (("NVLS/SIMPLE", 470.0, 475.0, 468.0), H100, "faster", False),
        (("NVLS/SIMPLE", 470.0, 475.0, 365.5), H100, "not-faster", True),
        (("NVLS/SIMPLE", 300.0, 301.0, 302.0), (None, None), "not-faster", False),
        (("RING/SIMPLE", 365.0, 366.0, 366.0), H100, "inactive", True),
        (("RING/SIMPLE", 365.0, 366.0, 366.0), (None, None), "inactive", False),
        (("", 470.0, 475.0, 468.0), H100, "unknown", False),
        (("NVLS/SIMPLE", None, None), H100, "fails", True),
        (("NVLS/SIMPLE", 470.0, None, 470.0), H100, "unknown", False),
    ],
)
def test_status_of_nvlink_sharp_comes_from_the_algorithm_and_all_runs(on, published, status, is_fault):
    algorithm, *rates = on
    found = compare("nvls", runs("nvls", 0, algorithm, *rates), runs(*OFF), published)
    assert (found.status, found.is_fault, bool(found.do)) == (status, is_fault, is_fault)
    assert bool(found.why) == (status != "faster")


@pytest.mark.parametrize(
    ("published", "status", "is_fault", "do"),
    [((None, None), "unsupported", False, ""), (H100, "inactive", True, "nvidia-fabricmanager")],
)
def test_gpus_without_multicast_are_a_fault_only_where_it_is_published(published, status, is_fault, do):
    on = runs("nvls", 0, "RING/SIMPLE", 365.0, 366.0, 366.0, log=MULTICAST.format("not "))
    found = compare("nvls", on, runs(*OFF), published)
    assert (found.status, found.is_fault) == (status, is_fault)
    assert do in found.do


def test_setting_that_does_not_reach_the_ranks_is_unknown():
    both = compare("nvls", runs("nvls", 0, "NVLS/SIMPLE", 470.0), runs("nvls", 1, "NVLS/SIMPLE", 470.0), H100)
    assert (both.status, both.is_fault) == ("unknown", False)
    assert "did not reach the ranks" in both.why


def test_failure_without_the_feature_is_not_its_fault():
    off = runs("nvls", 1, "RING/SIMPLE", None, None)
    assert compare("nvls", runs("nvls", 0, "NVLS/SIMPLE", None, None), off, H100).status == "unknown"
    assert compare("nvls", runs("nvls", 0, "NVLS/SIMPLE", 470.0), off, H100).status == "unknown"


@pytest.mark.parametrize(
    ("algorithm", "active"),
    [
        ("COLLNET_DIRECT/SIMPLE", True),
        ("COLLNET_CHAIN/SIMPLE", True),
        ("NVLS/SIMPLE", True),
        ("NVLS_TREE/SIMPLE", False),
    ],
)
def test_switches_between_nodes_reduce_with_collnet_and_nvls_but_not_with_a_tree(algorithm, active):
    on = runs("sharp", 0, algorithm, 450.0, 451.0, group=ALL)
    off = runs("sharp", 1, "NVLS_TREE/SIMPLE", 360.0, 361.0, group=ALL)
    assert compare("sharp", on, off).status == ("faster" if active else "inactive")


WARNING = "h:1:1 [0] NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n"
CONNECTED = "h:1:1 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n"


@pytest.mark.parametrize(
    ("log", "why", "advised"),
    [
        (WARNING, "it warned: Cannot initialize CollNet", True),
        (CONNECTED, "although CollNet is connected", False),
        ("", "connected no CollNet", True),
    ],
)
@pytest.mark.parametrize("has_sharp", [True, False])
def test_inactive_sharp_is_a_fault_only_if_the_inventory_says_it_is_there(log, why, advised, has_sharp):
    on = runs("sharp", 0, "NVLS_TREE/SIMPLE", 360.0, 361.0, group=ALL, log=log)
    off = runs("sharp", 1, "NVLS_TREE/SIMPLE", 360.0, 361.0, group=ALL)
    found = compare("sharp", on, off, has_sharp=has_sharp)
    assert (found.status, found.is_fault, bool(found.do)) == ("inactive", has_sharp, advised)
    assert why in found.why


class Engine:
    """An engine that records what it runs; ``fails`` maps a setting's value to a trouble."""

    def __init__(self, **fails):
        self.fails, self.ran = fails, []

    def sweep(self, sweeps):
        self.ran.append([(s.group.nodes, *s.environment.items()) for s in sweeps])
        return tuple(
            Curve(s, (), "error") if next(iter(s.environment)) in self.fails else Curve(s, (Point(1, 1.0, 1.0),))
            for s in sweeps
        )


def fabric(layer="InfiniBand", gpus=8):
    nics = (FabricNic("mlx5_0", 0, 50.0, link_layer=layer),)
    return Fabric({name: FabricNode(name, tuple(range(gpus)), nics) for name in "ab"})


def test_each_setting_runs_three_times_in_turn_within_nodes_then_between_them():
    session, engine = SweepSession(["a", "b"]), Engine()
    session.run(engine, _plan(fabric(), None), lambda _nodes: Snapshot())
    within = [[((n,), ("NCCL_NVLS_ENABLE", value)) for n in "ab"] for value in "202020"]
    between = [[(("a", "b"), ("NCCL_COLLNET_ENABLE", value))] for value in "101010"]
    assert engine.ran == within + between


def test_setting_that_fails_twice_does_not_run_again():
    session, engine = SweepSession(["a", "b"]), Engine(NCCL_COLLNET_ENABLE="error")
    session.run(engine, _plan(fabric(), None), lambda _nodes: Snapshot())
    assert len(engine.ran) == 6 + 4


def test_ethernet_and_single_gpus_have_nothing_to_compare_but_say_so():
    session, engine = SweepSession(["a", "b"]), Engine()
    session.run(engine, _plan(fabric("Ethernet", gpus=1), None), lambda _nodes: Snapshot())
    assert engine.ran == []
    ready = SimpleNamespace(fabric=fabric("Ethernet"))
    (found,) = _comparisons(ready, session)
    assert (found.feature, found.status, found.why) == ("sharp", "unsupported", "SHARP needs InfiniBand")


@pytest.mark.parametrize(
    ("rates", "excluded", "conclusion"),
    [
        ((470.0, 471.0), {}, "ok"),
        ((470.0, 471.0), {"b": Excluded("b", "busy", "alice")}, "incomplete"),
        ((300.0, 301.0), {}, "failed"),
        ((470.0, None), {}, "incomplete"),
    ],
)
def test_conclusion(rates, excluded, conclusion):
    found = compare("nvls", runs("nvls", 0, "NVLS/SIMPLE", *rates), runs(*OFF), H100)
    assert SharpComparison([found], "nccl", excluded=excluded).conclusion() == conclusion
    assert SharpComparison([], "nccl").conclusion() == "incomplete"
