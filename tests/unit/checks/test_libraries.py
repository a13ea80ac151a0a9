"""Libraries of the driver and what containers are given; the lab's files give the specimens."""

from dataclasses import replace

import pytest

from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.libraries import specification
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.libraries import cdi, libraries
from gpuops.probing import Unknown
from gpuops.shell import Completed

LIB = "/usr/lib/x86_64-linux-gnu"
ELF = "\x7fELF"


def answer(probe, files):
    text = "".join(f"{path}\0{content[: probe.question.limit_bytes]}\0" for path, content in files.items())
    return probe.read(Completed("n1", probe.question, 0, text))


def shown(h100, node):
    files = tree.files(node)
    values = {probe.name: answer(probe, files) for probe in (cdi, libraries)}
    loaded = driver.read(Completed("n1", driver.question, 0, "".join(f"{p}\0{c}\0" for p, c in files.items())))
    smi = replace(h100.values["smi"], driver_version=node.driver.userspace)
    installed = replace(h100.values["installed_driver"], version=node.driver.userspace)
    return h100.but(**values, driver=loaded, smi=smi, installed_driver=installed)


def found(machine):
    verdicts = [machine.judge(name) for name in ("libraries", "cdi")]
    return [(f.check, f.code, f.severity) for v in verdicts for f in v.findings]


def having(h100, *names, version="580.126.16"):
    """Libraries called so; a name that ends with ``!`` is empty."""
    files = {f"{LIB}/{name.rstrip('!')}": "" if name.endswith("!") else ELF for name in names}
    return h100.but(libraries=answer(libraries, files), driver=replace(h100.values["driver"], loaded_version=version))


WHOLE = tuple(f"{name}.so.{version}" for name in ("libcuda", "libnvidia-ml") for version in ("580.126.16", "1"))


@pytest.mark.parametrize("machine", names())
def test_healthy_machines_are_silent(h100, machine):
    shows = shown(h100, healthy(machine))
    assert shows.judge("libraries").status == shows.judge("cdi").status == "pass"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("library-empty", ("libraries", "driver")),
        ("library-missing", ("libraries", "driver")),
        ("cdi-stale", ("cdi", "driver")),
        ("cdi-lacks-gpus", ("cdi", "driver")),
    ],
)
def test_each_fault_of_the_lab_is_one_finding(h100, fault, expected):
    of_driver = [
        each for each in shown(h100, faulted("hgx-h100", (f"host:{fault}",))).findings() if each[1] == "driver"
    ]
    assert [each for each in of_driver if each[0] in ("libraries", "cdi")] == [expected]


def test_an_update_without_a_reboot_is_one_finding(h100):
    machine = shown(h100, faulted("hgx-h100", ("host:version-mismatch",)))
    assert ("libraries", "version", "fail") in found(machine)
    machine = machine.without_smi("version-mismatch", "Driver/library version mismatch")
    assert [each for each in machine.findings() if each[1] == "driver"] == [("driver-loaded", "driver")]


class TestLibraries:
    @pytest.mark.parametrize(
        ("names", "status"),
        [
            (WHOLE, "pass"),
            ((*WHOLE, "libcuda.so.535.183.01"), "pass"),  # an old copy beside it
            (("libcuda.so.580.126.16!", *WHOLE[1:]), "fail"),
            (WHOLE[1:], "fail"),
            (WHOLE[:1] + WHOLE[2:], "fail"),
            (WHOLE[:3], "fail"),
            (("libcuda.so.535.183.01", "libcuda.so.1", "libnvidia-ml.so.535.183.01", "libnvidia-ml.so.1"), "fail"),
            ((), "unknown"),
        ],
    )
    def test_files_of_the_loaded_version(self, h100, names, status):
        assert having(h100, *names).judge("libraries").status == status

    def test_messages(self, h100):
        assert having(h100, *WHOLE[2:]).judge("libraries").findings[0].message == (
            "libcuda.so.580.126.16 and libcuda.so.1 are missing"
        )
        old = having(h100, "libcuda.so.535.183.01", "libcuda.so.1").judge("libraries")
        assert [f.message for f in old.findings] == [
            "the driver 580.126.16 is loaded, the libraries on disk are 535.183.01"
        ]

    @pytest.mark.parametrize("text", ["", "garbage", f"{LIB}/stubs/libcuda.so\0{ELF}\0", f"{LIB}/libcuda.so\0{ELF}\0"])
    def test_other_files_do_not_count(self, text):
        assert isinstance(libraries.read(Completed("n1", libraries.question, 0, text)), Unknown)


class TestCdi:
    def judged(self, h100, *specs):
        files = {f"/etc/cdi/{number}.yaml": text for number, text in enumerate(specs)}
        return h100.but(cdi=answer(cdi, files)).judge("cdi")

    def test_versions_and_gpus(self, h100):
        assert self.judged(h100, specification("580.126.16", 8)).status == "pass"
        assert self.judged(h100, specification("580.126.16", 7)).findings[0].found == 7
        assert self.judged(h100, specification("535.104.05", 8)).findings[0].found == "535.104.05"

    def test_other_devices_and_none_are_skipped(self, h100):
        assert self.judged(h100).status == "skipped"
        assert self.judged(h100, "kind: amd.com/gpu\n  - path: /dev/dri/card0\n").status == "skipped"

    def test_specification_that_names_no_version_passes(self, h100):
        text = 'kind: nvidia.com/gpu\ndevices:\n- name: all\n  mounts:\n  - hostPath: "/usr/lib/libcuda.so.1"\n'
        assert self.judged(h100, text).status == "pass"

    def test_specification_that_is_too_long_is_not_counted(self, h100):
        text = specification("580.126.16", 4) + "\n" + "#" * 200_000
        assert self.judged(h100, text).status == "pass"

    @pytest.mark.parametrize("need", ["libraries", "driver"])
    def test_what_cannot_be_compared_is_unknown(self, h100, need):
        assert h100.but(**{need: Unknown("no answer")}).judge("cdi").status == "unknown"
