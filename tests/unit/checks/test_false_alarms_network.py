"""Public cases in which a tool accused good nodes (F) or passed bad ones (S), and the verdict that each must get.

Specimens have the values of the threads; names and addresses are changed.
"""

import datetime as dt
from dataclasses import replace

import pytest

from gpuops.collective.burn_in import _with_counts
from gpuops.collective.growth import growths
from gpuops.facts import Facts
from gpuops.probes.network.error_counters import SaturatedCounter, parse_saturated
from gpuops.probes.network.ib import IbPort, parse_ib_ports
from gpuops.probes.network.nic_log import nic_log
from gpuops.probes.nvidia.nvlink_errors import parse_link_errors
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE
from gpuops.shell import Completed

PROFILES = pytest.mark.parametrize("declared", [True, False], ids=["declared", "no-profile"])


def under(machine, declared):
    return machine if declared else replace(machine, profile=NO_PROFILE)


def files_text(files):
    """What the agent answers to `Files`."""
    return "".join(f"{path}\0{text}\0" for path, text in files.items())


def sysfs(device, **leaves):
    """The files of one InfiniBand port that is up, with ``leaves`` in place of the usual ones."""
    root = f"/sys/class/infiniband/{device}"
    port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
    files = {f"{root}/ports/1/{leaf}": f"{text}\n" for leaf, text in (port | leaves).items()}
    return files | {f"{root}/hca_type": "MT4129\n", f"{root}/board_id": "NVD0000000033\n"}


class TestF5IssmNodes:
    """NVIDIA/NVSentinel 1663, 1716, 1728: compute nodes without issm device nodes are healthy."""

    @PROFILES
    def test_ports_without_issm_pass(self, h100, declared):
        files = {"/sys/class": ""}
        for index in range(8):
            files |= sysfs(f"mlx5_{index}", cap_mask="0xa751ec48")
        files |= {f"/sys/class/infiniband_mad/umad{index}/ibdev": f"mlx5_{index}\n" for index in range(8)}
        machine = under(h100, declared).but(ib_ports=parse_ib_ports(files_text(files)))
        assert machine.judge("ib-ports").status == "pass"


class TestF6PortsDownByDesign:
    """NVIDIA/NVSentinel 1361, 1379, 1462: the unused second port of a front NIC is not a fault."""

    def machine(self, h100):
        front = [
            IbPort("mlx5_8", 1, "Active", "LinkUp", 100.0, "Ethernet", hca_type="MT4125", pci_address="0000:e7:00.0"),
            IbPort("mlx5_9", 1, "Down", "Disabled", 40.0, "Ethernet", hca_type="MT4125", pci_address="0000:e7:00.1"),
        ]
        near = h100.values["topo"]
        links = dict(near.links)
        for gpu in near.gpus:
            for nic in ("NIC8", "NIC9"):
                links[gpu, nic] = links[nic, gpu] = "PXB" if gpu == "GPU7" else "SYS"
        names = {**near.nic_names, "NIC8": "mlx5_8", "NIC9": "mlx5_9"}
        matrix = replace(near, nics=(*near.nics, "NIC8", "NIC9"), links=links, nic_names=names)
        return h100.but(ib_ports=(*h100.values["ib_ports"], *front), topo=matrix)

    @PROFILES
    def test_a_second_port_that_is_disabled_passes(self, h100, declared):
        machine = under(self.machine(h100), declared)
        assert machine.judge("ib-ports").status == "pass"

    @PROFILES
    def test_a_rail_that_polls_fails(self, h100, declared):
        machine = under(self.machine(h100), declared)
        (finding,) = machine.with_port("mlx5_3", state="Down", phys_state="Polling").judge("ib-ports").findings
        assert (finding.part, finding.severity) == ("mlx5_3", "fail")


class TestF17TheMildestRemedy:
    """leptonai/gpud 1055: ports that are missing for a while mostly come back."""

    def test_a_missing_port_asks_for_reseating_and_not_for_isolation(self, h100):
        (finding,) = h100.but(ib_ports=h100.values["ib_ports"][:7]).judge("ib-ports").findings
        assert finding.severity == "fail"
        assert "reseat" in finding.fix
        assert h100.judge("ib-ports").status == "pass"  # the second look, without a memory of the first


class TestF16NoiseOfTheProbeItself:
    """leptonai/gpud 1164, 1167: the NICs of NVLink bridges reject reads of their counters."""

    @PROFILES
    def test_rejected_register_reads_pass(self, h100, declared):
        why = "ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)"
        line = f"[ 812.5] mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): {why}\n"
        log = nic_log.read(Completed("n1", nic_log.question, 0, f"[ 0.0] Linux version 6.8.0\n{line * 40}"))
        machine = under(h100, declared).but(nic_log=log)
        assert machine.judge("nic-log").status == "pass"
        assert machine.findings() == []


def nvlinks(rows):
    """What nvidia-smi nvlink -e prints of 4 GPUs with 18 links; ``rows`` by (GPU, link) replace the zeros."""
    names = ("Replay Errors", "Recovery Errors", "CRC Errors")
    text = ""
    for gpu in range(4):
        text += f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
        for link in range(18):
            counts = rows.get((gpu, link), dict.fromkeys(names, 0))
            text += "".join(f"\t Link {link}: {name}: {count}\n" for name, count in counts.items())
    return parse_link_errors(text)


class TestF8LifetimeCountersOfNVLink:
    """aws/eks-node-monitoring-agent 261: one CRC error in a link's history is not a state."""

    def test_one_look_at_an_old_crc_error_passes(self, h100):
        links = nvlinks({(2, 7): {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 3}})
        assert h100.but(link_errors=links).judge("nvlink-errors").status == "pass"

    def test_across_a_load_the_same_count_is_nothing_and_a_recovery_is_a_fault(self):
        before = ({"gpu2": {"crc_errors": 3, "recovery_errors": 3}},)
        assert list(growths(before, before)) == []
        (growth,) = growths(before, ({"gpu2": {"crc_errors": 3, "recovery_errors": 4}},))
        assert growth.is_fault(60.0)


class TestS15NVLinkThatRetrains:
    """marin-community/marin 9086: 505 recoveries of one link, five days before Xid 149; dashboards were empty."""

    @PROFILES
    def test_the_one_link_is_named(self, h100, declared):
        quiet = {"Link recovery failed events": 0, "Total link recovery events": 0}
        rows = {(gpu, link): quiet for gpu in range(4) for link in range(18)}
        rows[0, 14] = {"Link recovery failed events": 0, "Total link recovery events": 505}
        (finding,) = under(h100, declared).but(link_errors=nvlinks(rows)).judge("nvlink-errors").findings
        assert (finding.part, finding.severity) == ("gpu0", "warn")
        assert "link 14" in finding.message

    def test_names_that_nobody_knows_are_unknown_and_not_zero(self, h100):
        rows = {(gpu, link): {"Flux Errors": 0} for gpu in range(4) for link in range(18)}
        assert h100.but(link_errors=nvlinks(rows)).judge("nvlink-errors").status == "unknown"


class TestS16CountersAtTheirEnd:
    """leptonai/gpud 943: counters at their maxima never rise again."""

    def test_they_are_unknown(self, h100):
        port = "/sys/class/infiniband/mlx5_3/ports/1/counters"
        counts = {"link_downed": 255, "port_xmit_discards": 65535, "port_xmit_wait": 4294967295, "symbol_error": 255}
        files = {"/sys/class": ""} | {f"{port}/{name}": f"{count}\n" for name, count in counts.items()}
        saturated = parse_saturated(files_text(files))
        assert [counter.name for counter in saturated] == ["link_downed", "port_xmit_discards", "port_xmit_wait"]

    def test_a_burn_in_says_that_it_could_not_count(self, h100):
        now = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
        values = {"saturated_counters": (SaturatedCounter("mlx5_3", "link_downed", 255),)}
        facts = Facts("n1", now, {**h100.values, "error_counters": {}, "nvlink_errors": {}, **values})
        burnt = _with_counts(h100.values["burn_in"], facts, facts)
        verdict = h100.but(burn_in=burnt).judge("burn-in-errors")
        assert (verdict.status, "link_downed" in verdict.why) == ("unknown", True)


class TestF19TheSessionsEnvironment:
    """Azure/azurehpc-health-checks 72, 133: what a test lacks to run is not a fault of the node."""

    def test_a_test_that_cannot_run_is_unknown(self, h100):
        why = "cannot run because HPCX_DIR is not set"
        verdict = h100.but(all_reduce=Unknown(why)).judge("all-reduce-bandwidth")
        assert (verdict.status, verdict.why, verdict.findings) == ("unknown", why, ())
