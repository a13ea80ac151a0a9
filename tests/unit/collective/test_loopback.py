import dataclasses
import time
from pathlib import Path

import pytest

from gpuops.collective.loopback import HcaLoopback, Loopback, measure_loopback, pcie_gb_per_s
from gpuops.collective.pool import Pool
from gpuops.collective.session import Snapshot
from gpuops.probes.host.pcie import PcieLink
from gpuops.reasons import EXIT_CODES, Excluded
from gpuops.report.all_reduce.loopback import lines
from gpuops.report.page import Page

FULL = PcieLink("0000:18:00.0", 32.0, 16, 32.0, 16, 0)
HALF = dataclasses.replace(FULL, width=8)
OLD = PcieLink("0000:18:00.0", 8.0, 16, 8.0, 16, 0)


def hca(number, rate, pcie=FULL, line=50.0, **more):
    return HcaLoopback(f"gpu{number // 8:03}", f"mlx5_{number % 8}", line, pcie, rate, **more)


def fleet(count=64, **rates):
    """Healthy HCAs, but for those in ``rates``: a rate, or a rate and a link."""
    found = [hca(number, 48.0 + number % 7 * 0.2) for number in range(count)]
    for name, value in rates.items():
        number = int(name[1:])
        found[number] = hca(number, *(value if isinstance(value, tuple) else (value,)))
    return Loopback(tuple(found))


def code(result):
    return EXIT_CODES[result.conclusion()]


def text(result):
    return "\n".join(lines(result, Page()))


@pytest.mark.parametrize(
    ("speed", "width", "at_least", "at_most"),
    [(32.0, 16, 55.0, 63.0), (16.0, 16, 27.0, 31.5), (8.0, 16, 13.5, 15.8), (5.0, 8, 3.3, 4.0), (32.0, 8, 27.0, 31.5)],
)
def test_pcie_carries_less_than_its_signalling_rate(speed, width, at_least, at_most):
    assert at_least < pcie_gb_per_s(speed, width) < at_most


def test_a_healthy_fleet_is_ok_and_takes_two_lines():
    assert code(fleet()) == 0
    assert text(fleet()).splitlines() == [
        "loopback  64 HCAs of 8 nodes, each with itself: ib_write_bw, host memory, no",
        "          cable",
        "400 Gb/s  64/64   48-49.2 GB/s, median 48.6; line rate and PCIe allow 50",
    ]


def test_a_low_hca_is_named_with_its_pcie_link():
    result = fleet(h11=(27.5, HALF))
    assert code(result) == 1
    shown = " ".join(text(result).split())
    assert "LOW gpu001 mlx5_3 slow" in shown
    assert "27.5 of 48.6 GB/s with itself; its PCIe link runs x8 at 32 GT/s" in shown
    assert "it can run x16 at 32 GT/s do reseat the HCA" in shown


def test_a_low_hca_with_a_full_link_and_one_with_an_unknown_link_are_told_apart():
    shown = " ".join(text(fleet(h11=20.0, h20=(21.0, None))).split())
    assert "20 of 48.6 GB/s with itself; its PCIe link runs x16 at 32 GT/s, at most 56.8 GB/s, as it should" in shown
    assert "21 of 48.6 GB/s with itself; the width and speed of its PCIe link are unknown" in shown
    assert "reseat" not in shown


def test_the_same_device_of_many_nodes_is_one_block():
    result = fleet(count=8 * 300, **{f"h{8 * node + 3}": (27.5, HALF) for node in range(20)})
    assert "LOW  gpu[000-019] mlx5_3" in text(result)
    assert len(text(result).splitlines()) < 12


def test_a_hundred_kinds_of_low_hcas_fit_on_a_screen():
    result = fleet(count=8 * 300, **{f"h{number}": 20.0 + number % 5 for number in range(0, 2400, 17)})
    assert len(text(result).splitlines()) <= 60


def test_what_all_share_blames_no_hca():
    result = Loopback(tuple(hca(number, 30.0 + number % 3) for number in range(64)))
    assert code(result) == 1
    assert "FLEET  64 HCAs of 400 Gb/s" in text(result)
    assert "LOW " not in text(result)


def test_a_narrow_slot_is_expected_to_limit_its_hca():
    result = Loopback(tuple(hca(number, 13.9, OLD) for number in range(8)))
    assert code(result) == 0
    assert "8/8 13.9 GB/s; line rate and PCIe allow 14.2" in " ".join(text(result).split())


def test_hcas_of_another_line_rate_are_a_class_of_their_own():
    slower = tuple(hca(number, 24.5, line=25.0) for number in range(8))
    result = Loopback(fleet().hcas + slower)
    assert code(result) == 0
    assert [each.line_gb_per_s for each in result.classes] == [50.0, 25.0]


def test_one_hca_alone_is_judged_by_what_it_should_reach():
    assert code(Loopback((hca(0, 48.0),))) == 0
    assert code(Loopback((hca(0, 30.0),))) == 1


def test_what_was_not_measured_is_unknown_with_the_reason_and_exits_with_3():
    result = dataclasses.replace(
        fleet(h11=None),
        excluded={"gpu020": Excluded("gpu020", "unknown", "ib_write_bw is not installed", do="install it")},
    )
    assert code(result) == 3
    assert "unknown   gpu020: ib_write_bw is not installed; install it" in text(result)
    document = result.to_document()
    assert [each["status"] for each in document["hcas"]].count("unknown") == 1
    assert document["excluded"]["gpu020"]["kind"] == "unknown"


WRITES = """\
#!/bin/sh
case "$*" in *--version*) echo "Version: 6.06"; exit 1 ;; esac
case "$*" in *127.0.0.1*) ;; *) echo $$ >"$0.server"; exec sleep 60 ;; esac
echo run >>"$0.runs"
echo " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
printf ' 8388608    5000             0.00               %s\\t\\t     0.005800\\n' "$(cat "$0.rate")"
"""


@pytest.fixture
def node(tmp_path, monkeypatch, a_host):
    """This machine with an ib_write_bw, whose rate in Gbit/s is in a file beside it; and its runs."""
    program = tmp_path / "ib_write_bw"
    program.write_text(WRITES)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return a_host("n1", connection="local"), tmp_path


def measured(host, connections, monkeypatch, found):
    monkeypatch.setattr("gpuops.collective.loopback._hcas", lambda _host, _facts: iter(found))
    with Pool([host], connections) as pool:
        return measure_loopback(pool, lambda _names: Snapshot())


def test_both_ends_run_on_the_node_and_nothing_is_left_running(node, connections, monkeypatch):
    host, folder = node
    (folder / "ib_write_bw.rate").write_text("391.2")
    result = measured(host, connections, monkeypatch, [HcaLoopback("n1", "mlx5_0", 50.0)])
    assert [each.gb_per_s for each in result.hcas] == [pytest.approx(48.9)]
    assert (folder / "ib_write_bw.runs").read_text().count("run") == 1
    server = Path("/proc", (folder / "ib_write_bw.server").read_text().strip(), "cmdline")
    deadline = time.monotonic() + 10
    while server.exists() and server.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.exists() or not server.read_bytes()  # a process that has ended has no command line


def test_a_low_hca_is_measured_again_and_its_best_result_counts(node, connections, monkeypatch):
    host, folder = node
    (folder / "ib_write_bw.rate").write_text("201.0")
    result = measured(host, connections, monkeypatch, [HcaLoopback("n1", "mlx5_0", 50.0)])
    assert (folder / "ib_write_bw.runs").read_text().count("run") == 3
    assert code(result) == 1


def test_a_node_without_the_program_is_unknown(a_host, connections, monkeypatch, tmp_path):
    host = a_host("n1", connection="local")
    result = measured(host, connections, monkeypatch, [HcaLoopback("n1", "mlx5_0", 50.0)])
    assert result.hcas == ()
    assert result.excluded["n1"].why == "ib_write_bw is not installed"
    assert code(result) == 3


def test_a_node_that_became_busy_is_not_loaded(node, connections, monkeypatch):
    host, folder = node
    busy = Snapshot({"n1": Excluded("n1", "busy", "busy (alice)")})
    monkeypatch.setattr("gpuops.collective.loopback._hcas", lambda *_: iter([HcaLoopback("n1", "mlx5_0", 50.0)]))
    with Pool([host], connections) as pool:
        result = measure_loopback(pool, lambda _names: busy)
    assert not (folder / "ib_write_bw.runs").exists()
    assert result.excluded["n1"].kind == "busy"
