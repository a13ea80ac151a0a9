"""Stand-ins for what unit tests of more than one package ask: schedulers, and the groups of this machine."""

import grp
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from gpuops.collective.idleness.slurm import JOBS, NODES
from gpuops.shell import Completed


class SlurmMachine:
    """A Slurm as sinfo tells it and as scontrol changes it. ``away`` are nodes that stay down when resumed."""

    def __init__(self, **states):
        self.states = {name: list(told) for name, told in states.items()}
        self.busy = {name for name, (state, _) in states.items() if state in ("allocated", "draining")}
        self.away = set()
        self.reservations = {}
        self.durations = set()
        self.broken = ""

    def run(self, asked):
        return self.batch([asked])[0]

    def batch(self, asked):
        return [self.answer(question) for question in asked]

    def answer(self, asked):
        if self.broken:
            return Completed("here", asked, 1, err=self.broken)
        if asked in {NODES, JOBS}:
            rows = [f"{name}|{name}|{name}|{state}|{reason}" for name, (state, reason) in self.states.items()]
            return Completed("here", asked, 0, "".join(f"{row}\n" for row in rows) if asked == NODES else "")
        assert asked.words[4] == "scontrol", asked
        verb, *words = asked.words[5:]
        told = dict(word.split("=", 1) for word in words if "=" in word)
        err = {"create": self.reserve, "delete": self.give_back, "update": self.update}[verb](told)
        return Completed("here", asked, int(bool(err)), err=err)

    def reserve(self, told):
        if told["Nodes"] in self.busy:
            return "Error creating the reservation: Requested nodes are busy\nNote, unless nodes are …\n"
        assert (told["StartTime"], told["Users"]) == ("now", "root")
        assert not set(told) & {"Flags"}  # with MAINT or IGNORE_JOBS a job would not count
        self.durations.add(int(told["Duration"]))
        self.reservations[told["ReservationName"]] = told["Nodes"]
        return ""

    def give_back(self, told):
        known = self.reservations.pop(told["ReservationName"], None)
        return "" if known else "delete_reservation: Requested reservation is invalid\n"

    def update(self, told):
        node = told["NodeName"]
        if told["State"] == "DRAIN":
            self.states[node] = ["draining" if node in self.busy else "drained", told["Reason"]]
        else:
            assert told["State"] in ("RESUME", "UNDRAIN")
            open_state = ["allocated" if node in self.busy else "idle", "none"]
            self.states[node] = ["down*", "Not responding"] if node in self.away else open_state
        return ""


@pytest.fixture
def a_slurm():
    """Makes a Slurm of nodes: ``gpu01=("drained", "fan swap")``."""
    return SlurmMachine


RESOURCES = [
    {"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": False, "verbs": ["get", "list", "patch"]},
    {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": ["list"]},
]
ANSWERS = {
    "api": {"kind": "APIVersions", "versions": ["v1"]},
    "apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": RESOURCES},
}


def merged(old, patch):
    """A merge patch as RFC 7386 has it; a list is replaced."""
    if not isinstance(patch, dict):
        return patch
    kept = {key: value for key, value in (old or {}).items() if key not in patch}
    return {**kept, **{key: merged((old or {}).get(key), value) for key, value in patch.items() if value is not None}}


class Api(BaseHTTPRequestHandler):
    """As much of a Kubernetes API server as kubectl needs to list nodes and pods, and to taint and annotate nodes."""

    def do_GET(self):
        path = self.path.partition("?")[0].strip("/")
        listed = {"nodes": [*self.server.nodes.values()], "pods": self.server.pods}.get(path.rpartition("/")[2], [])
        one = self.server.nodes.get(path.removeprefix("api/v1/nodes/"))
        self._say(ANSWERS.get(path) or one or {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": listed})

    def do_PATCH(self):
        name = self.path.partition("?")[0].rpartition("/")[2]
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.nodes[name] = merged(self.server.nodes[name], patch)
        self._say(self.server.nodes[name])

    def _say(self, answer):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_words):
        pass


@pytest.fixture
def a_cluster(tmp_path):
    """Makes a cluster of nodes and pods that the real kubectl asks and changes; ``nodes`` are what became of them."""
    servers = []

    def make(nodes, pods=()):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
        servers.append(server)
        server.nodes = {node["metadata"]["name"]: {"apiVersion": "v1", "kind": "Node", **node} for node in nodes}
        server.pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def run(asked):
            words = [*asked.words, f"--server=http://127.0.0.1:{server.server_port}", f"--cache-dir={tmp_path}"]
            env = {"HOME": str(tmp_path), "PATH": os.defpath}
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
            return Completed("here", asked, done.returncode, done.stdout, done.stderr)

        return SimpleNamespace(run=run, batch=lambda asked: [run(each) for each in asked], nodes=server.nodes)

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def shared_group(monkeypatch):
    """Every group has another member: it is not the private one that accounts of Debian have."""
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("ops", "x", gid, ["bob"])))
