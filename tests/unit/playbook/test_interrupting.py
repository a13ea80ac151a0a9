import pytest

from gpuops.errors import CancelledError
from gpuops.fleet import Outcome, Outcomes
from gpuops.playbook import running


def test_what_came_to_its_end_in_spite_of_ctrl_c_is_told_and_nothing_more_is_begun(cluster, monkeypatch, steps):
    world = cluster("n1", "n2")

    def interrupted_each(hosts, work, **_):
        outcomes = [Outcome(host.name, value=work(host)) for host in hosts]
        return Outcomes(outcomes, interrupted=any(node.done for node in world.nodes.values()))

    monkeypatch.setattr(running, "each", interrupted_each)
    record = world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"))
    assert world.statuses(record) == [("n1", "put", "changed"), ("n2", "put", "changed")]
    assert record.exit_code(check=False) == 130
    assert [node.lock for node in world.nodes.values()] == ["", ""]
    assert "put b 1" not in world.node.done


def test_interrupted_node_is_not_counted_as_failed(cluster, monkeypatch, steps):
    world = cluster("n1")

    def interrupted_each(hosts, work, **_):
        if not world.nodes["n1"].lock or not hosts:
            return Outcomes([Outcome(host.name, value=work(host)) for host in hosts])
        return Outcomes([Outcome("n1", error=CancelledError("interrupted before it answered"))], interrupted=True)

    monkeypatch.setattr(running, "each", interrupted_each)
    monkeypatch.setattr(running, "unlock", lambda *_, **__: None)
    record = world.run(steps("put: {key: a, value: '1'}"))
    assert [result.status for result in record.results] == ["interrupted"]
    assert record.stopped == ""


def test_ctrl_c_while_the_nodes_are_locked_leaves_no_lock(cluster, monkeypatch, steps):
    world = cluster("n1", "n2")
    interrupted = iter([True])

    def interrupted_each(hosts, work, **_):
        outcomes = [Outcome(host.name, value=work(host)) for host in hosts]
        return Outcomes(outcomes, interrupted=next(interrupted, False))

    monkeypatch.setattr(running, "each", interrupted_each)
    record = world.run(steps("put: {key: a, value: '1'}"))
    assert (record.exit_code(check=False), record.results) == (130, [])
    assert [(node.lock, node.done) for node in world.nodes.values()] == [("", []), ("", [])]


@pytest.mark.parametrize(
    ("detach", "told"),
    [("false", "abandoned; its outcome is unknown"), ("true", "it continues on the node as a systemd unit, and")],
)
def test_what_a_second_ctrl_c_abandons_is_reported(world, monkeypatch, detach, told, steps):
    def begun(words):
        world.node.done.append(words)
        raise KeyboardInterrupt

    world.node.do = begun
    monkeypatch.setattr(
        running, "each", lambda hosts, work, **_: Outcomes(Outcome(h.name, value=work(h)) for h in hosts)
    )
    made = world.prepare(steps(f"put: {{key: a, value: '1', detach: {detach}}}"))
    record = made.run()
    (result,) = record.results
    assert (result.name, result.status, made.untouched(record)) == ("put", "interrupted", [])
    assert result.why.startswith(told)
    assert record.exit_code(check=False) == 130
