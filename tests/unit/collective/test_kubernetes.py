import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from gpuops.collective.idleness import Claim
from gpuops.collective.kubernetes import NODES, PODS, allocations
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
        "gpu-a": (Claim("pod ml/train-0"), Claim("pod ml/train-1")),
        "second": (Claim("pod ml/claims"),),
        "other": Unknown("Kubernetes has no such node"),
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
LISTS = {
    "nodes": [{"metadata": {"name": "gpu-a"}, "status": {"addresses": ADDRESSES}}],
    "pods": [
        {"metadata": {"namespace": "ml", "name": "train-0"}, "spec": {"nodeName": "gpu-a", "containers": [BUSY]}},
        {"metadata": {"namespace": "ml", "name": "idle"}, "spec": {"nodeName": "gpu-a", "containers": [{"name": "c"}]}},
    ],
}
RESOURCES = [
    {"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": False, "verbs": ["list"]},
    {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": ["list"]},
]
ANSWERS = {
    "api": {"kind": "APIVersions", "versions": ["v1"]},
    "apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": RESOURCES},
}


class Server(BaseHTTPRequestHandler):
    """As much of a Kubernetes API server as ``kubectl get`` asks."""

    def do_GET(self):
        path = self.path.partition("?")[0].strip("/")
        kind = path.rpartition("/")[2]
        listed = [{"apiVersion": "v1", "kind": kind[:-1].capitalize(), **item} for item in LISTS.get(kind, ())]
        answer = ANSWERS.get(path) or {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": listed}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_words):
        pass


@pytest.fixture
def real_kubectl(tmp_path):
    """The real kubectl before a small server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(asked):
        words = [*asked.words, f"--server=http://127.0.0.1:{server.server_port}", f"--cache-dir={tmp_path}"]
        env = {"HOME": str(tmp_path), "PATH": os.defpath}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        return Completed("here", asked, done.returncode, done.stdout, done.stderr)

    yield SimpleNamespace(run=ask)
    server.shutdown()
    server.server_close()


def test_the_real_kubectl_understands_the_questions(real_kubectl, a_host):
    if shutil.which("kubectl") is None:
        return  # welcome, and not asked for
    found = allocations(real_kubectl, [a_host("h1"), a_host("x", address="10.0.0.1"), a_host("y")])
    assert found == {
        "h1": (Claim("pod ml/train-0"),),
        "x": (Claim("pod ml/train-0"),),
        "y": Unknown("Kubernetes has no such node"),
    }
