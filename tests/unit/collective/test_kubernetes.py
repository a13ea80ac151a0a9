import shutil

import pytest

from gpuops.collective.idleness.kubernetes import NODES, PODS, allocations
from gpuops.collective.idleness.proof import NodeAllocation, NoSuchNode
from gpuops.probing import Unknown
from gpuops.shell import Completed
from gpuops.transport.replay import ReplayTransport

NODE_ROWS = "gpu-a\t10.0.0.1 gpu-a\ngpu-b\t10.0.0.2 h2\n"
POD_ROWS = (
    'gpu-a\tml/train-0\t{"nvidia.com/gpu":"8"}{}\n'
    'gpu-a\tml/train-1\t{"cpu":"2"} {"nvidia.com/mig-1g.10gb":"1"}\n'
    'gpu-b\tkube-system/plugin\t{"cpu":"2"}\n'
    'gpu-b\tml/claims\t[{"name":"g","resourceClaimTemplateName":"one-gpu"}]\n'
    '\tml/pending\t{"nvidia.com/gpu":"8"}\n'
)


def machine(nodes=NODE_ROWS, pods=POD_ROWS, status=0, err=""):
    return ReplayTransport(
        "here", [Completed("here", q, status, text, err) for q, text in ((NODES, nodes), (PODS, pods))]
    )


@pytest.fixture
def hosts(a_host):
    return [a_host("gpu-a"), a_host("second", address="10.0.0.2"), a_host("other")]


def test_pods_with_gpus_hold_their_node(hosts):
    assert allocations(machine(), hosts) == {
        "gpu-a": (NodeAllocation("pod ml/train-0"), NodeAllocation("pod ml/train-1")),
        "second": (NodeAllocation("pod ml/claims"),),
        "other": NoSuchNode("Kubernetes has no such node"),
    }


@pytest.mark.parametrize(
    "answers",
    [
        {"status": 127},
        {"status": 1, "err": "The connection to the server localhost:8080 was refused"},
        {"nodes": "gpu-a\n"},
        {"pods": "gpu-a\tml/x\n"},
    ],
)
def test_what_kubectl_does_not_say_is_unknown_of_every_host(hosts, answers):
    assert all(isinstance(found, Unknown) for found in allocations(machine(**answers), hosts).values())


ADDRESSES = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "h1"}]
BUSY = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
NODE = {"metadata": {"name": "gpu-a"}, "status": {"addresses": ADDRESSES}}
PODS_THERE = [
    {"metadata": {"namespace": "ml", "name": "train-0"}, "spec": {"nodeName": "gpu-a", "containers": [BUSY]}},
    {"metadata": {"namespace": "ml", "name": "idle"}, "spec": {"nodeName": "gpu-a", "containers": [{"name": "c"}]}},
]


def test_the_real_kubectl_understands_the_questions(a_cluster, a_host):
    if shutil.which("kubectl") is None:
        pytest.skip("optional: there is no kubectl on this machine")
    found = allocations(a_cluster([NODE], PODS_THERE), [a_host("h1"), a_host("x", address="10.0.0.1"), a_host("y")])
    assert found == {
        "h1": (NodeAllocation("pod ml/train-0"),),
        "x": (NodeAllocation("pod ml/train-0"),),
        "y": NoSuchNode("Kubernetes has no such node"),
    }
