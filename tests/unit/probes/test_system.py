import pytest

from gpuops.probes.host.system import count_cpus, parse_system, system
from gpuops.probing import Unknown

DMI = "/sys/class/dmi/id"
FILES = {
    "/etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n',
    "/proc/sys/kernel/osrelease": "5.15.0-112-generic\n",
    "/proc/sys/kernel/hostname": "gpu01\n",
    "/proc/sys/kernel/random/boot_id": "0f1d0a4e-1c2b-4d3e-9f00-aabbccddeeff\n",
    "/proc/uptime": "350735.47 39109364.81\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/md0 iommu=pt\n",
    "/proc/meminfo": "MemTotal:       2113513620 kB\nMemFree:        1000 kB\n",
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon Platinum 8480C\nflags\t\t: fpu vme de\n\nprocessor\t: 1\nmo",
    f"{DMI}/sys_vendor": "Supermicro\n",
    f"{DMI}/product_name": "SYS-821GE-TNHR\n",
    f"{DMI}/bios_version": "2.1\n",
    "/sys/devices/system/cpu/online": "0-223\n",
    "/sys/devices/system/node/node0/cpulist": "0-55,112-167\n",
    "/sys/devices/system/node/node1/cpulist": "56-111,168-223\n",
}
NEEDED = ("/proc/sys/kernel/osrelease", "/proc/meminfo", "/proc/cpuinfo")


def test_the_machine_is_read_whole(files_text, answer):
    told = system.read(answer(system, files_text(FILES)))
    assert (told.os_id, told.os_version, told.kernel) == ("ubuntu", "22.04", "5.15.0-112-generic")
    assert (told.hostname, told.boot_id) == ("gpu01", "0f1d0a4e-1c2b-4d3e-9f00-aabbccddeeff")
    assert (told.uptime_seconds, told.cmdline) == (350735.47, "BOOT_IMAGE=/vmlinuz root=/dev/md0 iommu=pt")
    assert told.memory_gib == pytest.approx(2015.6, abs=0.05)
    assert (told.cpu_model, told.cpus) == ("Xeon Platinum 8480C", 224)
    assert told.numa_nodes == {0: "0-55,112-167", 1: "56-111,168-223"}
    assert (told.vendor, told.product, told.bios_version) == ("Supermicro", "SYS-821GE-TNHR", "2.1")
    assert told.virtual is False


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"}, True),
        ({"/proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\n", f"{DMI}/sys_vendor": "QEMU\n"}, True),
        ({f"{DMI}/product_name": "KVM\n"}, True),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation\n", f"{DMI}/product_name": "Virtual Machine\n"}, True),
        ({f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "p5.48xlarge\n"}, True),
        ({f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "c7g.metal\n"}, False),
        ({f"{DMI}/sys_vendor": "Google\n", f"{DMI}/product_name": "Google Compute Engine\n"}, True),
        ({f"{DMI}/sys_vendor": "VMware, Inc.\n"}, True),
        ({"/sys/hypervisor/type": "xen\n"}, True),
        ({f"{DMI}/sys_vendor": "Dell Inc.\n", f"{DMI}/product_name": "PowerEdge XE9680\n"}, False),
    ],
)
def test_a_virtual_machine_is_told_from_metal(files, virtual, files_text):
    assert parse_system(files_text(FILES | files)).virtual is virtual


@pytest.mark.parametrize("path", NEEDED)
def test_without_the_essentials_it_is_unknown(path, files_text):
    told = parse_system(files_text({p: text for p, text in FILES.items() if p != path}))
    assert told == Unknown(f"{path} cannot be read")


def test_the_rest_may_be_missing(files_text):
    told = parse_system(files_text({path: FILES[path] for path in NEEDED}))
    assert (told.os_id, told.hostname, told.uptime_seconds, told.cpus, told.numa_nodes) == ("", "", None, None, {})


def test_a_cut_answer_only_loses(files_text):
    text, whole = files_text(FILES), parse_system(files_text(FILES))
    for end in range(len(text)):
        told = parse_system(text[:end])
        if not isinstance(told, Unknown):
            assert told.numa_nodes.items() <= whole.numa_nodes.items()
            assert told.cpus in {None, whole.cpus}
            assert told.memory_gib == whole.memory_gib


@pytest.mark.parametrize(
    ("cpulist", "count"),
    [("0-111", 112), ("0", 1), ("0-3,8-11", 8), ("0,2,4", 3), ("", None), ("3-0", None), ("0-", None), ("all", None)],
)
def test_cpu_lists_are_counted(cpulist, count):
    assert count_cpus(cpulist) == count
