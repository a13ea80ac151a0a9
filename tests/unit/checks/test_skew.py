"""versions-agree and packages-agree: the minority is named, a tie is a split, and what differs by design is silent."""

import datetime as dt
from dataclasses import replace

import pytest

from gpuops.facts import Facts
from gpuops.judging import discover, judge_group
from gpuops.probes.host.system import System
from gpuops.probes.network.ib import IbPort
from gpuops.probes.nvidia.nvidia_smi import Gpu
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

CHECKS = discover()
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
CMDLINE = "BOOT_IMAGE=/boot/vmlinuz-5.15.0-105 root=UUID={} ro console=ttyS{},115200 iommu=pt pci=realloc=off"
MACHINE = System(
    *("ubuntu", "22.04", "5.15.0-105-generic", "n", "b", 1e6, "", 2048.0, "Xeon", 224, {}),
    *("Supermicro", "SYS-821GE", "2.1"),
    virtual=False,
)


def gpus(**vbios):
    of = {f"gpu{index}": "96.00.74.00.01" for index in range(4)} | vbios
    return tuple(
        Gpu(
            int(name[3:]), f"0000:{name[3:]}b:00.0", "NVIDIA H100", vbios_version=version, board_part_number="692-2G520"
        )
        for name, version in of.items()
    )


def ports(board="MT_0000000838", **firmware):
    of = {"mlx5_0": "28.39.2048", "mlx5_1": "28.39.2048"} | firmware
    return tuple(
        IbPort(device, 1, "Active", "LinkUp", 400.0, "InfiniBand", firmware=version, board_id=board)
        for device, version in of.items()
    )


def node(number, *, cmdline="", **changes):
    machine = replace(MACHINE, cmdline=f"{CMDLINE.format(number, number % 2)} {cmdline}")
    return {"system": machine, "gpus": gpus(), "ib_ports": ports(), **changes}


def machine(number, **changes):
    return {"system": replace(MACHINE, cmdline=CMDLINE.format(number, 0), **changes)}


def judged(*nodes, check="versions-agree"):
    facts = {f"n{number}": Facts(f"n{number}", NOW, values) for number, values in enumerate(nodes, 1)}
    return judge_group(CHECKS[check], facts, NO_PROFILE)


def told(verdicts):
    return [(f.host, f.part, f.code) for v in verdicts for f in v.findings]


def test_equal_nodes_pass_though_their_disks_and_consoles_differ():
    verdicts = judged(*map(node, range(4)))
    assert {v.status for v in verdicts} == {"pass"}


@pytest.mark.parametrize(
    ("changes", "part", "code", "said"),
    [
        (machine(1, kernel="5.15.0-91-generic"), "kernel", "kernel", "91-generic here, 5.15.0-105-generic on 3 of 4"),
        (machine(1, cpus=112), "processors", "processors", "processors online of Xeon: 112 here, 224 on 3 of 4 nodes"),
        (machine(1, bios_version="1.9"), "bios", "bios", "BIOS of SYS-821GE: 1.9 here, 2.1 on 3 of 4 nodes"),
        ({"gpus": gpus(gpu2="96.00.30.00.01")}, "gpu2", "vbios", "96.00.30.00.01 here, 96.00.74.00.01 on 4 of 4"),
        ({"ib_ports": ports(mlx5_1="28.35.2000")}, "mlx5_1", "hca-firmware", "28.35.2000 here, 28.39.2048 on 4 of 4"),
    ],
    ids=["kernel", "processors", "bios", "vbios", "firmware"],
)
def test_the_minority_is_named(changes, part, code, said):
    (told_of,) = [f for v in judged(*map(node, range(3)), node(3, **changes)) for f in v.findings]
    assert (told_of.host, told_of.part, told_of.code, told_of.severity) == ("n4", part, code, "warn")
    assert said in told_of.message


def test_several_adapters_of_one_node_are_one_finding():
    (told_of,) = [
        f
        for v in judged(*map(node, range(3)), node(3, ib_ports=ports(mlx5_0="28.35.2000", mlx5_1="28.35.2000")))
        for f in v.findings
    ]
    assert "(mlx5_0, mlx5_1)" in told_of.message


def test_a_parameter_too_many_and_one_too_few():
    short = {"system": replace(MACHINE, cmdline="root=UUID=9 ro iommu=pt")}
    verdicts = judged(node(0), node(1), node(2), node(3, cmdline="nokaslr"), node(4, **short))
    said = {f.host: f.message for v in verdicts for f in v.findings}
    assert said == {
        "n4": "kernel parameters differ from most of 5 nodes: only here: nokaslr",
        "n5": "kernel parameters differ from most of 5 nodes: not here: pci=realloc=off",
    }


@pytest.mark.parametrize("count", [2, 4])
def test_a_tie_blames_no_part(count):
    half = [node(n, **machine(n, kernel="5.15.0-91")) for n in range(count // 2)]
    verdicts = judged(*half, *(node(n, **machine(n)) for n in range(count // 2)))
    (split,) = [f for v in verdicts for f in v.findings]
    assert (split.host, split.code) == ("", "kernel")
    assert split.message.startswith("split: kernel: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"ib_ports": ports(board="LNV0000000058", mlx5_0="28.40.1000", mlx5_1="28.40.1000")},
        {"system": replace(MACHINE, cmdline=CMDLINE.format(3, 0), product="SYS-421GE", bios_version="1.0")},
        {"ib_ports": ()},
        {"ib_ports": (*ports(), replace(ports()[0], device="mlx5_9", firmware="1.0", is_virtual_function=True))},
    ],
    ids=["another maker's board", "another product", "no adapters", "a virtual function"],
)
def test_what_differs_by_design_is_silent(changes):
    assert told(judged(*map(node, range(3)), node(3, **changes))) == []


def test_one_node_has_nothing_to_compare_and_an_unread_one_is_unknown():
    assert {v.status for v in judged(node(0))} == {"skipped"}
    verdicts = judged(*map(node, range(3)), node(3, system=Unknown("/proc/meminfo cannot be read")))
    assert {v.node: v.status for v in verdicts} == {"n1": "pass", "n2": "pass", "n3": "pass", "n4": "unknown"}


PACKAGES = {"libnccl2": "2.28.9-1+cuda13.0", "nvidia-container-toolkit": "1.18.0-1", "nvidia-utils-580": "580.1"}


def packages(**versions):
    return {"packages": {name.replace("_", "-"): v for name, v in (PACKAGES | versions).items() if v}}


@pytest.mark.parametrize(
    ("versions", "severity", "said"),
    [
        ({"libnccl2": "2.18.5-1+cuda12.2"}, "fail", "libnccl2: 2.18.5-1+cuda12.2 here, 2.28.9-1+cuda13.0 on 2"),
        ({"libnccl2": ""}, "warn", "libnccl2: not installed here, 2.28.9-1+cuda13.0 on 2 of 3 nodes"),
        ({"nvidia-container-toolkit": "1.14.0-1"}, "warn", "nvidia-container-toolkit: 1.14.0-1 here"),
        ({"doca-ofed": "3.1.0"}, "warn", "doca-ofed: 3.1.0 here, not installed on 2 of 3 nodes"),
    ],
)
def test_a_package_of_another_version(versions, severity, said):
    verdicts = judged(packages(), packages(), packages(**versions), check="packages-agree")
    (told_of,) = [f for v in verdicts for f in v.findings]
    assert (told_of.host, told_of.severity) == ("n3", severity)
    assert told_of.message.startswith(said)


def test_packages_of_the_driver_are_left_to_driver_agrees_and_a_tie_is_a_split():
    assert told(judged(packages(), packages(), packages(nvidia_utils_580="570.2"), check="packages-agree")) == []
    assert told(judged(packages(), packages(libnccl2="2.18"), check="packages-agree")) == [("", "libnccl2", "libnccl2")]
    assert {v.status for v in judged(packages(), check="packages-agree")} == {"skipped"}
