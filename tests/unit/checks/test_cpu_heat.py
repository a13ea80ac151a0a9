"""Lines as kernels 4.18 to 6.8 print them (therm_throt.c), from public logs."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probing import Unknown

OLD = "mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)"
NEW = "CPU12: Package temperature is above threshold, cpu clock is throttled (total events = 7)"
CORE = "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 93)"
COOL = "mce: CPU12: Package temperature/speed normal"


def judged(machine, *lines, now=1000.0):
    text = "".join(f"[{n:12.6f}] {line}\n" for n, line in enumerate(("Linux version 6.8.0", *lines)))
    return machine.but(kernel_log=parse_kernel_log(text), uptime=now).judge("cpu-heat")


@pytest.mark.parametrize("line", [OLD, NEW, CORE])
def test_a_processor_that_is_still_hot_warns(h100, line):
    (finding,) = judged(h100, COOL, line).findings
    assert (finding.severity, finding.part) == ("warn", "processors")
    assert line.removeprefix("mce: ") in finding.message


def test_one_that_cooled_down_is_information_and_one_of_last_week_nothing(h100):
    (finding,) = judged(h100, OLD, OLD, COOL).findings
    assert (finding.severity, "2 times" in finding.message) == ("info", True)
    assert judged(h100, OLD, now=90000.0).findings == ()
    assert judged(h100, OLD, now=Unknown("dark")).status == "warn"


def test_a_log_that_lost_its_beginning_is_unknown(h100):
    machine = h100.but(kernel_log=parse_kernel_log("[ 400.0] usb 1-1: new device\n"))
    assert machine.judge("cpu-heat").status == "unknown"


def test_the_labs_fault_is_named_once():
    assert findings_of("hgx-h100", "host:cpu-hot")[0] == [("cpu-heat", "processors", "warn")]
