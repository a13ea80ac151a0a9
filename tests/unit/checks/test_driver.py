from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.nvidia.driver import Driver, InstalledDriver, NotLoaded
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Unknown
from gpuops.shell import Completed

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
# as the kernel prints them: public issue threads, and Linux kernel/module/signing.c
REFUSALS = (
    "Loading of module with unavailable key is rejected",
    "PKCS#7 signature not signed with a trusted key",
    "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
)
TAINTED = "nvidia: module verification failed: signature and/or required key missing - tainting kernel"
BOUND = "NVRM: GPU 0000:52:00.0 is already bound to nouveau."
NEWER = InstalledDriver("580.159.04", "", "")


def log_of(*lines):
    return parse_kernel_log("".join(f"[   12.0] {line}\n" for line in ("Linux version 6.8.0", *lines)))


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestDriverLoaded:
    def test_one_version_everywhere_passes(self, h100):
        assert h100.judge("driver-loaded").status == "pass"

    def test_a_newer_module_on_the_disk_waits_for_a_reboot(self, h100):
        finding = only(h100.but(installed_driver=NEWER).judge("driver-loaded"))
        assert (finding.part, finding.severity) == ("driver", "reboot")
        assert "580.159.04 on disk" in finding.message
        assert "580.126.16 loaded" in finding.message
        assert "reboot" in finding.fix

    def test_nvidia_smi_reports_the_mismatch(self, h100):
        machine = h100.without_smi("version-mismatch", MISMATCH)
        machine = machine.but(smi=replace(machine.values["smi"], driver_version=None), installed_driver=NEWER)
        assert only(machine.judge("driver-loaded")).severity == "reboot"
        assert machine.judge_all()["driver-loaded"].status == "fail"

    def test_the_version_that_nvidia_smi_names_is_that_of_the_libraries(self, h100):
        answer = Completed("n1", smi.question, 18, f"{MISMATCH}\nNVML library version: 550.90\n")
        machine = h100.without_smi("version-mismatch", MISMATCH).but(smi=smi.read(answer))
        assert "550.90 libraries" in only(machine.judge("driver-loaded")).message

    def test_libraries_of_another_version(self, h100):
        machine = h100.but(smi=replace(h100.values["smi"], driver_version="580.95.05"))
        assert "580.95.05 libraries" in only(machine.judge("driver-loaded")).message

    def test_no_module_loaded(self, h100):
        machine = h100.without_smi("driver-not-loaded", "couldn't communicate with the NVIDIA driver")
        finding = only(machine.but(driver=Unknown("not loaded")).judge("driver-loaded"))
        assert "not loaded" in finding.message
        assert "modprobe" in finding.fix

    def test_a_machine_with_gpus_and_no_driver_fails(self, h100):
        bare = h100.but(
            driver=NotLoaded("not loaded"), installed_driver=Unknown("none"), smi=Unknown("nvidia-smi is not installed")
        )
        verdict = bare.judge("driver-loaded")
        assert verdict.status == "fail"
        assert "not loaded" in only(verdict).message
        assert bare.but(pci_vendors=frozenset({"8086"})).judge("driver-loaded").status != "fail"

    def test_nouveau_has_a_remedy_of_its_own(self, h100):
        bare = h100.without_smi("driver-not-loaded", "couldn't communicate with the NVIDIA driver")
        taken = bare.but(driver=NotLoaded("not loaded", kernel_modules=frozenset({"nouveau", "drm"})))
        finding = only(taken.judge("driver-loaded"))
        assert (finding.severity, finding.part, finding.code) == ("reboot", "driver", "nouveau")
        assert "blacklist nouveau" in finding.fix
        logged = bare.but(driver=NotLoaded("not loaded"), kernel_log=log_of(BOUND))
        assert only(logged.judge("driver-loaded")).code == "nouveau"
        assert findings_of("hgx-h100", "host:nouveau")[0] == [("driver-loaded", "driver", "reboot")]

    def test_nouveau_on_one_of_the_gpus(self, h100):
        assert h100.but(kernel_log=log_of(BOUND)).judge("driver-loaded").status == "pass"
        addresses = tuple(a for a in h100.values["driver"].gpu_addresses if a != "0000:52:00.0")
        rest = h100.but(driver=replace(h100.values["driver"], gpu_addresses=addresses), kernel_log=log_of(BOUND))
        assert "0000:52:00.0" in only(rest.judge("driver-loaded")).message

    @pytest.mark.parametrize("line", REFUSALS)
    def test_secure_boot_has_a_remedy_of_its_own(self, h100, line):
        bare = h100.but(driver=NotLoaded("not loaded"), smi=Unknown("none"), kernel_log=log_of(line))
        finding = only(bare.judge("driver-loaded"))
        assert finding.code == "secure-boot"
        assert "mokutil" in finding.fix
        missing = bare.but(installed_driver=Unknown("modinfo nvidia ended with 1"))
        assert "install the driver" in only(missing.judge("driver-loaded")).fix
        assert findings_of("hgx-h100", "host:secure-boot")[0] == [("driver-loaded", "driver", "reboot")]

    def test_refused_modules_do_not_matter_while_the_driver_is_loaded(self, h100):
        assert h100.but(kernel_log=log_of(*REFUSALS, TAINTED)).judge("driver-loaded").status == "pass"

    @pytest.mark.parametrize("need", ["driver", "installed_driver", "smi"])
    def test_what_could_not_be_asked_is_unknown(self, h100, need):
        assert h100.but(**{need: Unknown("dark")}).judge("driver-loaded").status == "unknown"

    def test_a_version_that_is_not_told_is_unknown(self, h100):
        silent = h100.but(smi=replace(h100.values["smi"], driver_version=None))
        assert silent.judge("driver-loaded").status == "unknown"


class TestDriverAgrees:
    @pytest.fixture
    def fleet(self, h100, judge_fleet):
        """Verdicts by node of a fleet whose nodes run the drivers of these versions; None is not told."""

        def judge_versions(*versions):
            values = [Driver(v, open_kernel_modules=True) if v else Unknown("dark") for v in versions]
            return judge_fleet("driver-agrees", {f"n{i}": h100.but(driver=value) for i, value in enumerate(values)})

        return judge_versions

    def test_one_version_passes(self, fleet):
        assert {v.status for v in fleet("1", "1", "1").values()} == {"pass"}
        assert {v.status for v in fleet("1", "1").values()} == {"pass"}

    def test_the_minority_is_accused(self, fleet):
        verdicts = fleet("1", "2", "1", "1")
        assert {node: v.status for node, v in verdicts.items()} == {
            "n0": "pass",
            "n1": "fail",
            "n2": "pass",
            "n3": "pass",
        }
        finding = only(verdicts["n1"])
        assert (finding.host, finding.part, finding.severity) == ("n1", "driver", "reboot")
        assert finding.message == "2 here, 1 on 3 of 4 nodes"
        assert "driver 1 on n1" in finding.fix

    def test_several_minorities_are_accused(self, fleet):
        verdicts = fleet("1", "2", "1", "3", "1")
        assert [node for node, v in verdicts.items() if v.status == "fail"] == ["n1", "n3"]

    @pytest.mark.parametrize("versions", [("1", "2"), ("1", "1", "2", "2"), ("1", "2", "3"), ("1", "1", "2", "3")])
    def test_a_split_blames_no_part(self, fleet, versions):
        verdicts = fleet(*versions)
        finding = only(verdicts.pop(""))
        assert (finding.host, finding.severity) == ("", "warn")
        assert finding.message.startswith("split: 1 on ")
        assert {v.status for v in verdicts.values()} == {"pass"}

    def test_one_node_has_no_node_to_compare_with(self, fleet):
        assert fleet("1")["n0"].status == "skipped"

    def test_nodes_that_do_not_tell_are_unknown_and_do_not_vote(self, fleet):
        verdicts = fleet("1", "2", None, None)
        assert [verdicts[n].status for n in ("n2", "n3")] == ["unknown", "unknown"]
        assert verdicts[""].status == "warn"
