"""CUDA, NCCL, DCGM, IMEX and the container toolkit: which packages, which files, which services."""

import json

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

DRIVER = "580.126.20"
SMI = "<nvidia_smi_log><cuda_version>{}</cuda_version><attached_gpus>8</attached_gpus></nvidia_smi_log>\n"
ON = {"ActiveState": "active", "UnitFileState": "enabled"}


def test_the_toolkit_comes_without_a_driver_and_is_on_the_path(node, apply):
    node.offer("cuda-toolkit-13-0=13.0.2-1", "cuda=13.0.2-1")
    apply(node, "cuda_toolkit", version="13.0")
    assert set(node.installed) == node.held == {"cuda-toolkit-13-0"}
    assert "PATH=$PATH:/usr/local/cuda-13.0/bin" in node.files["/etc/profile.d/gpuops-cuda.sh"]
    assert apply(node, "cuda_toolkit", version="13.0") == []


@pytest.mark.parametrize(("newest", "refused"), [("12.9", True), ("13.0", False), ("13.10", False)])
def test_a_toolkit_newer_than_the_driver_is_refused(node, look, newest, refused):
    node.offer("cuda-toolkit-13-0=13.0.2-1")
    node.answers["nvidia-smi -q -x"] = SMI.format(newest)
    assert isinstance(look(node, "cuda_toolkit", version="13.0").stop, Failed) == refused


def test_nccl_is_that_of_this_cuda_and_held(node, apply):
    node.offer("libnccl2=2.28.9-1+cuda12.9", "libnccl2=2.28.9-1+cuda13.0", "libnccl2=2.30.4-1+cuda13.0")
    given = {"version": "2.28.9", "cuda": "13.0", "settings": {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}}
    apply(node, "nccl", **given)
    assert node.installed == {"libnccl2": "2.28.9-1+cuda13.0"}
    assert node.held == {"libnccl2"}
    assert node.files["/etc/nccl.conf"] == "NCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert apply(node, "nccl", **given) == []


@pytest.mark.parametrize("node", ["rhel 9.4"], indirect=True)
def test_nccl_is_called_otherwise_on_red_hat(node, apply):
    names = ("libnccl", "libnccl-devel")
    node.offer("python3-dnf-plugin-versionlock=4-1", *(f"{name}=2.28.9-1+cuda13.0" for name in names))
    apply(node, "nccl", version="2.28.9", cuda="13.0", headers=True)
    assert set(names) <= set(node.installed)
    assert "/etc/nccl.conf" not in node.files


@pytest.mark.parametrize(
    ("cuda", "kinds"),
    [
        (["13"], ("core", "proprietary", "cuda13", "proprietary-cuda13")),
        (["12", "13"], ("core", "proprietary", "cuda12", "proprietary-cuda12", "cuda13", "proprietary-cuda13")),
    ],
)
def test_dcgm_is_of_one_version_throughout_and_the_old_one_goes(node, apply, cuda, kinds):
    names = {f"datacenter-gpu-manager-4-{kind}" for kind in kinds}
    node.offer(*(f"{name}=1:4.6.0-1" for name in names))
    node.installed["datacenter-gpu-manager"] = "1:3.3.9"
    node.unit("nvidia-dcgm")
    apply(node, "dcgm", version="4.6.0", cuda=cuda)
    assert node.installed == dict.fromkeys(names, "1:4.6.0-1")
    assert node.held == names
    assert node.units["nvidia-dcgm.service"] == ON
    assert apply(node, "dcgm", version="4.6.0", cuda=cuda) == []


def test_imex_runs_beside_its_driver_only(node, look, apply):
    node.offer(f"nvidia-imex={DRIVER}-1", f"nvidia-modprobe={DRIVER}-1")
    node.unit("nvidia-imex")
    given = {"version": DRIVER, "nodes": ["10.0.0.1", "10.0.0.2"]}
    node.load(DRIVER)
    apply(node, "imex", **given)
    assert node.files["/etc/nvidia-imex/nodes_config.cfg"] == "10.0.0.1\n10.0.0.2\n"
    assert node.held == {"nvidia-imex", "nvidia-modprobe"}
    assert node.units["nvidia-imex.service"] == ON
    node.load("580.95.05")
    found = look(node, "imex", **given)
    assert found.changes == []
    assert len(found.later) == 1


TOOLKIT = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
           "libnvidia-container1")  # fmt: skip


@pytest.fixture
def containers(node):
    """A node that has docker, with settings of its own."""
    node.offer(*(f"{name}=1.20.0-1" for name in TOOLKIT))
    node.unit("nvidia-cdi-refresh.path")
    node.files["/etc/docker/daemon.json"] = '{"log-driver": "journald"}'
    return node


def test_docker_is_told_of_the_runtime_and_keeps_its_settings(containers, apply):
    apply(containers, "container_toolkit", version="1.20.0")
    assert json.loads(containers.files["/etc/docker/daemon.json"]) == {
        "log-driver": "journald",
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
    }
    assert containers.held == set(TOOLKIT)
    assert containers.units["nvidia-cdi-refresh.path"] == ON
    assert apply(containers, "container_toolkit", version="1.20.0") == []


def test_containerd_is_told_by_the_toolkit_itself_once(containers, apply):
    path = "/etc/containerd/conf.d/99-nvidia.toml"
    containers.answers["test -e"] = lambda words: 0 if words[-1] in containers.files else 1
    containers.answers["nvidia-ctk"] = lambda _words: containers.files.update({path: "…"}) or 0
    apply(containers, "container_toolkit", version="1.20.0", engines=["containerd"], is_default=True)
    assert [line for line in containers.done if line.startswith("nvidia-ctk")] == [
        f"nvidia-ctk runtime configure --runtime=containerd --drop-in-config={path}"
    ]
    assert "runtimes" not in containers.files["/etc/docker/daemon.json"]


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        ("cuda_toolkit", {"version": "13.0.2"}),
        ("nccl", {"version": "2.28", "cuda": "13.0"}),
        ("nccl", {"version": "2.28.9", "cuda": "13.0", "settings": {"PATH": "x"}}),
        ("dcgm", {"version": "3.3.9"}),
        ("dcgm", {"version": "4.6.0", "cuda": ["13.0"]}),
        ("imex", {"version": DRIVER, "nodes": []}),
        ("imex", {"version": DRIVER, "nodes": ["a b"]}),
        ("fabric_manager", {"version": "580"}),
        ("fabric_manager", {"version": "570.195.03"}),
        ("container_toolkit", {"version": "1.20.0", "engines": ["podman"]}),
    ],
)
def test_wrong_parameters_are_refused(node, look, task, wrong):
    with pytest.raises(DocumentError, match=task):
        look(node, task, **wrong)
