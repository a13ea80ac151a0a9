import shutil

import pytest

from gpuops.collective.idleness import kubernetes
from gpuops.lifecycle.kubernetes import NODES, TAINT, KubernetesScheduler
from gpuops.shell import Completed


class Cluster:
    """Nodes as kubectl tells them: address, whether cordoned, taints; and the words by which they were changed."""

    def __init__(self):
        self.nodes = {"free": ("10.0.0.1", "", ""), "ours": ("10.0.0.2", "", f"other/taint {TAINT}"),
                      "cordoned": ("10.0.0.3", "true", "node.kubernetes.io/unschedulable")}  # fmt: skip
        self.pods = ""
        self.changed = []
        self.broken = ""

    def run(self, asked):
        return self.batch([asked])[0]

    def batch(self, asked):
        return [self.answer(question) for question in asked]

    def answer(self, asked):
        if self.broken:
            return Completed("here", asked, 1, err=self.broken)
        if asked == NODES:
            rows = ("\t".join((name, f"{told[0]} {name}", *told[1:])) for name, told in self.nodes.items())
            return Completed("here", asked, 0, "".join(f"{row}\n" for row in rows))
        if asked == kubernetes.NODES:
            rows = (f"{name}\t{told[0]} {name}\n" for name, told in self.nodes.items())
            return Completed("here", asked, 0, "".join(rows))
        if asked == kubernetes.PODS:
            return Completed("here", asked, 0, self.pods)
        self.changed.append(asked.words[1:-1])
        return Completed("here", asked, 0)


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def scheduler(cluster):
    return KubernetesScheduler(cluster)


@pytest.fixture
def hosts(a_host):
    return lambda *names: [a_host(name) for name in names]


def test_closing_taints_and_says_why(scheduler, cluster, a_host):
    assert scheduler.drain([a_host("h1", address="10.0.0.1")], "repair", "Xid 79") == {}
    assert cluster.changed == [
        ("taint", "node", "free", f"{TAINT}=true:NoSchedule", "--overwrite"),
        ("annotate", "node", "free", "gpuops.dev/reason=gpuops:repair Xid 79", "--overwrite"),
    ]


def test_opening_takes_our_taint_away(scheduler, cluster, hosts):
    assert scheduler.resume(hosts("ours", "free")) == {}
    assert cluster.changed[0] == ("taint", "node", "ours", f"{TAINT}:NoSchedule-")
    assert not any(words[:3] == ("taint", "node", "free") for words in cluster.changed)


def test_a_cordon_is_left_alone_and_told(scheduler, cluster, hosts):
    told = {"cordoned": "cordoned by another user; to hand it over: kubectl uncordon cordoned"}
    assert scheduler.resume(hosts("cordoned")) == told
    assert scheduler.drained_by_others(hosts("cordoned", "free", "ours", "other")) == told
    assert cluster.changed == []


def test_a_node_that_the_cluster_does_not_have_takes_no_pods_and_cannot_be_opened(scheduler, hosts):
    assert scheduler.drain(hosts("other"), "new", "onboarding") == {}
    assert scheduler.resume(hosts("other")) == {"other": "Kubernetes has no such node"}


def test_who_still_takes_or_runs_pods_is_busy(scheduler, cluster, hosts):
    cluster.pods = 'ours\tml/train-0\t{"nvidia.com/gpu":"8"}\n'
    busy = scheduler.still_busy(hosts("free", "ours", "cordoned", "other"))
    assert busy == {"free": "it takes pods", "ours": "it runs pod ml/train-0"}


def test_a_cluster_that_does_not_answer_hinders_everything(scheduler, cluster, hosts):
    cluster.broken = "connection refused"
    for told in (
        scheduler.drain(hosts("free"), "new", "x"),
        scheduler.resume(hosts("free")),
        scheduler.still_busy(hosts("free")),
    ):
        assert told == {"free": "kubectl failed: connection refused"}


def node(name, **spec):
    return {"metadata": {"name": name}, "spec": spec, "status": {}}


def test_the_real_kubectl_closes_and_opens(a_cluster, hosts):
    if shutil.which("kubectl") is None:
        pytest.skip("optional: there is no kubectl on this machine")
    other = {"key": "other", "effect": "NoSchedule"}
    api = a_cluster([node("free", taints=[other]), node("cordoned", unschedulable=True)])
    scheduler = KubernetesScheduler(api)
    assert scheduler.drain(hosts("free", "cordoned"), "repair", "Xid 79") == {}
    assert {taint["key"] for taint in api.nodes["free"]["spec"]["taints"]} == {"other", TAINT}
    assert api.nodes["free"]["metadata"]["annotations"] == {"gpuops.dev/reason": "gpuops:repair Xid 79"}
    assert scheduler.still_busy(hosts("free", "cordoned")) == {}
    assert list(scheduler.resume(hosts("free", "cordoned"))) == ["cordoned"]
    assert [taint["key"] for taint in api.nodes["free"]["spec"]["taints"]] == ["other"]
    assert api.nodes["free"]["metadata"].get("annotations", {}) == {}
    assert api.nodes["cordoned"]["spec"]["unschedulable"] is True
    assert scheduler.still_busy(hosts("free")) == {"free": "it takes pods"}
