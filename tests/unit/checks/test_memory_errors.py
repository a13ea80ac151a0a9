"""Lines as the kernel prints them (drivers/edac, arch/x86/kernel/cpu/mce), from public issue threads."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.edac import Dimm, Edac
from gpuops.probes.host.kernel_log import KernelLog, parse_kernel_log
from gpuops.probing import Unknown

LABEL = "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"
NO_EDAC = Edac((), {})
UNCORRECTED = "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400"
CORRECTED = "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010091"
ORDINARY = (
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "MCE: In-kernel MCE decoding enabled.",
    "mce: [Hardware Error]: Machine check events logged",
    CORRECTED,
    "EDAC MC0: 1 CE memory scrubbing error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0)",
    "{1}[Hardware Error]: event severity: corrected",
    "[Hardware Error]: Corrected error, no action required.",
)
GRAVE = (
    UNCORRECTED,
    "mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 3: 0000000000000000",
    "[Hardware Error]: Uncorrected, software restartable error.",
    "{1}[Hardware Error]: event severity: fatal",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1a2b3c offset:0x0)",
)


def logged(machine, *lines, at=1000.0):
    text = "".join(
        f"[{seconds:12.6f}] {line}\n" for seconds, line in ((0, "Linux version 6.8.0"), *((at, x) for x in lines))
    )
    return machine.but(kernel_log=parse_kernel_log(text))


def counting(machine, corrected, uncorrected, *, days=1):
    dimms = (Dimm("mc0", LABEL, corrected, uncorrected), Dimm("mc1", "other", 0, 0))
    counts = {"mc0": (corrected, uncorrected), "mc1": (0, 0)}
    return machine.but(edac=Edac(dimms, counts), uptime=days * 86400.0)


def told(machine):
    return [(str(f.part), f.severity) for f in machine.judge("memory-errors").findings]


def test_an_uncorrected_error_fails_on_its_dimm(h100):
    assert told(counting(h100, 0, 1)) == [(LABEL, "fail")]
    assert told(logged(counting(h100, 0, 1), *GRAVE)) == [(LABEL, "fail")]


def test_one_that_no_dimm_accounts_for_fails_on_the_controller(h100):
    assert told(h100.but(edac=Edac((Dimm("mc0", LABEL, 0, 0),), {"mc0": (0, 2)}))) == [("mc0", "fail")]


def test_the_log_names_the_dimm_that_the_counts_do_not(h100):
    line = f"EDAC MC0: 1 UE memory read error on {LABEL} (channel:0 slot:0 page:0x1a2b3c offset:0x0 grain:32)"
    assert told(logged(h100.but(edac=Edac((), {"mc0": (0, 1), "mc1": (0, 1)})), line)) == [
        (LABEL, "fail"),
        ("mc1", "fail"),
    ]


def test_corrected_errors_warn_by_their_rate(h100):
    assert told(counting(h100, 99, 0)) == []
    assert told(counting(h100, 100, 0)) == [(LABEL, "warn")]
    assert told(counting(h100, 999, 0, days=10)) == []
    assert told(counting(h100, 5000, 0, days=0.01)) == [(LABEL, "warn")]


def test_ordinary_lines_are_nothing(h100):
    assert told(logged(h100, *ORDINARY * 3)) == []


@pytest.mark.parametrize("line", GRAVE)
def test_an_uncorrected_error_in_the_log_fails_and_one_from_before_the_boot_warns(h100, line):
    assert told(logged(h100, line)) == [("cpu", "fail")]
    assert told(logged(h100, line, at=4.0)) == [("cpu", "warn")]


def test_memory_that_the_kernel_took_out_of_use_warns(h100):
    line = "Memory failure: 0x1a2b3c: recovery action for dirty LRU page: Recovered"
    assert told(logged(h100, line)) == [("memory", "warn")]


def test_a_machine_without_counts_is_not_judged_unless_its_log_has_an_error(h100):
    guest = h100.but(edac=NO_EDAC)
    assert guest.judge("memory-errors").status == "skipped"
    assert logged(guest, UNCORRECTED).judge("memory-errors").status == "fail"
    assert guest.but(kernel_log=KernelLog(reaches_boot=False)).judge("memory-errors").status == "unknown"


@pytest.mark.parametrize("need", ["edac", "kernel_log"])
def test_what_could_not_be_asked_is_unknown(h100, need):
    assert h100.but(**{need: Unknown("dark")}).judge("memory-errors").status == "unknown"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("memory-uncorrected", (LABEL, "fail")),
        ("memory-corrected", (LABEL, "warn")),
        ("machine-check", ("cpu", "fail")),
    ],
)
def test_the_labs_faults_are_named_once(fault, told):
    assert findings_of("hgx-h100", f"host:{fault}")[0] == [("memory-errors", *told)]
