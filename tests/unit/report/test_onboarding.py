"""The end of onboarding in words: who was admitted, who stopped where, and what was going on."""

from gpuops.reasons import Objection
from gpuops.report.onboarding import below, summary
from gpuops.report.page import Page
from gpuops.results.life import NodeOnboarding, Onboarding


def node(state="new", stopped_at=None, interrupted_at=None, doing=""):
    objection = Objection("no") if stopped_at else None
    return NodeOnboarding((), stopped_at, objection, state, interrupted_at, doing)


def test_nodes_are_named_by_the_place_where_they_stopped():
    nodes = {"gpu01": node("admitted"), "gpu02": node(stopped_at="burn-in"), "gpu03": node(stopped_at="burn-in"),
             "gpu07": node(stopped_at="pair")}  # fmt: skip
    assert list(summary(Onboarding(nodes))) == ["stopped: gpu[02-03] at burn-in, gpu07 at pair"]


def test_an_interruption_names_what_every_node_was_doing():
    nodes = {
        "gpu01": node("admitted"),
        "gpu02": node(stopped_at="provision", interrupted_at="provision"),
        "gpu03": node(interrupted_at="provision", doing="Reboot: it was rebooted and is not back yet"),
        "gpu04": node(interrupted_at="burn-in"),
    }
    assert list(below(list(summary(Onboarding(nodes, interrupted=True))), Page(60))) == [
        "",
        "admitted: gpu01",
        "stopped: gpu02 at provision",
        "interrupted: gpu03 at provision (Reboot: it was rebooted and",
        "             is not back yet), gpu04 at burn-in",
    ]


def test_nothing_is_said_if_all_were_admitted():
    assert list(summary(Onboarding({"gpu01": node("admitted")}))) == []
