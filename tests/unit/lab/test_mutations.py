"""What commands make of a lab's host: packages, holds, units, parameters of the kernel, a reboot."""

from dataclasses import replace

import pytest

from gpuops.content import builtin
from gpuops.document import load
from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.mutations import bare_node, changed, rebooted
from gpuops.lab.tools.programs import run

NEW, OLD = "2.29.2-1+cuda13.0", "2.28.9-1+cuda13.0"
DRIVER = "nvidia-driver-580-server=580.126.20-0ubuntu1"


class Host:
    """A host of the lab without its shell: each command is told to the one before it left behind."""

    def __init__(self, *faults, machine="hgx-h100"):
        self.before = faulted(machine, faults)
        self.node = self.before

    def run(self, line, *, root=True):
        program, *words = line.split()
        answer = run(self.node, program, words, root=root)
        if answer.becomes is not None:
            self.node = changed(self.before, answer.becomes)
        return answer

    def version(self, name):
        return self.run(f"dpkg-query -W -f=${{Version}} -- {name}").out

    def reboot(self, cmdline="iommu=pt"):
        self.node = changed(self.before, rebooted(self.node, {}, cmdline))

    def unit(self, name):
        return self.run(f"systemctl show --property=LoadState,ActiveState,UnitFileState {name}").out.split()


@pytest.fixture
def host():
    return Host()


def test_a_rehearsal_tells_what_the_transaction_does_and_changes_nothing(host):
    told = host.run(f"apt-get -q -s -y install -- libnccl2={NEW} pciutils", root=False)
    assert f"Inst libnccl2 [{OLD}] ({NEW} lab:1.0/lab [amd64])" in told.out
    assert "1 upgraded, 1 newly installed, 0 to remove" in told.out
    assert host.node == host.before
    assert host.run(f"apt-get -y install -- libnccl2={NEW} pciutils").code == 0
    assert (host.version("libnccl2"), host.version("pciutils")) == (NEW, "1:3.7.0-6")


def test_lists_in_a_folder_of_ones_own_are_asked_for_without_rights(host):
    assert host.run("apt-get -q -c /tmp/x/conf update", root=False).code == 0
    assert "are you root?" in host.run("apt-get -q -o Acquire::Retries=1 update", root=False).err


@pytest.mark.parametrize(
    ("line", "root", "said"),
    [
        ("apt-get -y install -- no-such", True, "E: Unable to locate package no-such"),
        ("apt-get -y install -- libnccl2=9", True, "E: Version '9' for 'libnccl2' was not found"),
        (f"apt-get -y install -- libnccl2={NEW}", False, "are you root?"),
        ("apt-get -y install -- libnccl2=2.27.7-1+cuda12.9", True, "without --allow-downgrades"),
        ("apt-mark hold libnccl2", False, "are you root?"),
        ("sysctl -w vm.swappiness=1", False, "permission denied"),
        ("systemctl restart nvidia-dcgm", False, "Interactive authentication required"),
        ("systemctl start no-such", True, "Unit no-such not found"),
    ],
)
def test_what_is_refused_changes_nothing(host, line, root, said):
    answer = host.run(line, root=root)
    assert answer.code
    assert said in answer.err
    assert host.node == host.before


def test_what_is_on_hold_changes_only_where_that_is_allowed(host):
    host.run("apt-mark hold -- libnccl2")
    assert host.run("apt-mark showhold").out == "libnccl2\n"
    assert host.run("dpkg-query -W -f=${db:Status-Abbrev} -- libnccl2").out == "hi "
    assert "Held packages were changed" in host.run(f"apt-get -y install -- libnccl2={NEW}").err
    host.run(f"apt-get -y --allow-change-held-packages install -- libnccl2={NEW}")
    assert host.version("libnccl2") == NEW
    host.run("apt-mark unhold -- libnccl2")
    assert host.run("apt-mark showhold").out == ""


def test_a_package_that_is_removed_is_gone(host):
    host.run("apt-get -y remove -- libnccl2")
    answer = host.run("dpkg-query -W -- libnccl2")
    assert (answer.code, answer.err) == (1, "dpkg-query: no packages found matching libnccl2\n")


def test_what_is_offered_is_told_the_newest_first(host):
    rows = host.run("apt-cache madison -- libnccl2").out.splitlines()
    assert [row.split(" | ")[1].strip() for row in rows] == [NEW, OLD, "2.27.7-1+cuda12.9"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("host:apt-fails=libnccl2", "dpkg: error processing archive"),
        ("host:dpkg-locked", "It is held by process 4242"),
        ("host:no-repository", "Could not resolve"),
    ],
)
def test_an_installation_that_fails_says_why_and_leaves_the_old_version(fault, said):
    host = Host(fault)
    answer = host.run(f"apt-get -y install -- libnccl2={NEW}")
    assert answer.code == 100
    assert said in answer.err
    assert host.version("libnccl2") == OLD


def test_a_new_driver_is_on_the_disk_at_once_and_runs_after_a_reboot(host):
    host.run(f"apt-get -y install -- {DRIVER} nvidia-fabricmanager-580=580.126.20-1")
    driver = host.node.driver
    assert (driver.version, driver.userspace, driver.fabric_manager) == ("580.105.08", "580.126.20", "580.126.20")
    assert "Driver/library version mismatch" in host.run("nvidia-smi").out
    host.reboot()
    assert (host.node.driver.version, host.node.driver.userspace) == ("580.126.20", "580.126.20")


def test_the_fabric_manager_refuses_a_driver_of_another_version(host):
    host.run("apt-get -y install -- nvidia-fabricmanager-580=580.126.20-1")
    assert host.run("systemctl restart nvidia-fabricmanager").code == 1
    assert host.run("systemctl is-active nvidia-fabricmanager").out == "failed\n"
    assert host.run("systemctl is-system-running").out == "degraded\n"


def test_a_boot_with_a_driver_that_the_fabric_manager_does_not_fit_leaves_that_one_failed(host):
    host.run(f"apt-get -y install -- {DRIVER}")
    host.reboot()
    assert host.run("systemctl is-active nvidia-fabricmanager").out == "failed\n"
    host.run("apt-get -y install -- nvidia-fabricmanager-580=580.126.20-1")
    assert host.run("systemctl restart nvidia-fabricmanager").code == 0


def test_a_reboot_ends_what_was_only_set_now(host):
    host.run("sysctl -w vm.swappiness=10")
    host.run("systemctl stop nvidia-dcgm")
    host.run("systemctl disable slurmd")
    assert (host.run("sysctl -n vm.swappiness").out, host.run("systemctl is-active nvidia-dcgm").code) == ("10\n", 3)
    host.reboot()
    assert host.run("sysctl -n vm.swappiness").out == "60\n"
    assert host.run("systemctl is-active nvidia-dcgm").out == "active\n"
    assert host.run("systemctl is-active slurmd").out == "inactive\n"
    assert host.run("systemctl is-enabled slurmd").out == "disabled\n"
    assert changed(host.before, rebooted(host.node, {"vm.swappiness": "1"}, "iommu=pt")).sysctls["vm.swappiness"] == "1"


HOLDERS = ("nvidia-dcgm", "nvidia-persistenced", "nvidia-fabricmanager")


def rows_waiting(host):
    asked = "nvidia-smi --query-gpu=remapped_rows.pending --format=csv,noheader"
    return [index for index, row in enumerate(host.run(asked).out.splitlines()) if row == "Yes"]


@pytest.mark.parametrize(
    ("words", "left"), [("", []), (" -i 1", [3]), (" -i 0000:43:00.0", [3]), (" -i 1,3", []), (" -i 2", [1, 3])]
)
def test_a_reset_remaps_rows_on_the_gpus_that_it_names(words, left):
    host = Host("gpu1:remap-pending", "gpu3:remap-pending")
    for unit in HOLDERS:
        host.run(f"systemctl stop {unit}")
    answer = host.run(f"nvidia-smi --gpu-reset{words}")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "All done.")
    assert rows_waiting(host) == left


@pytest.mark.parametrize(
    ("fault", "holders", "words", "root", "said"),
    [
        ("gpu1:remap-pending", 0, "", True, "currently in use by one or more other processes"),
        ("gpu1:remap-pending", 2, "", True, "currently in use by one or more other processes"),
        ("gpu0:busy", 3, "", True, "currently in use by one or more other processes"),
        ("gpu1:remap-pending", 3, "", False, "insufficient permissions"),
        ("gpu1:remap-pending", 3, " -i 8", True, "No devices were found"),
        ("gpu1:lost", 3, "", True, "Reboot the system to recover this GPU"),
    ],
)
def test_a_reset_that_is_refused_changes_nothing(fault, holders, words, root, said):
    host = Host(fault)
    for unit in HOLDERS[:holders]:
        host.run(f"systemctl stop {unit}")
    before = host.node
    answer = host.run(f"nvidia-smi --gpu-reset{words}", root=root)
    assert answer.code
    assert said in answer.out
    assert host.node == before


def test_a_boot_resets_the_gpus_and_their_volatile_counters():
    host = Host("gpu1:remap-pending", "gpu2:ecc-uncorrectable=4")
    asked = "nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total --format=csv,noheader"
    assert (rows_waiting(host), host.run(asked).out.split()) == ([1], ["0", "0", "4", *["0"] * 5])
    host.reboot()
    assert (rows_waiting(host), host.run(asked).out.split()) == ([], ["0"] * 8)


def bare(machine):
    host = Host(machine=machine)
    host.node = changed(host.before, bare_node(host.before))
    return host


@pytest.mark.parametrize("machine", names())
def test_a_bare_host_has_its_devices_and_nothing_that_knows_them(machine):
    host = bare(machine)
    assert host.run("dpkg-query -W").out == ""
    assert (host.run("nvidia-smi").code, host.run("modinfo nvidia").code) == (127, 1)
    assert host.run("dkms status").out == ""
    assert not [path for path in (*tree.files(host.node), *tree.links(host.node)) if "nvidia" in path]
    assert "nvidia" not in tree.files(host.node)["/proc/modules"]
    assert "NVRM" not in host.run("dmesg").out
    assert "nvidia" not in host.run("find /proc").out
    assert "in use: nvidia" not in host.run("lspci -v").out
    assert host.run("lspci -Dnn -d 10de:").out == run(host.before, "lspci", ["-Dnn", "-d", "10de:"], root=True).out
    assert host.unit("nvidia-fabricmanager")[0] == "LoadState=not-found"


@pytest.mark.parametrize("machine", names())
def test_a_bare_host_is_given_the_driver_of_any_stack_by_its_packages_and_a_boot(machine):
    for path in (builtin("playbooks") / "stacks").glob("*.yml"):
        version = load(path).plain()["driver"]["version"]
        host = bare(machine)
        assert host.run(f"apt-get -y install -- nvidia-driver-pinning-{version}").code == 0
        assert host.run("nvidia-smi").code == 127
        assert host.run(f"apt-get -y install -- nvidia-open={version}-1").code == 0
        assert host.run("nvidia-smi").out.startswith("NVIDIA-SMI has failed")
        assert host.run("dkms status").out.startswith(f"nvidia/{version}, ")
        host.reboot()
        smi = host.run("nvidia-smi").out
        assert f"Driver Version: {version} " in smi
        assert "CUDA Version: 13.0 " in smi
        assert tree.files(host.node)["/sys/module/nvidia/version"] == f"{version}\n"
        assert host.version("nvidia-open") == f"{version}-1"
        assert not host.version("nvidia-driver-580-server")
        assert "Open Kernel Module" in tree.files(host.node)["/proc/driver/nvidia/version"]


def test_a_package_brings_its_unit_which_nobody_has_started_yet():
    host = bare("hgx-h100")
    assert host.unit("chrony")[0] == "LoadState=not-found"
    host.run("apt-get -y install -- chrony")
    assert host.unit("chrony") == ["LoadState=loaded", "ActiveState=inactive", "UnitFileState=disabled"]
    host.run("systemctl enable chrony")
    host.run("systemctl start chrony")
    assert host.unit("chronyd") == ["LoadState=loaded", "ActiveState=active", "UnitFileState=enabled"]
    host.run("apt-get -y remove -- chrony")
    assert host.unit("chrony")[0] == "LoadState=not-found"


def test_a_unit_stays_as_it_is_while_another_package_brings_it():
    host = bare("hgx-h100")
    host.run("apt-get -y install -- nvidia-open=580.173.02-1")
    host.run("systemctl enable nvidia-persistenced")
    assert host.unit("nvidia-persistenced") == ["LoadState=loaded", "ActiveState=inactive", "UnitFileState=enabled"]


def test_gpus_stay_set_up_while_the_daemon_runs():
    host = bare("titan-rtx-2x")
    host.run("apt-get -y install -- nvidia-open=580.173.02-1")
    host.reboot()
    asked = "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
    assert host.run(asked).out == "Disabled\nDisabled\n"
    host.run("systemctl start nvidia-persistenced")
    assert host.run(asked).out == "Enabled\nEnabled\n"


def test_what_the_boot_menu_says_is_what_the_kernel_was_told(host):
    host.reboot("intel_iommu=on iommu=pt")
    assert tree.files(host.node)["/proc/cmdline"].endswith(" ro intel_iommu=on iommu=pt\n")
    assert "ro intel_iommu=on iommu=pt\n" in host.run("dmesg").out


def test_a_key_comes_from_the_labs_own_repositories_alone(host):
    assert "BEGIN PGP PUBLIC KEY BLOCK" in host.run("curl -fsSL http://packages.lab/cuda/key.pub").out
    assert host.run("curl -fsSL https://example.com/key.pub").code == 6
    answer = Host("host:no-repository").run("curl -fsSL http://packages.lab/cuda/key.pub")
    assert (answer.code, answer.err) == (6, "curl: (6) Could not resolve host: packages.lab\n")


def test_a_host_without_changes_is_the_healthy_one():
    node = healthy("hgx-h100")
    assert changed(node, node.changes) == node
    assert changed(node, replace(node.changes, held=frozenset({"x"}))) != node
