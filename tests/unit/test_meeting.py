"""Where the ranks of a job meet, and the variables, port and identifier of its rendezvous."""

import datetime as dt
import re
from dataclasses import replace

import pytest

from gpuops.facts import Facts
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeNetwork, NodeShape, meeting_of, place
from gpuops.placement.network import networks_of
from gpuops.probes.network.addresses import Address
from gpuops.probes.network.gids import Gid
from gpuops.probing import Unknown
from gpuops.render import Job, environment_of, find_target, launch_for, own_port

GPUS = tuple(GpuShape(n, f"GPU-{n}", "", 0, f"mlx5_{n}", 0) for n in range(2))
LINKS = {(0, 1): "NV18", (1, 0): "NV18"}


def node(name, *networks, address=None, **more):
    number = name[1:]
    own = tuple(NodeNetwork(net, interface, at.format(number), fabric) for net, interface, at, fabric in networks)
    return NodeShape(name, address or f"10.0.0.{number}", GPUS, (), None, name, LINKS, networks=own, **more)


MANAGEMENT = ("10.0.0.0/24", "eno1", "10.0.0.{}", False)
STORAGE = ("10.9.0.0/16", "ens9", "10.9.0.{}", False)
FABRIC = ("10.1.0.0/16", "ib0", "10.1.0.{}", True)
BRIDGE = ("172.20.0.0/16", "eth9", "172.20.0.1", True)
OTHER_NAME = ("10.1.0.0/16", "ibp3s0", "10.1.0.{}", True)


@pytest.mark.parametrize(
    ("first", "second", "master", "interfaces"),
    [
        ((MANAGEMENT,), (MANAGEMENT,), "10.0.0.1", ["", ""]),
        ((), (), "10.0.0.1", ["", ""]),  # nothing is known
        ((MANAGEMENT, STORAGE), (MANAGEMENT,), "10.0.0.1", ["eno1", "eno1"]),
        ((STORAGE, MANAGEMENT), (), "10.0.0.1", ["", ""]),  # of the second node nothing is known
        ((MANAGEMENT, FABRIC), (MANAGEMENT, FABRIC), "10.1.0.1", ["ib0", "ib0"]),
        ((MANAGEMENT, FABRIC), (MANAGEMENT, OTHER_NAME), "10.1.0.1", ["ib0", "ibp3s0"]),
        ((MANAGEMENT, FABRIC), (MANAGEMENT,), "10.0.0.1", ["eno1", "eno1"]),
        ((BRIDGE, MANAGEMENT), (BRIDGE, MANAGEMENT), "10.0.0.1", ["eno1", "eno1"]),  # the same address on both
    ],
)
def test_ranks_meet_in_the_fabric_if_all_nodes_are_in_it_else_where_ssh_goes(first, second, master, interfaces):
    meeting = meeting_of([node("n1", *first), node("n2", *second)])
    assert meeting.master == master
    assert [meeting.interface_by_node.get(name, "") for name in ("n1", "n2")] == interfaces


@pytest.mark.parametrize(
    ("declared", "master", "interface"),
    [
        ({"job_interface": "ens9"}, "10.9.0.1", "ens9"),
        ({"job_interface": "bond7"}, "10.0.0.1", "bond7"),  # its address is not known
        ({"job_address": "10.9.0.1"}, "10.9.0.1", "ens9"),
        ({"job_address": "gpu1-ib"}, "gpu1-ib", ""),
    ],
)
def test_what_the_inventory_declares_comes_first(declared, master, interface):
    one = node("n1", MANAGEMENT, FABRIC, STORAGE, **declared)
    meeting = meeting_of([one, replace(one, name="n2")])
    assert (meeting.master, meeting.interface_by_node.get("n1", "")) == (master, interface)


@pytest.mark.parametrize(("address", "master"), [("127.0.0.1", "127.0.0.1"), ("gateway", "n1")])
def test_ports_of_one_machine_are_known_by_name_and_meet_at_its_loopback_address(address, master):
    meeting = meeting_of([node(name, address=address) for name in ("n1", "n2")])
    assert (meeting.master, dict(meeting.address_by_node)) == (master, {"n1": "n1", "n2": "n2"})


GUID = "0c42:a103:005e:a1b2"


@pytest.mark.parametrize(
    ("listed", "gid", "is_fabric"),
    [
        (
            Address("eth2", "10.1.0.1", "10.1.0.0/16"),
            Gid("mlx5_0", 1, 3, f"fe80:0:0:0:{GUID}", "RoCE v2", "eth2"),
            True,
        ),
        (
            Address("eth3", "10.1.0.1", "10.1.0.0/16"),
            Gid("mlx5_0", 1, 3, f"fe80:0:0:0:{GUID}", "RoCE v2", "eth2"),
            False,
        ),
        (
            Address("eth2", "10.1.0.1", "10.1.0.0/16"),
            Gid("mlx5_9", 1, 3, f"fe80:0:0:0:{GUID}", "RoCE v2", "eth2"),
            False,
        ),
        (
            Address(
                "ib0",
                "10.1.0.1",
                "10.1.0.0/16",
                "infiniband",
                "80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:5e:a1:b2",
            ),
            Gid("mlx5_0", 1, 0, f"fe80:0000:0000:0000:{GUID}", "IB/RoCE v1"),
            True,
        ),
        (
            Address(
                "ib1",
                "10.1.0.1",
                "10.1.0.0/16",
                "infiniband",
                "80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:5e:a1:b3",
            ),
            Gid("mlx5_0", 1, 0, f"fe80:0000:0000:0000:{GUID}", "IB/RoCE v1"),
            False,
        ),
    ],
    ids=["roce", "another-interface", "another-device", "ipoib", "another-guid"],
)
def test_an_interface_belongs_to_the_fabric_by_its_name_or_its_guid(listed, gid, is_fabric):
    now = dt.datetime.now(dt.timezone.utc)
    facts = Facts("n1", now, {"addresses": (listed, Address("docker0", "172.17.0.1", "172.17.0.0/16")), "gids": (gid,)})
    assert networks_of(facts, {"mlx5_0"}) == (NodeNetwork("10.1.0.0/16", listed.interface, "10.1.0.1", is_fabric),)
    assert networks_of(Facts("n1", now, {"addresses": Unknown("no ip")}), ()) == ()


def rendered(target, *nodes, name="train"):
    placement = place(parse_layout(f"dp={2 * len(nodes)}"), nodes)
    job = Job("train.py", (), name, own_port(name, placement), environment_of(placement, "other"))
    return {file.path: file.text for file in launch_for(find_target(target), placement, job).files}


def exported(text):
    lines = (line.partition("  #")[0] for line in text.splitlines() if re.match(r"export \w+=", line))
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def test_each_node_is_told_its_own_names_and_threads():
    one = node("n1", MANAGEMENT, FABRIC, cores=64)
    other = tuple(replace(gpu, nic=f"mlx5_{gpu.index + 4}") for gpu in GPUS)
    two = replace(node("n2", MANAGEMENT, OTHER_NAME, cores=32), gpus=other)
    files = rendered("torchrun", one, two)
    found = {name: exported(files[f"static-{name}.sh"]) for name in ("n1", "n2")}
    for name, hca, interface, threads in (("n1", "0,mlx5_1", "ib0", "32"), ("n2", "4,mlx5_5", "ibp3s0", "16")):
        assert found[name]["NCCL_IB_HCA"] == f"=mlx5_{hca}"
        assert (found[name]["NCCL_SOCKET_IFNAME"], found[name]["GLOO_SOCKET_IFNAME"]) == (f"={interface}", interface)
        assert found[name]["OMP_NUM_THREADS"] == threads
        assert "--master-addr=10.1.0.1 " in files[f"static-{name}.sh"]
    text = rendered("slurm", one, two)["job.sbatch"]
    assert exported(text)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_4,mlx5_5", "of all, where a node has no script"
    own = "NCCL_IB_HCA==mlx5_4,mlx5_5 NCCL_SOCKET_IFNAME==ibp3s0 GLOO_SOCKET_IFNAME=ibp3s0"
    assert f"\n1) export {own} ;;\nesac\n" in text
    assert "GLOO_SOCKET_IFNAME" not in exported(text), "no name is right on both"
    (pbs,) = rendered("pbs", one, two).values()
    assert f"\nstart n2 1 CUDA_VISIBLE_DEVICES=0,1 {own}\n" in pbs


@pytest.mark.parametrize("target", ["slurm", "openmpi", "mpich"])
def test_nodes_that_are_alike_need_no_cases(target):
    texts = rendered(target, node("n1", FABRIC), node("n2", FABRIC)).values()
    assert not any("export NCCL_IB_HCA==mlx5_0,mlx5_1 " in text for text in texts)
    assert any("export GLOO_SOCKET_IFNAME=ib0\n" in text for text in texts)


def test_two_jobs_have_two_ports_and_one_job_always_the_same():
    nodes = [node(f"n{number}") for number in (1, 2)]
    texts = [rendered("torchrun-elastic", *nodes, name=name)["elastic-n1.sh"] for name in ("train", "train", "tune")]
    assert texts[0] == texts[1]
    words = [dict(word.split("=", 1) for word in text.split() if word.startswith("--rdzv")) for text in texts[1:]]
    assert words[0]["--rdzv-endpoint"] != words[1]["--rdzv-endpoint"]
    assert [word["--rdzv-id"].rpartition("-")[0] for word in words] == ["train", "tune"]
    placement = place(parse_layout("dp=4"), nodes)
    ports = {own_port(f"job{number}", placement) for number in range(100)}
    assert min(ports) >= 20_000
    assert max(ports) < 28_000, "below NCCL's own and the kernel's ephemeral ports"
    assert len(ports) > 90
